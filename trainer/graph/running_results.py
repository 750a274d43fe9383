"""Outputs that tell of more than the batch of their step.

Owns the search for outputs that are computed from a variable after the step wrote it: running
results, as of a metric. Promises not to take a counter that no output shows for one, nor a variable
that is read and written afterwards, as a seed or the state of a recurrent layer is. Refuses to
judge: who averages such outputs says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from trainer.graph import inspection

_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")


def running(function: Any, but: Iterable[int] = ()) -> dict[str, list[int]]:
    """Returns name of an output to the ids of the handles whose new value it is computed from.

    Args:
        function: a concrete function that returns a dict of tensors.
        but: ids of handles that do not count, of seeds say.
    """
    graph, left_out = function.graph, set(but)
    bodies = {body.signature.name: body for body in graph.as_graph_def().library.function}
    late: dict[Any, int] = {}  # operation that reads a variable after it was written, to its handle
    for handle, inside in graph.captures:
        if inside.dtype == tf.resource and id(handle) not in left_out:
            writes = {op for op, at in _uses(inside) if _is_write(op.type, op.node_def, at, bodies)}
            reads = {op for op, _ in _uses(inside) if op.type in _READS or _bodies_of(op.node_def)}
            late |= {op: id(handle) for op in reads - writes if _comes_after(op, writes)}
    found: dict[str, list[int]] = {}
    if late:
        for name, output in graph.structured_outputs.items():
            handles = {late[op] for op in _before(output.op, control=False) if op in late}
            if handles:
                found[name] = sorted(handles)
    return found


def _uses(tensor: tf.Tensor) -> Iterator[tuple[Any, int]]:
    for operation in tensor.consumers():
        for at, taken in enumerate(operation.inputs):
            if taken is tensor:
                yield operation, at


def _bodies_of(node: Any) -> list[str]:
    """Returns the names of the functions that an operation calls."""
    called = []
    for attribute in node.attr.values():
        called += [attribute.func.name] if attribute.func.name else []
        called += [function.name for function in attribute.list.func]
    return called


def _is_write(op_type: str, node: Any, at: int, bodies: dict[str, Any]) -> bool:
    """Tells whether an operation, or a function that it calls, changes its input number `at`."""
    if inspection.is_write(op_type):
        return at == 0
    before = 1 if op_type in ("If", "StatelessIf", "Case", "StatelessCase") else 0
    for body in (bodies[name] for name in _bodies_of(node) if name in bodies):
        arguments = [argument.name for argument in body.signature.input_arg]
        name = arguments[at - before] if 0 <= at - before < len(arguments) else None
        for inner in body.node_def:
            taken = [text.split(":")[0] for text in inner.input]
            if any(
                text == name and _is_write(inner.op, inner, index, bodies)
                for index, text in enumerate(taken)
            ):
                return True
    return False


def _comes_after(operation: Any, others: set[Any]) -> bool:
    return any(op in others for op in _before(operation, control=True))


def _before(operation: Any, *, control: bool) -> Iterator[Any]:
    """Yields the operation and those that it waits for; by data alone unless `control`."""
    seen, left = {operation}, [operation]
    while left:
        here = left.pop()
        yield here
        above = [tensor.op for tensor in here.inputs] + (here.control_inputs if control else [])
        for other in above:
            if other not in seen:
                seen.add(other)
                left.append(other)
