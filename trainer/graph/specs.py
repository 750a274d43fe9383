"""Types of tensors in words.

Owns how a nest of `tf.TypeSpec` is written: `{"image": float32[50, 64], "label": int64[50]}`, None
for a dimension that is not known. Promises one line. Refuses to judge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def written(spec: Any) -> str:
    """Returns a nest of types in one line.

    Args:
        spec: nested `tf.TypeSpec`.
    """
    if isinstance(spec, Mapping):
        inside = (f"{json.dumps(str(key))}: {written(value)}" for key, value in spec.items())
        return "{" + ", ".join(inside) + "}"
    if hasattr(spec, "_fields"):
        inside = (f"{key}={written(getattr(spec, key))}" for key in spec._fields)
        return f"{type(spec).__name__}({', '.join(inside)})"
    if isinstance(spec, tuple | list):
        text = ", ".join(map(written, spec))
        if isinstance(spec, list):
            return f"[{text}]"
        return f"({text},)" if len(spec) == 1 else f"({text})"
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    if dtype is None:
        return repr(spec)
    kind = type(spec).__name__.removesuffix("Spec")
    plain = f"{tf.as_dtype(dtype).name}{_dimensions(shape)}"
    return plain if kind == "Tensor" else f"{kind}({plain})"


def _dimensions(shape: Any) -> str:
    known = tf.TensorShape(shape)
    return "[...]" if known.rank is None else f"[{', '.join(map(str, known.as_list()))}]"
