"""What plain Python attributes hold, in brief.

Owns summaries of numbers, texts, arrays, containers and generators, by which a change shows.
Promises to look at a bounded part of each, so that it costs microseconds. Refuses objects of other
kinds: whether one of those changed cannot be told from outside.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import random
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

_ENDS = 100  # elements looked at, at each end of a container
_ARRAY_BYTES = 1 << 20
_DEEPEST = 5
_SETTINGS = (bool, int, float, str, type(None))
_GENERATORS = (np.random.Generator, np.random.BitGenerator, np.random.RandomState)

OTHER = "not plain"


def settings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those attributes that look like arguments of a constructor: single plain values.

    Args:
        attributes: by name.
    """
    return {name: value for name, value in attributes.items() if type(value) in _SETTINGS}


def summaries(attributes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a summary of each attribute; `OTHER` for those that are not plain."""
    return {name: summary(value) for name, value in attributes}


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the names of plain attributes that hold something else than before, or are new."""
    return [
        name for name, found in now.items() if before.get(name, ()) != found and _is_whole(found)
    ]


def _is_whole(found: Any) -> bool:
    """Tells whether a summary is of plain values alone, at any depth."""
    if isinstance(found, list | tuple):
        return all(_is_whole(part) for part in found)
    return found is not OTHER


def summary(value: Any, depth: int = 0) -> Any:
    """Returns what can be compared in place of a value, or `OTHER`.

    Args:
        value: the value.
        depth: how deep in a container it is.
    """
    kind = type(value)
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        found: Any = kind.__name__, value
    elif kind in (float, complex) or isinstance(value, enum.Enum):
        found = kind.__name__, repr(value)
    elif isinstance(value, np.generic | np.ndarray | tf.Tensor):
        found = _array(value)
    elif isinstance(value, random.Random):
        found = kind.__name__, hash(value.getstate())
    elif isinstance(value, _GENERATORS):
        found = kind.__name__, _state(value)
    elif depth < _DEEPEST:
        found = _of_several(value, depth + 1)
    else:
        found = OTHER
    return found


def _of_several(value: Any, depth: int) -> Any:
    name = type(value).__name__
    if isinstance(value, Mapping):
        keys = _ends(list(value))
        return name, len(value), [(repr(key), summary(value[key], depth)) for key in keys]
    if isinstance(value, set | frozenset):
        return name, len(value), sorted(repr(summary(v, depth)) for v in list(value)[:_ENDS])
    if isinstance(value, list | tuple | collections.deque):
        return name, len(value), [summary(v, depth) for v in _ends(list(value))]
    is_record = dataclasses.is_dataclass(value) or isinstance(value, types.SimpleNamespace)
    if is_record and hasattr(value, "__dict__") and not isinstance(value, type):
        return name, [(key, summary(v, depth)) for key, v in vars(value).items()]
    return OTHER


def _state(value: Any) -> str:
    """Returns the state of one of NumPy's generators."""
    holder = getattr(value, "bit_generator", getattr(value, "_bit_generator", value))
    return repr(holder.state)


def _ends(values: list[Any]) -> list[Any]:
    return values if len(values) <= 2 * _ENDS else values[:_ENDS] + values[-_ENDS:]


def _array(value: Any) -> Any:
    if isinstance(value, tf.Tensor) and not hasattr(value, "numpy"):
        return OTHER
    array = np.asarray(value)
    if array.dtype.hasobject:
        return OTHER
    part = array.reshape(-1)[:: 1 + array.nbytes // _ARRAY_BYTES]
    return array.dtype.str, array.shape, hash(part.tobytes())
