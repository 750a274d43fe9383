"""Finding state: from an object to named variables.

Owns the walk over attributes and the rules for names. Promises that a name depends on the program's
structure alone, never on how many objects the process made before. Refuses to guess: a variable
behind an object that it does not know (a plain class, a set) is not found, and the coverage check
says so.

Names are attribute paths joined by "/". Leading underscores are dropped. Two rules bend that for
objects whose attributes are not what a user wrote:

- A layer of a Sequential or functional Keras model goes by its name without Keras's automatic
  number, and gets one by its order in that model: `model/dense/kernel`, `model/dense_1/kernel`.
- A slot of an optimizer goes by the variable that it belongs to, relative to the attribute that all
  variables of this optimizer hang from: `optimizer/adam/dense/kernel/momentum`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from trainer.graph import metrics

_KERAS = ("keras", "tf_keras")

# The Keras classes whose attributes are walked; Keras's own containers and graph nodes are not.
_KERAS_WALKED = ("Layer", "Metric", "SeedGenerator", "BaseOptimizer", "Optimizer", "OptimizerV2")
_OPTIMIZERS = ("BaseOptimizer", "Optimizer", "OptimizerV2")

# Keras's own lists of what is found under better names, and counters that no step uses.
_BOOKKEEPING = {
    *("_layers", "_functional", "_operations", "_operations_by_depth", "_nodes", "_metrics"),
    *("_seed_generators", "_tracker", "_tracked", "_variables", "_weights", "_slots"),
    *("_trainable_variables", "_non_trainable_variables", "_trainable_weights"),
    *("_non_trainable_weights", "_checkpoint", "_training_state"),
    *("_train_counter", "_test_counter", "_predict_counter"),
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One named variable.

    Args:
        name: attribute path.
        variable: the `tf.Variable`.
        kind: "variable", "optimizer", "metric" or "seed": a warm start takes the first only.
    """

    name: str
    variable: tf.Variable
    kind: str


@dataclasses.dataclass(frozen=True)
class Found:
    """What a walk came across.

    Args:
        entries: every variable, in the order of the walk.
        optimizers: names and Keras optimizers.
    """

    entries: list[Entry]
    optimizers: list[tuple[str, Any]]


def discover(attributes: Iterable[tuple[str, Any]]) -> Found:
    """Returns every variable and optimizer reachable from named objects.

    Args:
        attributes: names and objects, walked in this order; a variable reachable in two ways has
            the name found first.
    """
    walk = _Walk()
    for name, value in attributes:
        walk.visit(name, value, "variable")
    walk.name_slots()
    return Found(walk.entries, walk.optimizers)


def variable_of(value: Any) -> tf.Variable | None:
    """Returns the `tf.Variable` that a value is or wraps, or None."""
    if isinstance(value, tf.Variable):
        return value
    if _is_a(value, "Variable", _KERAS):
        inner = value.value
        return inner if isinstance(inner, tf.Variable) else None
    return None


class _Walk:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._seen: dict[int, Any] = {}  # holds on to each object, so that no id is used twice
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self.optimizers: list[tuple[str, Any]] = []

    def visit(self, name: str, value: Any, kind: str) -> None:
        if isinstance(value, metrics.Metric):
            value = value.metric
        variable = variable_of(value)
        if variable is not None:
            self._add(name, variable, kind)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        kind = _kind(value) or kind
        for key, child in self._children(name, value):
            self.visit(f"{name}/{key}", child, kind)

    def name_slots(self) -> None:
        """Names the optimizers' slots, now that the variables they belong to have names."""
        for name, optimizer in self.optimizers:
            slots = list(_slots(optimizer, self.entries))
            paths = _without_shared_head([self._name_of(owner) for owner, _, _ in slots])
            for path, (_, key, variable) in zip(paths, slots, strict=True):
                self._add(f"{name}/{_plain_name(optimizer)}/{path}/{key}", variable, "optimizer")
        for name, optimizer in self.optimizers:
            for number, leftover in enumerate(_listed(optimizer)):
                self.visit(f"{name}/variables/{number}", leftover, "optimizer")

    def _name_of(self, value: Any) -> str:
        return self._names.get(id(variable_of(value)), "unnamed")

    def _add(self, name: str, variable: tf.Variable, kind: str) -> None:
        if id(variable) in self._seen:
            return
        self._seen[id(variable)] = variable
        unique, number = name, 0
        while unique in self._taken:
            number += 1
            unique = f"{name}_{number}"
        self._taken.add(unique)
        self._names[id(variable)] = unique
        self.entries.append(Entry(unique, variable, kind))

    def _children(self, name: str, value: Any) -> Iterable[tuple[str, Any]]:
        if isinstance(value, Mapping | list | tuple):
            return _items(value)
        if isinstance(value, tf.random.Generator):
            return [("state", value.state)]
        if _is_optimizer(value):
            self.optimizers.append((name, value))
            return [(k, v) for k, v in _attributes(value) if not isinstance(v, list | tuple)]
        if _is_keras(value):
            return _keras_children(value)
        if isinstance(value, tf.Module | tf.__internal__.tracking.AutoTrackable):
            return _attributes(value)
        return ()


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(str(k), v) for k, v in value.items() if isinstance(k, str | int)]
    names = getattr(value, "_fields", range(len(value)))  # a named tuple has field names
    return [(str(name), child) for name, child in zip(names, value, strict=True)]


