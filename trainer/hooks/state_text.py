"""The state of a hook as text, and back.

Owns the format. Promises that what comes back equals what went in, type and dtype included, and
that plain JSON (texts, whole and finite numbers, true, false, null, lists, objects with texts as
keys) is written as plain JSON, in the order it came in. Refuses any other type, by its place in the
state, and to run code that a text names: nothing is pickled.

Whatever JSON has no word for is an object with the key "~type":

    tuple, set, frozenset, deque    "items", and "maxlen" of a deque
    dict, OrderedDict               "items": pairs of key and value
    float                           "value": "nan", "inf" or "-inf"
    int                             "hex": one of thousands of digits
    complex                         "value": real and imaginary part
    bytes, bytearray                "base64"
    array, scalar, tensor           "dtype", "shape", and "value" if it is short, else "base64" of
                                    the bytes (an array of columns has "order": "F")
"""

from __future__ import annotations

import base64
import collections
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

_TAG = "~type"
_SHORT = 64  # elements of an array that are written as numbers
_LONG_INT_BITS = 10_000  # Python refuses to read longer ones as digits
_SERIES = (list, tuple, set, frozenset, collections.deque)
_ADVICE = (
    "return numbers, texts, bytes, lists, tuples, sets, dicts, NumPy arrays and tensors of plain "
    "dtypes; or hold a tf.Variable as an attribute of the hook, which is saved without get_state"
)


class UnkeptError(ValueError):
    """A state holds what this format has no word for."""


def encode(key: str, state: Any) -> str:
    """Returns the text of a hook's state.

    Args:
        key: of the hook, for the message.
        state: what its `get_state` returned.

    Raises:
        UnkeptError: it is no dict, or holds what cannot be kept; the text names the place.
    """
    if not isinstance(state, dict):
        raise UnkeptError(f"get_state of hook {key} returned {state!r}; return a dict")
    try:
        return json.dumps(_encode(state, "state"), allow_nan=False)
    except _NoWordError as error:
        raise UnkeptError(f"get_state of hook {key}: {error}; {_ADVICE}") from None
    except RecursionError:
        raise UnkeptError(
            f"get_state of hook {key}: the state holds itself, or is nested too deep; {_ADVICE}"
        ) from None


def decode(text: bytes | str) -> dict[str, Any]:
    """Returns the state that a text of `encode` holds; plain JSON is its own meaning.

    Args:
        text: the text.

    Raises:
        ValueError: it is no such text, or one of a newer version.
    """
    try:
        state = json.loads(text, object_hook=_decode)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the text is damaged ({error!r})") from error
    if not isinstance(state, dict):
        raise ValueError(f"it is {type(state).__name__} and no dict")
    return state


class _NoWordError(Exception):
    """A value that the format has no word for."""


