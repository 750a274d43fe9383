"""What a program is made of, told in words.

Owns the fingerprint of a program: its step, its data, its settings and the machine (`step`, `data`,
`settings`, `machine`, put together in `program`), what a difference is called and how grave it is
(`compare`), and the number of threads that a run keeps (`threads`). Promises that two starts of one
program have one fingerprint, whatever the process, its folder, its host, its hash seed and its
number of processors are. Refuses to decide what becomes of a run: construction does.
"""
