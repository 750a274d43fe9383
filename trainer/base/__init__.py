"""The ground: standard library only.

Owns the clock, the log, checks of arguments, digests by name, and names that are loaded late.
Promises to import nothing but Python's own library, so that every room may stand on it. Refuses to
know what a training run is.
"""
