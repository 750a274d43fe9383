"""What TensorFlow compiles and runs.

Owns the traced step and the loop around it (`compiled`), the short way into it (`direct_call`), the
reading of what a traced function touches and hides (`inspection`), and of many variables at one
instant (`snapshot`). Promises that results do not depend on where compiled calls end. Refuses to
know why a call ends, or what becomes of its results.
"""

from trainer.base import versions

versions.tensorflow()  # here, since every room that needs it imports this one first
