"""Bounded samples of arrays and files.

Owns how much of the data is looked at. Promises a time that does not grow with the data: some
thousand places of an array, the ends of some hundred files. Refuses to vouch for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.fingerprint import forms

_WHOLE_BYTES = 1 << 16
_PLACES, _PLACE_BYTES = 256, 256
_MOST_FILES, _END_BYTES = 200, 512

# Those whose memory TensorFlow lends to Python; it ends the process when asked for another's.
_LENT = {
    *(tf.float16, tf.float32, tf.float64, tf.complex64, tf.complex128, tf.bool),
    *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
}


def array(tensor: Any) -> str:
    """Returns the dtype, the shape and a digest of a sample of an eager tensor.

    Args:
        tensor: no resource, no variant and no text.
    """
    if tensor.dtype in _LENT and tensor.shape.num_elements():
        flat = np.frombuffer(memoryview(tensor), np.uint8)
    else:
        flat = np.frombuffer(tensor.numpy().tobytes(), np.uint8)
    if flat.size > _WHOLE_BYTES:
        starts = np.linspace(0, flat.size - _PLACE_BYTES, _PLACES).astype(np.int64)
        flat = np.concatenate([flat[start : start + _PLACE_BYTES] for start in starts])
    values = forms.digest(flat.tobytes()).hex()[:8]
    return forms.array_text(tensor.dtype.name, tensor.shape.as_list(), values)


def spread(values: Sequence[Any]) -> list[Any]:
    """Returns the values, or as many as are looked at, at equal distances."""
    if len(values) <= _MOST_FILES:
        return list(values)
    return [values[int(place)] for place in np.linspace(0, len(values) - 1, _MOST_FILES)]


def is_file(path: str) -> bool:
    """Tells whether a text is the path of a local file."""
    return 0 < len(path) < 4096 and "\0" not in path and os.path.isfile(path)


def file(path: str) -> tuple[int, str]:
    """Returns the size of a file, and what it is known by whatever its name is: its size and ends.

    Args:
        path: a local file, or the address of one that is only known by its name.
    """
    name = os.path.basename(path)
    try:
        with open(path, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            content = opened.read(_END_BYTES)
            opened.seek(max(0, size - _END_BYTES))
            content += opened.read(_END_BYTES)
    except OSError:
        return 0, forms.digest(b"named", name.encode()).hex()[:6]
    return size, forms.digest(str(size).encode(), content).hex()[:6]
