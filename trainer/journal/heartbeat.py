"""The sign of life of a run: `heartbeat.json`, replaced as a whole, at most once a second.

Owns the file: one JSON object with `time` (seconds since 1970) and `clock` (monotonic) of the beat,
`process`, `step` (completed steps), `phase` ("step", or the moment at which hooks are called) and
`newest` (step of the newest checkpoint, or null). It tells the next start, and `report`, how far a
run had come that left no other word. Promises that training never waits for it, and goes on where
it cannot be written. Refuses to be read for recovery.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from trainer.checkpoints import files as files_module

NAME = "heartbeat.json"
_EVERY_SECS = 1.0
_MOST_BYTES, _LARGEST = 10_000, 1e15


@contextlib.contextmanager
def beating(folder: str, look: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Writes the file once a second, from a thread, and once more at the end.

    Args:
        folder: the run folder.
        look: returns `step`, `phase` and `newest`; called from that thread.
    """
    files = files_module.for_path(folder)  # its own: faults that tests plant hit checkpoints
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_EVERY_SECS):
            _write(files, folder, look)

    _write(files, folder, look)
    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _write(files, folder, look)


def read(files: files_module.Files, folder: str) -> dict[str, Any] | None:
    """Returns the last beat, or None if there is none that can be read.

    Args:
        files: the file operations.
        folder: the run folder.
    """
    path = files.join(folder, NAME)
    try:
        if files.size(path) > _MOST_BYTES:
            return None
        found = json.loads(files.read(path))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    numbers = [found.get(name) for name in ("time", "step")]
    whole = all(isinstance(n, int | float) and 0 <= n < _LARGEST for n in numbers)  # no NaN is
    return found if whole else None


def _write(files: files_module.Files, folder: str, look: Callable[[], dict[str, Any]]) -> None:
    now = {"time": round(time.time(), 3), "clock": round(time.monotonic(), 3)}
    path, scratch = (files.join(folder, name) for name in (NAME, f"{NAME}.tmp"))
    with contextlib.suppress(Exception):  # whatever fails here must not reach training
        content = json.dumps({**now, "process": os.getpid(), **look()}).encode()
        if not files.atomic_rename:
            files.write(path, content)
            return
        try:
            files.write(scratch, content)
            files.rename(scratch, path)
        except OSError:
            files.remove(scratch)  # on a full disk an empty one would stay
