"""The checkpoint store.

files     every file operation, behind one small interface
layout    which name means what
manifest  the file that vouches for a checkpoint
reading   one checkpoint: the checks, and what counts as damage
commit    the order of operations that makes a checkpoint appear whole or not at all
lock      one writer per folder
store     list, read, save, keep, set aside
policy    when to save
"""
