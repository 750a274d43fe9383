"""TensorFlow's tensor bundle: named tensors to files and back.

Owns the writing and reading of `state.index` and `state.data-…` (format:
tensorflow/core/util/tensor_bundle; TensorFlow's tools read it). Promises that a large bundle is on
its way to the disk while it is still being written, and that a failed `fsync` fails the whole
bundle. Refuses to know what the tensors mean.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import tensorflow as tf

Tensors = dict[str, Any]

# From this size on, two halves are written at once, and flushed on the way: one core's worth of
# checksums and copying is slower than a disk (see benchmarks/checkpoints.py). Below it, a second
# file and a thread cost more than they save.
LARGE_BYTES = 16 << 20
_FLUSH_EVERY_SECS = 0.004


def write(prefix: str, tensors: Tensors) -> None:
    """Writes a bundle to the local file system; its files still have to be synced.

    Args:
        prefix: path of the files without what the format appends.
        tensors: name to tensor.

    Raises:
        OSError: flushing failed; the files must not be used, nor synced again.
        tf.errors.OpError: writing failed.
    """
    halves = _halves(tensors)
    if len(halves) == 1:
        save(prefix, tensors)
        return
    parts = [f"{prefix}.part{number}" for number in range(len(halves))]
    with _flushing(os.path.dirname(prefix)), futures.ThreadPoolExecutor(len(halves)) as pool:
        for saved in [pool.submit(save, *job) for job in zip(parts, halves, strict=True)]:
            saved.result()
        with tf.device("CPU:0"):
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=parts, destination_prefix=prefix, delete_old_dirs=False
            )


def save(prefix: str, tensors: Tensors) -> None:
    """Writes a bundle with one data file, through whatever file system the prefix names.

    Args:
        prefix: path of the files without what the format appends.
        tensors: name to tensor.
    """
    names = list(tensors)
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tensors[name] for name in names],
        )


def restore(prefix: str, dtypes: dict[str, Any]) -> Tensors:
    """Reads named tensors of a bundle, all of them or an error.

    Args:
        prefix: path of the files without what the format appends.
        dtypes: name to dtype of the tensors wanted.
    """
    names = list(dtypes)
    with tf.device("CPU:0"):
        values = tf.raw_ops.RestoreV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            dtypes=[dtypes[name] for name in names],
        )
    return dict(zip(names, values, strict=True))


def size_of(tensor: Any) -> int:
    """Returns the bytes of a tensor's values; 0 where that is not known before it is written."""
    if tensor.dtype in (tf.string, tf.variant, tf.resource):
        return 0
    return int(tensor.shape.num_elements()) * int(tensor.dtype.size)


def _halves(tensors: Tensors) -> list[Tensors]:
    """Shares the tensors out by size: two bundles of about the same, or one if it is small."""
    sizes = {name: size_of(tensor) for name, tensor in tensors.items()}
    if sum(sizes.values()) < LARGE_BYTES or len(tensors) < 2:
        return [tensors]
    names: tuple[list[str], list[str]] = ([], [])
    totals = [0, 0]
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        lighter = totals.index(min(totals))
        names[lighter].append(name)
        totals[lighter] += sizes[name]
    return [{name: tensors[name] for name in half} for half in names]


@contextlib.contextmanager
def _flushing(folder: str) -> Iterator[None]:
    """Forces the data files that grow in a folder to the disk, again and again, in a thread."""
    written = threading.Event()
    with futures.ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(_flush_until, written, folder)
        try:
            yield
        finally:
            written.set()
        # The kernel reports a failed write-back to one fsync only: a later one would succeed.
        flushed.result()


def _flush_until(written: threading.Event, folder: str) -> None:
    with contextlib.ExitStack() as stack:
        descriptors: dict[str, int] = {}
        while not written.wait(_FLUSH_EVERY_SECS):
            for name in _data_files(folder):
                if name not in descriptors:
                    with contextlib.suppress(FileNotFoundError):  # renamed since it was listed
                        path = os.path.join(folder, name)
                        descriptors[name] = os.open(path, os.O_RDONLY)
                        stack.callback(os.close, descriptors[name])
            for descriptor in descriptors.values():
                os.fdatasync(descriptor)


def _data_files(folder: str) -> Sequence[str]:
    return [name for name in os.listdir(folder) if ".data-" in name]
