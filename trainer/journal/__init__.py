"""What happened to a run, for people.

Owns the diary of a run folder (`journal`) and the arithmetic on it (`goodput`). Promises that a
diary which cannot be written or read stops no run. Refuses to be a source of truth: recovery looks
at the checkpoints alone.
"""
