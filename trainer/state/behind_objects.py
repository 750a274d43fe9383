"""Variables behind objects that discovery does not look into.

Owns the search for them. Promises to say where each is. Refuses to have them saved: an object of an
unknown class gives no names that last.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from trainer.state import discovery

_MOST_OBJECTS, _DEEPEST = 2000, 4
_KNOWN = ("builtins", "tensorflow", "keras", "tf_keras", "numpy", "sonnet", "trainer", "logging")


def search(attributes: Iterable[tuple[str, Any]], known: set[int]) -> dict[str, Any]:
    """Returns path to variable of those that are out of reach.

    Args:
        attributes: names and objects.
        known: ids of the variables that are saved.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for name, value in attributes:
        for path, variable in _walk(name, value, seen, hidden=False):
            if id(variable) not in known:
                known = known | {id(variable)}
                found[path] = variable
    return found


def _walk(
    path: str, value: Any, seen: set[int], *, hidden: bool, depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yields variables behind a value; `hidden`: it is behind what discovery does not look into."""
    if depth > _DEEPEST or id(value) in seen or len(seen) > _MOST_OBJECTS:
        return
    if isinstance(value, str | bytes | int | float | type(None) | type | types.ModuleType):
        return
    if isinstance(value, tf.Variable):  # not counted: there may be thousands, each with a name
        if hidden:
            yield path, value
        return
    seen.add(id(value))
    opaque = True
    if isinstance(value, Mapping):
        opaque = False
        children = [(f"{path}[{key!r}]", child) for key, child in list(value.items())]
    elif isinstance(value, list | tuple | set | frozenset):
        opaque = isinstance(value, set | frozenset)
        children = [(f"{path}[{n}]", child) for n, child in enumerate(value)]
    elif isinstance(value, functools.partial):
        children = [(f"{path}.args[{n}]", child) for n, child in enumerate(value.args)]
    elif isinstance(value, types.MethodType):
        children = [(f"{path}.__self__", value.__self__)]
    elif _is_plain(value):
        children = [(f"{path}.{key}", v) for key, v in vars(value).items() if key.isidentifier()]
    else:
        found = discovery.discover([(path, value)]).entries if hidden else []
        yield from ((entry.name, entry.variable) for entry in found)
        return
    for place, child in children:
        yield from _walk(place, child, seen, hidden=hidden or opaque, depth=depth + 1)


def _is_plain(value: Any) -> bool:
    """Tells whether an object is of a class that only the program knows."""
    roots = {cls.__module__.split(".")[0] for cls in type(value).__mro__ if cls is not object}
    return hasattr(value, "__dict__") and not roots & set(_KNOWN)
