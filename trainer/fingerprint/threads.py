"""The number of threads that one operation runs on: the run's, not the machine's.

Owns how many TensorFlow uses, and setting it before TensorFlow's first operation. It decides the
bits: a sum that two threads share is another one than that of one thread, on whatever number of
processors. So a run keeps the number that it began with, and a machine of another size goes on with
it. Promises to read the number from the newest manifest without a tensor or a lock. Refuses to
change it where TensorFlow has begun: it cannot be changed then, and that is said.
"""

from __future__ import annotations

import os
import re

import tensorflow as tf
from tensorflow.python.eager import context

from trainer.base.log import LOG
from trainer.checkpoints import file_names, folder

KEY = "intra-op threads"
_KEPT = re.compile(rb'"intra-op threads": (\d+)')


def used() -> int:
    """Returns how many threads TensorFlow shares an operation among, or would.

    As TensorFlow counts them: the number that was set, else that of the environment, else the
    processors that this process may use (tensorflow/core/common_runtime/local_device.cc).
    """
    asked = int(tf.config.threading.get_intra_op_parallelism_threads())
    return asked or _of_environment() or _processors()


def adopt(model_dir: str, asked: int | None) -> None:
    """Has TensorFlow use the number that the run began with, or the one that is asked for.

    Args:
        model_dir: folder of the run.
        asked: the number; None: as the run began, and for a new run as TensorFlow chooses.
    """
    if not context.context()._initialized:
        wanted = asked or kept(model_dir)
        if wanted is not None and wanted != used():
            tf.config.threading.set_intra_op_parallelism_threads(wanted)
    elif asked is not None and asked != used():
        LOG.warning(
            "intra_op_threads=%d cannot be had, TensorFlow runs with %d: it was used before the "
            "trainer was made. %s",
            *(asked, used(), advice(asked)),
        )


def advice(wanted: int) -> str:
    """Returns what to do to have so many threads where TensorFlow has begun with others."""
    return (
        "Make datasets, tensors and models in build() and train_dataset(), or start the program "
        f"with TF_NUM_INTRAOP_THREADS={wanted}"
    )


def kept(model_dir: str) -> int | None:
    """Returns the number in the newest manifest that names one, or None.

    Args:
        model_dir: folder of a run; it need not exist.
    """
    checkpoints = folder.Folder(model_dir)
    try:
        steps = checkpoints.numbered()
    except (OSError, tf.errors.OpError):
        return None  # no folder yet, or one that construction will speak of
    for step in reversed(steps):
        path = checkpoints.files.join(checkpoints.path(step), file_names.MANIFEST)
        try:
            found = _KEPT.search(checkpoints.files.read(path))
        except (OSError, tf.errors.OpError):
            continue  # damaged: recovery falls back in the same way
        if found:
            return int(found[1])
    return None


def _of_environment() -> int:
    text = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    return int(text) if text.isdigit() else 0


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
