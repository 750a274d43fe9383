"""What a compiled step reads, writes and hides.

Owns the reading of a traced function's graph. Promises to name every variable that it touches, and
every operation whose state or value no checkpoint can hold, with the line of the program that made
it where TensorFlow knows. Refuses to judge: the trainer decides what is an error.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from trainer.graph import stateful

_WRITES = (
    "ResourceStridedSliceAssign",
    "StatefulRandomBinomial",
    "NonDeterministicInts",
    "Assign",
    "ResourceApply",
    "ResourceSparseApply",
    "ResourceScatter",
    "RngReadAndSkip",
    "RngSkip",
    "StatefulStandardNormal",
    "StatefulUniform",
    "StatefulTruncatedNormal",
)

# TensorFlow's packages, whose frames say nothing to the author of a step.
_LIBRARIES = (
    "/tensorflow/",
    "/keras/",
    "/tf_keras/",
    "/sonnet/",
    "/trainer/graph/compiled.py",
    "/trainer/graph/inspection.py",
    "/trainer/data/",
)


@dataclasses.dataclass(frozen=True)
class Hidden:
    """An operation with state that no checkpoint can hold.

    Args:
        op: type of the operation.
        where: the program's line, or the operation's name.
        advice: what to use instead.
        kind: one of `stateful`.
        named_by_input: for a file: which one depends on the function's arguments.
    """

    op: str
    where: str
    advice: str
    kind: str = stateful.UNKNOWN
    named_by_input: bool = False

    def __str__(self) -> str:
        return f"{self.op} ({self.where}): {self.advice}"


def hidden_state(function: Any, *, draws: bool = False) -> list[Hidden]:
    """Returns the operations of a concrete function whose state no checkpoint can hold.

    Args:
        function: the function.
        draws: whether to return those too that draw random numbers from a variable.
    """
    found: dict[tuple[str, str], Hidden] = {}
    everything = list(operations(function.graph))
    for op_type, name, attributes, operation in everything:
        kind = stateful.kind_of(op_type, attributes)
        if draws and stateful.draws(op_type):
            kind = stateful.RANDOM
        if kind is not None:
            named = kind == stateful.FILE and _depends_on_arguments(operation, function.graph)
            advice = _advice(kind, operation)
            hidden = Hidden(op_type, _where(name, operation), advice, kind, named)
            found.setdefault((hidden.op, hidden.where), hidden)
    hidden_ones = list(found.values())
    if any(hidden.kind == stateful.TABLE for hidden in hidden_ones):
        made_here = any(stateful.makes_mutable_table(op_type) for op_type, *_ in everything)
        if not made_here and not _captures_a_mutable_table(function):
            hidden_ones = [hidden for hidden in hidden_ones if hidden.kind != stateful.TABLE]
    return hidden_ones


def touched_variables(function: Any) -> dict[int, str]:
    """Returns the variables that a concrete function captures: id of the handle to a name."""
    names = {id(variable.handle): variable.name for variable in function.graph.variables}
    touched = {}
    for handle in function.captured_inputs:
        data = getattr(handle, "_handle_data", None)
        if handle.dtype == tf.resource and data is not None and data.is_set:
            touched[id(handle)] = names.get(id(handle)) or _name_by_search(handle)
    return touched


def handles(variables: Iterable[tf.Variable]) -> set[int]:
    """Returns the ids of the handles of variables, of each part where one is distributed."""
    ids = set()
    for variable in variables:
        for part in getattr(variable, "values", (variable,)):
            ids.add(id(part.handle))
    return ids


def layers_of(wanted: Iterable[int]) -> dict[int, str]:
    """Returns which Keras layers hold variables or tables: id of the handle to name and class.

    Args:
        wanted: ids of handles.
    """
    left = set(wanted)
    found: dict[int, str] = {}
    kinds: dict[type, bool] = {}
    for layer in gc.get_objects() if left else ():
        kind = type(layer)
        if kind not in kinds:
            kinds[kind] = any(
                c.__name__ == "Layer" and c.__module__.split(".")[0] in ("keras", "tf_keras")
                for c in kind.__mro__
            )
        if kinds[kind] and not getattr(layer, "_layers", ()):  # else the layers inside are found
            inside = (getattr(v, "value", v) for v in layer.variables)
            held = handles(v for v in inside if isinstance(v, tf.Variable))
            held |= {id(getattr(v, "resource_handle", None)) for v in vars_of(layer).values()}
            found |= dict.fromkeys(held & left, f"{layer.name!r} ({kind.__name__})")
    return found


def writes_variables(function: Any) -> bool:
    """Tells whether a concrete function has an operation that changes a variable."""
    return any(is_write(op_type) for op_type, *_ in operations(function.graph))


def is_write(op_type: str) -> bool:
    """Tells whether operations of a type change the variable that is their first input."""
    return op_type.startswith(_WRITES)


def program_line(operation: Any) -> tuple[str, int] | None:
    """Returns the file and the line of the program that made an operation, if TensorFlow knows.

    Args:
        operation: an operation of a graph, or None.
    """
    for frame in reversed(_frames(operation)):
        path = frame.filename.replace("\\", "/")
        if path.endswith(".py") and not any(library in path for library in _LIBRARIES):
            return path, frame.lineno
    return None


def vars_of(value: Any) -> dict[str, Any]:
    """Returns an object's attributes; empty for one that has none."""
    return dict(getattr(value, "__dict__", {}))


