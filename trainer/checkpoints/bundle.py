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
from concurrent import futures
from typing import Any

import tensorflow as tf

Tensors = dict[str, Any]

# Below this size a second file, and flushing on the way, cost more than they save.
LARGE_BYTES = 16 << 20
_FLUSH_EVERY_SECS = 0.001


def write(prefix: str, tensors: Tensors, streams: int = 1) -> None:
    """Writes a bundle to the local file system; its files still have to be synced.

    One stream is slower than a disk: copying and checksums keep a core busy. Two take two cores and
    some megabytes more, so they are for saves that somebody waits for (see
    benchmarks/checkpoints.py).

    Args:
        prefix: path of the files without what the format appends.
        tensors: name to tensor.
        streams: data files to write at once, 1 or 2; a small bundle is written as one.

    Raises:
        OSError: flushing failed; the files must not be used, nor synced again.
        tf.errors.OpError: writing failed.
    """
    sizes = {name: size_of(tensor) for name, tensor in tensors.items()}
    if sum(sizes.values()) < LARGE_BYTES:
        save(prefix, tensors)
        return
    if streams == 1 or len(tensors) < 2:
        _save_and_flush(prefix, tensors)
        return
    parts = [f"{prefix}.part{number}" for number in range(2)]
    halves = [{name: tensors[name] for name in half} for half in _halves(sizes)]
    with futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(_save_and_flush, parts[1], halves[1])
        _save_and_flush(parts[0], halves[0])
        other.result()
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
    if tensor.dtype == tf.string:
        return sum(map(len, tensor.numpy().ravel())) if tensor.shape.rank else len(tensor.numpy())
    if tensor.dtype in (tf.variant, tf.resource):
        return 0
    return int(tensor.shape.num_elements()) * int(tensor.dtype.size)


def _halves(sizes: dict[str, int]) -> tuple[list[str], list[str]]:
    """Shares names out so that the sizes of both halves are about the same."""
    halves: tuple[list[str], list[str]] = ([], [])
    totals = [0, 0]
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        lighter = totals.index(min(totals))
        halves[lighter].append(name)
        totals[lighter] += sizes[name]
    return halves


def _save_and_flush(prefix: str, tensors: Tensors) -> None:
    """Writes a bundle while another thread forces what is written so far to the disk."""
    written = threading.Event()
    with futures.ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(_flush_until, written, prefix)
        try:
            save(prefix, tensors)
        finally:
            written.set()
        # The kernel reports a failed write-back to one fsync only: a later one would succeed.
        flushed.result()


def _flush_until(written: threading.Event, prefix: str) -> None:
    """Syncs a bundle's data file over and over, from when it appears to after its last byte."""
    descriptor = None
    try:
        while not written.wait(_FLUSH_EVERY_SECS):
            if descriptor is None:
                descriptor = _open_data(prefix)
            else:
                os.fdatasync(descriptor)
        if descriptor is not None:
            os.fdatasync(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open_data(prefix: str) -> int | None:
    """Opens the data file, which has a passing name until it is complete."""
    folder, base = os.path.split(prefix)
    for name in os.listdir(folder):
        if name.startswith(f"{base}.data-"):
            with contextlib.suppress(FileNotFoundError):  # renamed since it was listed
                return os.open(os.path.join(folder, name), os.O_RDONLY)
    return None
