"""The way to a variable that no attribute path leads to.

Owns the search through whatever Python objects are made of: containers of every kind, plain
objects, functions. Promises to say where on the way the first thing stands that the search for
state does not look into. Refuses to be quick: it is for the text of an error.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.graph import inspection

_MOST_OBJECTS = 200_000
_LEAVES = (str, bytes, int, float, complex, type, types.ModuleType, np.ndarray, np.generic)
_LEAVES_OF_TENSORFLOW = (tf.Tensor, tf.Graph, tf.DType, tf.TensorShape, tf.TypeSpec)


@dataclasses.dataclass(frozen=True)
class Way:
    """How a variable can be reached.

    Args:
        path: such as "queue[0].weight".
        holder: the part of it up to the first thing that is not looked into; the whole of it if
            there is none.
        kind: what that thing is, such as "deque"; empty if there is none.
    """

    path: str
    holder: str
    kind: str


def way_to(handle: int, roots: Mapping[str, Any]) -> Way | None:
    """Returns the shortest way from named objects to the variable with a handle, or None.

    Args:
        handle: id of the handle.
        roots: the objects by name.
    """
    left = collections.deque((value, Way(name, name, "")) for name, value in roots.items())
    seen: dict[int, Any] = {}  # holds on to each object, so that no id is used twice
    while left and len(seen) < _MOST_OBJECTS:
        value, way = left.popleft()
        if id(value) in seen or isinstance(value, _LEAVES + _LEAVES_OF_TENSORFLOW):
            continue
        seen[id(value)] = value
        inner = getattr(value, "value", None) if _is_of_keras(value) else value
        if isinstance(inner, tf.Variable):
            if handle in inspection.handles([inner]):
                return way if way.kind else dataclasses.replace(way, holder=way.path)
            continue
        for step, child, kind in _children(value):
            hidden = (way.holder, way.kind) if way.kind else (way.path, kind)
            left.append((child, Way(way.path + step, *hidden)))
    return None


def _children(value: Any) -> Iterator[tuple[str, Any, str]]:
    """Yields what an object holds: how it is written, itself, and what hides it, if anything."""
    name = type(value).__name__
    if isinstance(value, Mapping):
        for key, child in list(value.items()):
            known = isinstance(key, str | int)
            yield f"[{key!r}]", child, "" if known else f"{name} with a {type(key).__name__} as key"
    elif isinstance(value, list | tuple | collections.deque):
        hides = name if isinstance(value, collections.deque) else ""
        yield from ((f"[{number}]", child, hides) for number, child in enumerate(list(value)))
    elif isinstance(value, set | frozenset):
        yield from (("{...}", child, name) for child in list(value))
    elif isinstance(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
        yield from ((f" > {free}", cell.cell_contents, name) for free, cell in cells if _full(cell))
    elif isinstance(value, types.CellType):
        yield from (("", value.cell_contents, "") for _ in [0] if _full(value))
    elif isinstance(value, types.MethodType):
        yield from ((".__self__", value.__self__, name), (".__func__", value.__func__, name))
    elif isinstance(value, functools.partial):
        parts = {"func": value.func, "args": value.args, "keywords": value.keywords}
        yield from ((f".{key}", child, name) for key, child in parts.items())
    elif isinstance(value, weakref.ref):
        yield "()", value(), name
    else:
        plain = not isinstance(value, tf.Module | tf.__internal__.tracking.AutoTrackable)
        hides = name if plain and not _is_of_keras(value) else ""
        slots = [s for c in type(value).__mro__ for s in getattr(c, "__slots__", ())]
        for key in [*inspection.vars_of(value), *slots]:
            yield f".{key}", inspection.vars_of(value).get(key, getattr(value, key, None)), hides


def _full(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _is_of_keras(value: Any) -> bool:
    return any(cls.__module__.split(".")[0] in ("keras", "tf_keras") for cls in type(value).__mro__)
