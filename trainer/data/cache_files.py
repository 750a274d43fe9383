"""The files that `cache(filename)` writes while the first pass over a pipeline is drawn.

Owns the finding of such stages, and what a process that was killed in that pass leaves: a lock file
that TensorFlow never passes again. Promises to remove it only where the process that made it was
this program's and is gone: each holds a file lock beside the cache as long as it lives. Refuses to
touch a complete cache, or one of another program.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
from typing import Any

import tensorflow as tf

from trainer.base.log import LOG
from trainer.data import stages
from trainer.graph import inspection

UNKNOWN = "?"
_MEMORY = ""  # a cache without a file
_held: dict[str, int] = {}


def named(dataset: tf.data.Dataset) -> list[str]:
    """Returns the files of a pipeline's caches; `UNKNOWN` where the data name one."""
    files: list[str] = []
    for stage in stages.walk(dataset):
        name = getattr(stage, "_filename", None)
        if type(stage).__name__.strip("_").startswith("CacheDataset") and name is not None:
            files.append(os.fsdecode(name.numpy()))
        for function in stages.functions(stage):
            for op_type, _, _, operation in inspection.operations(function.graph):
                if op_type.startswith("CacheDataset"):
                    files.append(_constant(operation))
    return list(dict.fromkeys(name for name in files if name != _MEMORY))


def free(dataset: tf.data.Dataset) -> None:
    """Removes the lock files that a killed process of this program left in a pipeline's caches."""
    for name in named(dataset):
        if name != UNKNOWN and "://" not in name:
            _free(os.path.abspath(name))


def _free(name: str) -> None:
    locks = glob.glob(f"{glob.escape(name)}_*.lockfile")
    ours = f"{name}.owner"
    if locks and not os.path.exists(ours):
        LOG.warning(
            "cache(%r): %s exists, made by another program or one that was killed; if none writes "
            "this cache now, remove that file, or the first batch will fail",
            *(name, locks[0]),
        )
        return
    if not _hold(ours) or not locks:
        return
    for path in [*locks, *glob.glob(f"{glob.escape(name)}_*.tempstate*")]:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    LOG.warning(
        "cache(%r): a process that is gone left it half written; removed what it left (%s): it is "
        "written anew",
        *(name, ", ".join(os.path.basename(path) for path in locks)),
    )


def _constant(operation: Any) -> str:
    """Returns the file that a cache in a function was given."""
    given = operation.inputs[1].op if operation is not None else None
    if given is None or given.type != "Const":
        return UNKNOWN
    return os.fsdecode(tf.make_ndarray(given.get_attr("value")).item())


def _hold(path: str) -> bool:
    """Takes the lock beside a cache for the life of this process; False if it cannot be had."""
    if path in _held:
        return True
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    _held[path] = file
    return True
