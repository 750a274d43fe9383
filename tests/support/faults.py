"""File operations that count, and fail or die at a chosen one."""

import errno
import glob
import os
import threading
import time

from trainer.checkpoints import files

CHANGES = {
    *("make_folder", "write", "append", "sync", "sync_folder", "write_bundle"),
    *("rename", "remove", "remove_folder"),
}


class Dead(BaseException):
    """The process would be gone: nothing that catches `Exception` may run on."""


class ShortWriteError(OSError):
    """The disk is full in the middle of an operation: half of what it wrote is there."""

    def __init__(self):
        super().__init__(errno.ENOSPC, "No space left on device")


class Delay(Exception):  # noqa: N818 (no error: the operation is only late)
    """The operation takes a while and succeeds."""


class Files:
    """The local file operations, watched.

    Args:
        at: number of the changing operation, from 1, before which something happens.
        fault: what is raised there.
        persistent: whether it is raised at every later operation too.
        watch: called after each changing operation with its name and arguments.
    """

    def __init__(self, at=None, fault=Dead, persistent=True, watch=None):
        self._files = files.LocalFiles()
        self._at, self._fault, self._persistent = at, fault, persistent
        self._watch = watch
        self.atomic_rename = True
        self.log = []

    def __getattr__(self, name):
        operation = getattr(self._files, name)
        if name not in CHANGES:
            return operation

        def watched(*arguments):
            self.log.append((name, arguments))
            due = self._at is not None and len(self.log) >= self._at
            if due and (self._persistent or len(self.log) == self._at):
                self._fail(operation, name, arguments)
            result = operation(*arguments)
            if self._watch:
                self._watch(name, arguments)
            return result

        return watched

    def _fail(self, operation, name, arguments):
        if isinstance(self._fault, Delay):
            time.sleep(0.001)
            return
        if isinstance(self._fault, ShortWriteError) and name in ("write", "append", "write_bundle"):
            operation(*arguments)
            for path in glob.glob(glob.escape(arguments[0]) + "*"):
                os.truncate(path, os.path.getsize(path) // 2)
        raise self._fault


class Held(Files):
    """File operations that stand still, or are slow, before they write a bundle.

    Args:
        at: number of the bundle, from 1, that waits until `go` is set; the others pass.
    """

    def __init__(self, at):
        super().__init__()
        self._held, self._bundles = at, 0
        self.reached, self.go = threading.Event(), threading.Event()

    def write_bundle(self, prefix, tensors, streams):
        self._bundles += 1
        if self._bundles == self._held:
            self.reached.set()
            assert self.go.wait(60), "nobody let the save go"
        self._files.write_bundle(prefix, tensors, streams)
