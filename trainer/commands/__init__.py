"""The command line `python -m trainer`.

Owns the parsing (`cli`), the commands that look at a run folder and put it in order (`folder`), and
the one that keeps a program running (`supervise`). Promises that reading commands need neither a
lock nor TensorFlow. Refuses to train.
"""
