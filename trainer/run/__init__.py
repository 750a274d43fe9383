"""One run: construct, step, save, end.

Owns what `trainer.py` calls, in this order: construction (`preflight`, `construction`, which makes
`parts`, and `state_coverage`), steps (`stepping`, `pace`, and `progress`, which says where the run
is), saves (`saving` when, `checkpoint_writer` how, `content` what), what else may come between
(`rollback`, `retry`, `evaluation`, `signals`, `history`), and the end (`goal`, `ending`). Promises
the invariants of BUILD.md, each in the file that it names. Refuses to know the order of things,
which `trainer.py` has.
"""

from trainer import graph  # noqa: F401 (first: it says what is wrong with TensorFlow)