def _keras_children(value: Any) -> Iterator[tuple[str, Any]]:
    layers = list(getattr(value, "layers", ()))
    if _is_a(value, "Sequential", _KERAS) or _is_a(value, "Functional", _KERAS):
        yield from _named_layers(layers)
    yield from _attributes(value)
    # What Keras lists and no attribute leads to.
    yield from _named_layers(layers)
    for variable in _listed(value):
        yield re.sub(r"(_\d+)?(:\d+)?$", "", variable.name).split("/")[-1], variable


def _named_layers(layers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    count: dict[str, int] = {}
    for layer in layers:
        base = _plain_name(layer)
        number = count.get(base, 0)
        count[base] = number + 1
        yield (f"{base}_{number}" if number else base), layer


def _plain_name(value: Any) -> str:
    """Returns a Keras object's name without the number that Keras appends to automatic names."""
    name = str(getattr(value, "name", None) or value._name)
    base = re.sub(r"_\d+$", "", name)
    automatic = base.replace("_", "").lower() == type(value).__name__.replace("_", "").lower()
    return base.lower() if automatic else name


def _attributes(value: Any) -> list[tuple[str, Any]]:
    keras = _is_keras(value)
    return [
        (key.lstrip("_"), child)
        for key, child in getattr(value, "__dict__", {}).items()
        if not key.startswith("_self_") and not (keras and key in _BOOKKEEPING)
    ]


def _listed(value: Any) -> list[Any]:
    variables = getattr(value, "variables", ())
    return list(variables() if callable(variables) else variables)


def _slots(optimizer: Any, entries: list[Entry]) -> Iterator[tuple[Any, str, tf.Variable]]:
    """Yields the variable that a slot belongs to, the slot's key, and the slot."""
    by_unique = {getattr(entry.variable, "_unique_id", None): entry.variable for entry in entries}
    for unique, slots in getattr(optimizer, "_slots", {}).items():  # tf_keras, legacy
        for key, slot in slots.items():
            yield by_unique.get(unique), key, slot
    trained = getattr(optimizer, "_trainable_variables", None)  # Keras 3
    if trained is None:  # tf_keras: unique id to index
        order = getattr(optimizer, "_index_dict", {})
        trained = [
            by_unique.get(unique) for unique in sorted(order, key=lambda unique: order[unique])
        ]
    for attribute, candidates in _attributes(optimizer):
        if isinstance(candidates, list | tuple) and len(candidates) == len(trained):
            for owner, slot in zip(trained, candidates, strict=True):
                variable = variable_of(slot)
                if variable is not None:
                    yield owner, _slot_key(slot, owner, attribute), variable


def _without_shared_head(names: list[str]) -> list[str]:
    heads = {name.split("/")[0] for name in names}
    if len(heads) == 1 and all("/" in name for name in names):
        return [name.split("/", 1)[1] for name in names]
    return names


def _slot_key(slot: Any, owner: Any, attribute: str) -> str:
    """Returns "momentum" for Keras's "sequential_4_dense_8_kernel_momentum"."""
    head = re.sub(r"[/:]", "_", str(getattr(owner, "path", getattr(owner, "name", "")))) + "_"
    name = str(slot.name)
    return name.removeprefix(head) if name.startswith(head) else attribute


def _kind(value: Any) -> str | None:
    if _is_optimizer(value) or _is_a(value, "Optimizer", ("sonnet",)):
        return "optimizer"
    if _is_a(value, "Metric", _KERAS):
        return "metric"
    if isinstance(value, tf.random.Generator) or _is_a(value, "SeedGenerator", _KERAS):
        return "seed"
    return None


def _is_optimizer(value: Any) -> bool:
    return any(_is_a(value, name, _KERAS) for name in _OPTIMIZERS)


def _is_keras(value: Any) -> bool:
    return any(_is_a(value, name, _KERAS) for name in _KERAS_WALKED)


def _is_a(value: Any, name: str, packages: tuple[str, ...]) -> bool:
    """Tells by name, without importing a package that the program may not have."""
    return any(
        cls.__name__ == name and cls.__module__.split(".")[0] in packages
        for cls in type(value).__mro__
    )
