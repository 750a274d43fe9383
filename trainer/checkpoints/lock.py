"""One writer per run folder.

Owns the file `LOCK`. Promises that of all processes on one file system one at a time owns a folder,
that the kernel gives the lock back when its owner dies however it dies, and that constructing again
in the same process fences the older owner. Refuses to lock what is not a local folder: there the
file only tells who writes.

Format: one JSON object with `host`, `process`, `since` (local time, for display) and `started` (the
kernel's start time of the process in clock ticks: a process number can be used again).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator

from trainer import errors
from trainer.base.log import LOG
from trainer.checkpoints import file_names

_owned: dict[tuple[int, int], Lock] = {}  # device and inode of each folder locked by this process


class Lock:
    """The ownership of one local folder.

    Args:
        folder: an existing local folder.

    Raises:
        ModelDirInUseError: another process owns it.
    """

    def __init__(self, folder: str):
        self._folder = folder
        self._fenced = False
        self._busy = threading.RLock()
        self._descriptor: int
        status = os.stat(folder)
        self._key = (status.st_dev, status.st_ino)
        older = _owned.pop(self._key, None)
        if older is not None:
            with older._busy:  # a save that it has begun is whole before it is locked out
                older._fenced = True
            self._descriptor = older._descriptor
        else:
            self._descriptor = self._acquire()
        _owned[self._key] = self
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(_identity()).encode(), 0)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps a newer object of this process from taking over while a save is being written.

        Raises:
            ModelDirInUseError: this object no longer owns the folder.
        """
        with self._busy:
            self.check()
            yield

    def check(self) -> None:
        """Raises `ModelDirInUseError` if this object no longer owns the folder."""
        if self._fenced:
            raise errors.ModelDirInUseError(
                f"a newer trainer of this process has taken over {self._folder}; use that one"
            )
        if _owned.get(self._key) is not self:
            raise errors.ModelDirInUseError(
                f"this trainer of {self._folder} was closed; construct it again to go on"
            )
        try:
            there = os.stat(os.path.join(self._folder, file_names.LOCK)).st_ino
        except OSError:
            there = None
        if there != os.fstat(self._descriptor).st_ino:
            raise errors.ModelDirInUseError(
                f"{self._folder} was moved, removed or taken over while this trainer owned it; "
                "nothing was written there; construct the trainer again"
            )

    def release(self) -> None:
        """Gives the folder back; the second call does nothing."""
        if _owned.get(self._key) is self:
            del _owned[self._key]
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)

    def _acquire(self) -> int:
        path = os.path.join(self._folder, file_names.LOCK)
        descriptor = _open(path)
        try:
            former = _read_owner(descriptor)
            if not _try_lock(descriptor):
                if not _is_dead(former):
                    raise errors.ModelDirInUseError(_in_use(self._folder, former))
                # The owner died and a child that it forked still holds the descriptor: the file
                # is replaced, the child keeps a lock on nothing.
                os.unlink(path)
                os.close(descriptor)
                descriptor = _open(path)
                if not _try_lock(descriptor):
                    raise errors.ModelDirInUseError(_in_use(self._folder, former))
        except BaseException:
            os.close(descriptor)
            raise
        if former:
            owner = _owner_text(former)
            LOG.info("took over %s from %s, which ended without closing it", self._folder, owner)
        return descriptor


def living_owner(folder: str) -> dict[str, object] | None:
    """Returns who owns a folder, as far as its record tells and without asking for the lock.

    Args:
        folder: the run folder.
    """
    try:
        descriptor = os.open(os.path.join(folder, file_names.LOCK), os.O_RDONLY)
    except OSError:
        return None
    try:
        owner = _read_owner(descriptor)
    finally:
        os.close(descriptor)
    return owner if owner and not _is_dead(owner) else None


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _identity() -> dict[str, object]:
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "started": _started(os.getpid()),
    }


def _read_owner(descriptor: int) -> dict[str, object]:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _is_dead(owner: dict[str, object]) -> bool:
    if owner.get("host") != socket.gethostname() or not isinstance(owner.get("process"), int):
        return False
    return _started(int(str(owner["process"]))) != owner.get("started")


def _started(process: int) -> str | None:
    """Returns the kernel's start time of a process, or None if there is no such process."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]  # field 22 of proc(5)
    except OSError:
        return None


def _owner_text(owner: dict[str, object]) -> str:
    return f"process {owner.get('process')} on {owner.get('host')} (since {owner.get('since')})"


def _in_use(folder: str, owner: dict[str, object]) -> str:
    return (
        f"{folder} is in use by {_owner_text(owner) if owner else 'another process'}; "
        "wait until it ends, end it, or use another model_dir"
    )