def _encode(value: Any, place: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return _PLAIN[kind](value)
    if kind in (dict, collections.OrderedDict):
        return _encode_mapping(value, kind, place)
    if kind in _SERIES:
        items = [_encode(v, f"{place}[{n}]") for n, v in enumerate(value)]
        if kind in (set, frozenset):  # their order is that of hashes, another in each process
            items.sort(key=json.dumps)
        more = {"maxlen": value.maxlen} if kind is collections.deque else {}
        if kind is list:
            return items
        return {_TAG: kind.__name__, **more, "items": items}
    if kind is np.ndarray or isinstance(value, np.generic):
        return _encode_array(value, place)
    return _encode_tensor(value, place)


def _encode_mapping(value: Mapping[Any, Any], kind: type, place: str) -> dict[str, Any]:
    items = {key: _encode(v, f"{place}[{key!r}]") for key, v in value.items()}
    if kind is dict and _TAG not in items and all(type(key) is str for key in items):
        return items
    pairs = [[_encode(key, f"key {key!r} of {place}"), item] for key, item in items.items()]
    return {_TAG: kind.__name__, "items": pairs}


def _encode_int(value: int) -> Any:
    return {_TAG: "int", "hex": hex(value)} if value.bit_length() > _LONG_INT_BITS else value


def _encode_float(value: float) -> Any:
    return value if math.isfinite(value) else {_TAG: "float", "value": str(value)}


def _encode_complex(value: complex) -> Any:
    parts = [_encode_float(value.real), _encode_float(value.imag)]
    return {_TAG: "complex", "value": parts}


def _encode_bytes(value: bytes | bytearray) -> Any:
    return {_TAG: type(value).__name__, "base64": base64.b64encode(value).decode()}


def _itself(value: Any) -> Any:
    return value


_PLAIN: dict[type, Callable[[Any], Any]] = {
    type(None): _itself,
    bool: _itself,
    str: _itself,
    int: _encode_int,
    float: _encode_float,
    complex: _encode_complex,
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
}


def _encode_array(value: Any, place: str) -> dict[str, Any]:
    array = np.asarray(value)
    name = array.dtype.name if _is_ml(array.dtype.name) else array.dtype.str
    found: dict[str, Any] = {_TAG: "array", "dtype": name, "shape": list(array.shape)}
    if array.dtype.hasobject or array.dtype.names or array.dtype.subdtype:
        raise _no_word(value, place)
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        found["order"] = "F"  # sums go by the order in memory
    if isinstance(value, np.generic):
        found[_TAG] = "scalar"
    if _is_short(array):
        found["value"] = array.tolist()
    else:
        raw = array.tobytes(order="F" if "order" in found else "C")
        found["base64"] = base64.b64encode(raw).decode()
    back = _array(found)
    same_type = back.dtype == array.dtype and type(back[()]) is type(array[()])
    if not same_type or (isinstance(value, np.generic) and type(back[()]) is not type(value)):
        raise _no_word(value, place)
    if array.dtype.kind in "US" and not np.array_equal(back, array):
        raise _no_word(value, place)
    if isinstance(value, str | bytes) and back[()] != value:  # NumPy drops zeros at an end
        raise _no_word(value, place)
    return found


def _encode_tensor(value: Any, place: str) -> dict[str, Any]:
    if not (isinstance(value, tf.Tensor) and hasattr(value, "numpy")):
        raise _no_word(value, place)
    found: dict[str, Any] = {_TAG: "tensor", "dtype": value.dtype.name, "shape": list(value.shape)}
    if value.dtype in (tf.resource, tf.variant):
        raise _no_word(value, place)
    small = not (value.dtype.is_complex or value.dtype.is_quantized or value.dtype == tf.string)
    array = np.asarray(value) if small else None
    if array is not None and _is_short(array):
        return {**found, "value": array.tolist()}
    serialized = bytes(tf.io.serialize_tensor(value).numpy())
    return {**found, "base64": base64.b64encode(serialized).decode()}


def _no_word(value: Any, place: str) -> _NoWordError:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    dtype = getattr(value, "dtype", None)
    of = f" of dtype {dtype.name}" if isinstance(dtype, np.dtype | tf.DType) else ""
    return _NoWordError(f"{place} is a {name}{of}, which cannot be kept")


def _decode(found: dict[str, Any]) -> Any:
    if _TAG not in found:
        return found
    kind = found[_TAG]
    if kind not in _READERS:
        raise ValueError(f"it holds a {kind!r}, which this version does not know")
    return _READERS[kind](found)


def _array(found: dict[str, Any]) -> Any:
    name, shape = found["dtype"], found["shape"]
    dtype = np.dtype(getattr(ml_dtypes, name) if _is_ml(name) else name)
    if "value" in found:
        array = np.array(found["value"], dtype).reshape(shape)
        return np.asfortranarray(array) if "order" in found else array
    raw = bytearray(base64.b64decode(found["base64"]))
    return np.ndarray(shape, dtype, buffer=raw, order=found.get("order", "C"))


def _tensor(found: dict[str, Any]) -> Any:
    dtype = tf.as_dtype(found["dtype"])
    if "value" in found:
        return tf.constant(found["value"], dtype, shape=found["shape"])
    return tf.io.parse_tensor(base64.b64decode(found["base64"]), dtype)


def _is_short(array: Any) -> bool:
    """Tells whether an array can be written as a few numbers, each exactly."""
    exact = array.dtype.kind in "biuf" and array.dtype.itemsize <= 8
    few = exact and array.size <= _SHORT and not _is_ml(array.dtype.name)
    return few and bool(np.isfinite(array).all())


def _is_ml(name: str) -> bool:
    """Tells whether a dtype is one that NumPy itself does not have, such as bfloat16."""
    return isinstance(getattr(ml_dtypes, name, None), type)


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tuple": lambda found: tuple(found["items"]),
    "set": lambda found: set(found["items"]),
    "frozenset": lambda found: frozenset(found["items"]),
    "deque": lambda found: collections.deque(found["items"], found["maxlen"]),
    "dict": lambda found: dict(found["items"]),
    "OrderedDict": lambda found: collections.OrderedDict(found["items"]),
    "float": lambda found: float(found["value"]),
    "int": lambda found: int(found["hex"], 16),
    "complex": lambda found: complex(*found["value"]),
    "bytes": lambda found: base64.b64decode(found["base64"]),
    "bytearray": lambda found: bytearray(base64.b64decode(found["base64"])),
    "array": _array,
    "scalar": lambda found: _array(found)[()],
    "tensor": _tensor,
}
