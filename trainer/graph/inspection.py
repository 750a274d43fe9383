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

_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
_MUTABLE = (
    "LookupTableInsert",
    "LookupTableRemove",
    "LookupTableImport",
    "QueueEnqueue",
    "QueueDequeue",
    "StackPush",
    "StackPop",
    "Stage",
    "Unstage",
    "MapStage",
    "Barrier",
)
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
)


@dataclasses.dataclass(frozen=True)
class Hidden:
    """An operation with state that no checkpoint can hold.

    Args:
        op: type of the operation.
        where: the program's line, or the operation's name.
        advice: what to use instead.
    """

    op: str
    where: str
    advice: str

    def __str__(self) -> str:
        return f"{self.op} ({self.where}): {self.advice}"


def hidden_state(function: Any) -> list[Hidden]:
    """Returns the operations of a concrete function whose state no checkpoint can hold."""
    found: dict[tuple[str, str], Hidden] = {}
    for op_type, name, attributes, operation in _operations(function.graph):
        advice = _advice(op_type, attributes, operation)
        if advice is not None:
            hidden = Hidden(op_type, _where(name, operation), advice)
            found.setdefault((hidden.op, hidden.where), hidden)
    return list(found.values())


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
    return any(is_write(op_type) for op_type, *_ in _operations(function.graph))


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


def _operations(graph: Any) -> Iterator[tuple[str, str, Any, Any]]:
    """Yields type, name, attributes and the operation if it is known; functions called included."""
    for operation in graph.get_operations():
        yield operation.type, operation.name, operation.node_def.attr, operation
    for function in graph.as_graph_def().library.function:
        inner = getattr(graph._functions.get(function.signature.name), "graph", None)
        made = {} if inner is None else {op.name: op for op in inner.get_operations()}
        for node in function.node_def:
            name = f"{function.signature.name}/{node.name}"
            yield node.op, name, node.attr, made.get(node.name)


def _advice(op_type: str, attributes: Any, operation: Any) -> str | None:
    if op_type.startswith("IteratorGetNext"):
        return "its position is in no checkpoint; zip that data into train_dataset()"
    if op_type in _PYTHON:
        return (
            "what a Python function does is in no checkpoint; write it with TensorFlow operations"
        )
    if op_type.startswith(_MUTABLE):
        return "a table's or queue's content is in no checkpoint; hold it in a tf.Variable"
    # Random kernels keep a counter of their own; their stateless kin have a seed as an input.
    if "seed" in attributes and "seed2" in attributes:
        if any("/tf_keras/" in frame.filename for frame in _frames(operation)):
            return (
                "tf_keras draws it from a kernel whose state starts over after a restart; call "
                "tf_keras.backend.experimental.enable_tf_random_generator() before the layers are "
                "made"
            )
        return (
            "its random state is in the kernel and starts over after a restart; use "
            "tf.keras.layers (Dropout and the like), a tf.random.Generator held as an attribute, "
            "or tf.random.stateless_* keyed by self.step"
        )
    return None


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
