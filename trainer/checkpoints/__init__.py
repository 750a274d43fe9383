"""The checkpoint store.

Owns everything on the disk that a resume is made from. Promises that a complete, durable checkpoint
exists at every instant from the first save on, and that none is trusted before it was verified.
Refuses to know what the tensors mean, or to look at a clock or an interval.

files     every file operation, behind one small interface
bundle    named tensors to files and back
file_names which name means what
manifest  the file that vouches for a checkpoint
reading   one checkpoint: the checks, and what counts as damage
recovery  which checkpoint a run goes on from
commit    the order of operations that makes a checkpoint appear whole or not at all
lock      one writer per folder
retention which checkpoints need not be kept
room      what is free on the volume
tidying   order after a crash
folder    list and read
store     recover, save, keep, set aside
policy    when to save, told the time
"""
