"""One save: from the state in memory to a checkpoint on the disk, while training goes on.

Owns the snapshot and the thread that writes it. Promises that a checkpoint holds the state of the
step it was begun at, whatever training has done since; that at most one is being written, so that
at most one snapshot is held; and that an error waits until it is taken. Refuses to decide when to
save, or what an error means.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from concurrent import futures
from typing import Any

from trainer import errors
from trainer.base import clock, versions
from trainer.checkpoints import bundle, manifest
from trainer.run.parts import Parts
from trainer.state import names
from trainer.state import variables as variables_module

_SMALL_BYTES, _SMALL_COUNT = 1 << 20, 100


@dataclasses.dataclass(frozen=True)
class Written:
    """A checkpoint that is on the disk.

    Args:
        step: its step.
        stop: the stop request in it.
        bytes: its size.
        data_bytes: the part of it that keeps the position in the data, about.
        variable_bytes: the part of it that is variables.
        write_secs: from the snapshot to the disk.
    """

    step: int
    stop: Any
    bytes: int
    data_bytes: int
    variable_bytes: int
    write_secs: float


@dataclasses.dataclass(frozen=True)
class _Snapshot:
    """What is written: everything of one step."""

    step: int
    stop: Any
    tensors: dict[str, Any]
    variables: list[str]
    outputs: dict[str, list[str]]
    taken: float


class Writer:
    """Writes checkpoints in a thread of its own, one at a time.

    Args:
        parts: the trainer's parts.

    Attributes:
        step: the step that is being written, or was and has not been taken; None if none is.
        is_small: whether the last snapshot is written in some milliseconds by any disk.
    """

    def __init__(self, parts: Parts):
        self._parts = parts
        self._future: futures.Future[Written] | None = None
        self.step: int | None = None
        self.is_small = False
        self._begun = 0.0

    def begin(self, *, waited_for: bool) -> None:
        """Takes a snapshot and starts to write it; the one before must have been taken.

        Args:
            waited_for: whether training waits for it, so that it may use every core.

        Raises:
            ModelDirInUseError: the trainer no longer owns the folder.
        """
        parts = self._parts
        parts.store.check_owned()
        taken = clock.now()
        tensors = parts.content.collect()
        self.is_small = len(tensors) <= _SMALL_COUNT and (
            sum(bundle.size_of(tensor) for tensor in tensors.values()) <= _SMALL_BYTES
        )
        self.step, self._begun = parts.progress.step, taken
        found = _Snapshot(
            step=parts.progress.step,
            stop=parts.content.stop,
            tensors=tensors,
            variables=list(parts.content.variables.entries),
            outputs=parts.content.last_outputs(),
            taken=taken,
        )
        self._future = _threads("writer").submit(self._write, found, 2 if waited_for else 1)

    def age(self) -> float:
        """Returns the seconds since the last snapshot was begun."""
        return clock.now() - self._begun

    def wait(self, secs: float | None = None) -> bool:
        """Tells whether nothing is being written any more, after waiting for that.

        Args:
            secs: how long to wait at most; None: as long as it takes.
        """
        if self._future is None:
            return True
        return bool(futures.wait([self._future], secs).done)

    def take(self) -> Written:
        """Returns what became of the save that `wait` saw the end of.

        Raises:
            SaveError: it could not be written.
            NonFiniteError: a variable of the snapshot holds a NaN or an infinity.
        """
        assert self._future is not None, "take() without begin()"
        future, self._future, self.step = self._future, None, None
        return future.result()

    def _write(self, found: _Snapshot, streams: int) -> Written:
        values = {name: found.tensors[name] for name in found.variables}
        looked = _threads("looker").submit(self._parts.bad_numbers.in_state, values)

        def describe(sizes: dict[str, Any]) -> manifest.Manifest:
            self._refuse(found.step, looked.result())
            return manifest.Manifest(
                step=found.step,
                trained_secs=float(found.tensors[names.SECS]),
                seed=self._parts.seed,
                files=sizes,
                tensors=variables_module.describe(found.tensors),
                variables=found.variables,
                written_at=time.time(),
                versions=versions.installed(),
                fingerprint=self._parts.fingerprint.saved,
                outputs=found.outputs,
            )

        written = self._parts.store.save(found.step, found.tensors, describe, streams=streams)
        known = sum(bundle.size_of(tensor) for tensor in found.tensors.values())
        return Written(
            step=found.step,
            stop=found.stop,
            bytes=written.bytes,
            data_bytes=written.bytes - known,
            variable_bytes=sum(bundle.size_of(tensor) for tensor in values.values()),
            write_secs=clock.now() - found.taken,
        )

    def _refuse(self, step: int, bad: list[str]) -> None:
        """Keeps a state that is not finite out of the checkpoints, whatever the outputs were."""
        if bad:
            newest = max(self._parts.store.complete(), default=None)
            raise errors.NonFiniteError(step, bad[0], float("nan"), newest, "variable")


@functools.cache
def _threads(kind: str) -> futures.ThreadPoolExecutor:
    """Returns the threads that all trainers of this process share, one idle one at most of a kind.

    TensorFlow writes through a buffer of 8 MB, which the C library keeps for each thread that ever
    used one: threads of its own for each trainer would leave as much each time.

    Args:
        kind: "writer", or "looker" for what looks for values that are not finite meanwhile: kinds
            apart, so that writers that wait for a looker never take its thread.
    """
    return futures.ThreadPoolExecutor(8, thread_name_prefix=f"checkpoint-{kind}")


os.register_at_fork(after_in_child=_threads.cache_clear)
