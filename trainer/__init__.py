"""Fault-tolerant training loops for TensorFlow 2.

An interrupted run ends bit for bit where the unbroken run would have ended. Derive a class from
`Trainer`, fill in `build`, `train_dataset` and `train_step`, and start it with `trainer.app.run`.

This file owns the public names. Each is imported when it is used first, so that a command that only
lists files does not pay for TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer import app as app
    from trainer import data as data
    from trainer import testing as testing
    from trainer.config import TrainerConfig as TrainerConfig
    from trainer.context import RunContext as RunContext
    from trainer.ending import RunResult as RunResult
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
    from trainer.hooks import Hook as Hook
    from trainer.stock_hooks.log_progress import LogProgress as LogProgress
    from trainer.stock_hooks.rollback_on_spike import RollbackOnSpike as RollbackOnSpike
    from trainer.trainer import Trainer as Trainer

__version__ = "0.1.0"

_HOMES = {
    "TrainerConfig": "config",
    "CheckpointError": "errors",
    "CheckpointMismatchError": "errors",
    "DamagedCheckpointError": "errors",
    "ModelDirInUseError": "errors",
    "NonFiniteError": "errors",
    "NoReadableCheckpointError": "errors",
    "SaveError": "errors",
    "StateCoverageError": "errors",
    "StepRefusedError": "errors",
    "TrainerError": "errors",
    "Hook": "hooks",
    "RunContext": "context",
    "LogProgress": "stock_hooks.log_progress",
    "RollbackOnSpike": "stock_hooks.rollback_on_spike",
    "RunResult": "ending",
    "Trainer": "trainer",
}
_MODULES = ("app", "data", "testing")

__all__ = ["__version__", *_HOMES, *_MODULES]  # noqa: PLE0604 (the names are texts)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"trainer.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"trainer.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'trainer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
