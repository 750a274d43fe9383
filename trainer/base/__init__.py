"""The ground: standard library only.

Owns the clock, the log, checks of arguments, digests by name, names that are loaded late, and which
TensorFlow is needed. Promises to import nothing but Python's own library when it is loaded, so that
every room may stand on it. Refuses to know what a training run is.
"""
