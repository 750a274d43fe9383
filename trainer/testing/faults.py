"""Faults to put a training program through: crashes, kills, signals, bad numbers, disks, damage.

Owns the hooks and functions that `trainer.testing` offers for them. Promises that each does what
its name says at the step it is given, and nothing before. Refuses to judge what becomes of the run.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from trainer import graph  # noqa: F401 (first: it says what is wrong with TensorFlow)

# isort: split
import tensorflow as tf

from trainer.hooks import context
from trainer.hooks.hook import Hook
from trainer.run import inside


class SimulatedCrash(Exception):  # noqa: N818 (a public name; no error of the program)
    """What `CrashAt` raises."""


class _At(Hook):
    """Does something after a step, before that step can be saved.

    Args:
        step: the step, at least 1.
    """

    def __init__(self, step: int):
        self.every_steps = step

    def after_step(self, ctx: context.RunContext) -> None:
        """Acts at the step, not at its multiples."""
        if ctx.step == self.every_steps:
            self._act(ctx)

    def get_state(self) -> dict[str, Any]:
        """Returns nothing: the end of a process is no part of the run."""
        return {}

    def _act(self, ctx: context.RunContext) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _act(self, ctx)")


class CrashAt(_At):
    """Raises `SimulatedCrash` after a step, before that step can be saved.

    Args:
        step: the step, at least 1.
    """

    def _act(self, ctx: context.RunContext) -> None:
        raise SimulatedCrash(f"crash at step {self.every_steps}")


class KillAt(_At):
    """Kills the process (SIGKILL) after a step, before that step can be saved.

    Args:
        step: the step, at least 1.
    """

    def _act(self, ctx: context.RunContext) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class SignalAt(_At):
    """Sends this process a signal after a step.

    Args:
        step: the step, at least 1.
        number: the signal.
    """

    def __init__(self, step: int, number: int = signal.SIGTERM):
        super().__init__(step)
        self._number = number

    def _act(self, ctx: context.RunContext) -> None:
        os.kill(os.getpid(), self._number)


class NonFiniteAt(_At):
    """Makes a variable NaN after a step, once: the next step is the first to see it.

    Args:
        step: the step, at least 1.
        name: the variable's name in the state; None: the first one that can hold a NaN.
    """

    def __init__(self, step: int, name: str | None = None):
        super().__init__(step)
        self._name = name
        self._done = False

    def _act(self, ctx: context.RunContext) -> None:
        if self._done:
            return
        self._done = True
        variables = _variables_of(ctx.trainer)
        names = [n for n, v in variables.items() if tf.as_dtype(v.dtype).is_floating]
        name = self._name or next(iter(names), None)
        if name not in names:
            raise ValueError(f"there is no variable {name!r} that can be NaN; there are {names}")
        variables[name].assign(tf.fill(variables[name].shape, float("nan")))


class _Disk(Hook):
    """Comes between the trainer and its disk while the run is between two steps.

    Args:
        first: step after which it begins; 0: with the run.
        last: step after which it is over; None: never.
    """

    def __init__(self, first: int = 0, last: int | None = None):
        self._first = first
        self._last = last
        self._step = 0

    def begin(self, ctx: context.RunContext) -> None:
        """Takes the place of the trainer's file operations."""
        self._step = ctx.step
        files = _files_of(ctx.trainer)
        for name in ("write", "write_bundle"):
            setattr(files, name, self._between(getattr(files, name)))

    def after_step(self, ctx: context.RunContext) -> None:
        """Moves on."""
        self._step = ctx.step

    def end(self, ctx: context.RunContext) -> None:
        """Gives the file operations back."""
        files = _files_of(ctx.trainer)
        for name in ("write", "write_bundle"):
            delattr(files, name)

    def get_state(self) -> dict[str, Any]:
        """Returns nothing: a disk is no part of the run."""
        return {}

    def _between(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any) -> Any:
            if self._first <= self._step and (self._last is None or self._step <= self._last):
                self._interfere()
            return operation(*arguments)

        return write

    def _interfere(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _interfere(self)")


class FullDisk(_Disk):
    """Every write of a checkpoint fails for want of space, from one step to another.

    Args:
        first: step after which the disk is full; 0: from the start.
        last: last step after which it is; None: for good.
    """

    def _interfere(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


class SlowDisk(_Disk):
    """Every write of a checkpoint takes longer, from one step to another.

    Args:
        secs: how much longer.
        first: step after which the disk is slow; 0: from the start.
        last: last step after which it is; None: for good.
    """

    def __init__(self, secs: float, first: int = 0, last: int | None = None):
        super().__init__(first, last)
        self._secs = secs

    def _interfere(self) -> None:
        time.sleep(self._secs)


def corrupt(checkpoint: str, how: str = "flip", part: str = "data") -> str:
    """Damages a checkpoint, as disks and copies do.

    Args:
        checkpoint: its folder, such as "runs/digits/ckpt-120".
        how: "flip" (a bit in the middle), "truncate" (to half), "zero" (the second half), "empty"
            or "remove".
        part: the file: "data", "index" or "manifest".

    Returns:
        The path of the damaged file.

    Raises:
        ValueError: there is no such file, or no such way.
    """
    ends = {"data": ".data-", "index": ".index", "manifest": "manifest.json"}
    ways = ("flip", "truncate", "zero", "empty", "remove")
    if part not in ends or how not in ways:
        raise ValueError(f"part must be one of {[*ends]} and how of {ways}, got {part!r}, {how!r}")
    found = [name for name in sorted(os.listdir(checkpoint)) if ends[part] in name]
    if not found:
        raise ValueError(f"there is no {part} file in {checkpoint}; is it a checkpoint's folder?")
    path = os.path.join(checkpoint, found[0])
    if how == "remove":
        os.remove(path)
        return path
    with open(path, "rb") as file:
        content = bytearray(file.read())
    half = len(content) // 2
    if how == "flip":
        content[half] ^= 0b100
    elif how == "zero":
        content[half:] = bytes(len(content) - half)
    else:
        del content[0 if how == "empty" else half :]
    with open(path, "wb") as file:
        file.write(content)
    return path


def _variables_of(program: context.TrainerView) -> dict[str, Any]:
    entries = _parts(program).content.variables.entries
    return {name: entry.variable for name, entry in entries.items()}


def _files_of(program: context.TrainerView) -> Any:
    return _parts(program).store.files


def _parts(program: context.TrainerView) -> Any:
    return inside.of(program).parts
