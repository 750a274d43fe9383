"""Fault-tolerant training loops for TensorFlow 2.

An interrupted run ends bit for bit where the unbroken run would have ended. Derive a class from
`Trainer`, fill in `build`, `train_dataset` and `train_step`, and start it with `trainer.app.run`.

This file owns the public names. Each is imported when it is used first, so that a command that only
lists files does not pay for TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.base import lazy

if TYPE_CHECKING:
    from trainer import app as app
    from trainer import data as data
    from trainer import testing as testing
    from trainer.config import TrainerConfig as TrainerConfig
    from trainer.errors import CheckpointError as CheckpointError
    from trainer.errors import CheckpointMismatchError as CheckpointMismatchError
    from trainer.errors import DamagedCheckpointError as DamagedCheckpointError
    from trainer.errors import ModelDirInUseError as ModelDirInUseError
    from trainer.errors import NonFiniteError as NonFiniteError
    from trainer.errors import NoReadableCheckpointError as NoReadableCheckpointError
    from trainer.errors import SaveError as SaveError
    from trainer.errors import StateCoverageError as StateCoverageError
    from trainer.errors import StepRefusedError as StepRefusedError
    from trainer.errors import TrainerError as TrainerError
    from trainer.errors import UnseededDataError as UnseededDataError
    from trainer.graph.metrics import Metric as Metric
    from trainer.hooks.context import RunContext as RunContext
    from trainer.hooks.hook import Hook as Hook
    from trainer.hooks.log_progress import LogProgress as LogProgress
    from trainer.hooks.rollback_on_spike import RollbackOnSpike as RollbackOnSpike
    from trainer.run.ending import RunResult as RunResult
    from trainer.trainer import Trainer as Trainer

__version__ = "0.1.0"

_ERRORS = (
    *("CheckpointError", "CheckpointMismatchError", "DamagedCheckpointError", "ModelDirInUseError"),
    *("NoReadableCheckpointError", "NonFiniteError", "SaveError", "StateCoverageError"),
    *("StepRefusedError", "TrainerError", "UnseededDataError"),
)
_HOMES = {
    **dict.fromkeys(_ERRORS, "trainer.errors"),
    "Hook": "trainer.hooks.hook",
    "LogProgress": "trainer.hooks.log_progress",
    "Metric": "trainer.graph.metrics",
    "RollbackOnSpike": "trainer.hooks.rollback_on_spike",
    "RunContext": "trainer.hooks.context",
    "RunResult": "trainer.run.ending",
    "Trainer": "trainer.trainer",
    "TrainerConfig": "trainer.config",
    "app": "trainer.app",
    "data": "trainer.data",
    "testing": "trainer.testing",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 (the names are texts)

__getattr__ = lazy.names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
