"""What a program is made of, by name.

Owns the walk from attributes to named variables (`discovery`), reading and setting them as one
whole (`variables`), the global random generators (`seeds`), settings of optimizers that are no
variables (`optimizer_settings`), and initial values from elsewhere (`warm_start`). Promises names
that depend on the program's structure alone. Refuses to know steps, hooks or the position in the
data: what a checkpoint holds besides variables is in `run.content`.
"""

from trainer import graph  # noqa: F401 (first: it says what is wrong with TensorFlow)