def operations(graph: Any) -> Iterator[tuple[str, str, Any, Any]]:
    """Yields type, name, attributes and the operation if it is known; functions called included."""
    for operation in graph.get_operations():
        yield operation.type, operation.name, operation.node_def.attr, operation
    for function in graph.as_graph_def().library.function:
        inner = getattr(graph._functions.get(function.signature.name), "graph", None)
        made = {} if inner is None else {op.name: op for op in inner.get_operations()}
        for node in function.node_def:
            name = f"{function.signature.name}/{node.name}"
            yield node.op, name, node.attr, made.get(node.name)


def _advice(kind: str, operation: Any) -> str:
    if kind == stateful.RANDOM and any("/tf_keras/" in f.filename for f in _frames(operation)):
        return (
            "tf_keras draws it from a kernel whose state starts over after a restart; call "
            "tf_keras.backend.experimental.enable_tf_random_generator() before the layers are made"
        )
    return stateful.ADVICE[kind]


def _depends_on_arguments(operation: Any, graph: Any) -> bool:
    """Tells whether the first input of an operation comes from the arguments of its function."""
    if operation is None or operation.graph is not graph:
        return True  # not known
    captured = {id(tensor) for tensor in graph.internal_captures}
    left, seen = [operation.inputs[0]] if operation.inputs else [], set()
    while left:
        tensor = left.pop()
        if id(tensor) in captured or id(tensor.op) in seen:
            continue
        seen.add(id(tensor.op))
        if tensor.op.type == "Placeholder":
            return True
        left += tensor.op.inputs
    return False


def _captures_a_mutable_table(function: Any) -> bool:
    """Tells whether one of the tables that a function captures can change."""
    captured = [tensor for tensor in function.captured_inputs if tensor.dtype == tf.resource]
    tables = {id(tensor) for tensor in captured if not _is_variable(tensor)}
    lookup = tf.lookup.experimental
    mutable = lookup.MutableHashTable, lookup.DenseHashTable
    for holder in gc.get_objects() if tables else ():
        if issubclass(type(holder), tf.saved_model.experimental.TrackableResource):
            attributes = vars_of(holder)
            for name in ("_resource_handle_value", "_resource_handle"):  # the latter: TF 2.16
                handle = id(attributes.get(name))
                if handle in tables and isinstance(holder, mutable):
                    return True
                tables.discard(handle)
    return bool(tables)


def _is_variable(handle: Any) -> bool:
    data = getattr(handle, "_handle_data", None)
    return data is not None and data.is_set


def _where(name: str, operation: Any) -> str:
    line = program_line(operation)
    return f"{line[0]}:{line[1]}, {name}" if line else name


def _frames(operation: Any) -> list[Any]:
    return list(operation.traceback) if operation is not None else []


def _name_by_search(handle: Any) -> str:
    """Returns the name of a variable that the graph did not watch because it only writes it."""
    for candidate in gc.get_objects():
        if isinstance(candidate, tf.Variable) and getattr(candidate, "handle", None) is handle:
            return str(candidate.name)
    return "a variable without a name"
