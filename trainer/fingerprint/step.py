"""The traced step: what it computes, and from which constants.

Owns the part `step` of a fingerprint:

    digest        of everything
    operations    type to how many, those of called functions included
    constants     [value, how often] in the order in which they are made; arrays by a digest
    nodes         base64 of three bytes of each operation's digest, sorted; empty if they are many

Promises to tell a difference as constants and operations, with the program's line where TensorFlow
knows it. Refuses to judge it.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.fingerprint import forms, samples, words
from trainer.graph import inspection

_MOST_NODES = 4000


class StepForm:
    """A traced step in its canonical form.

    Args:
        function: the concrete function.
        names: id of a variable's handle to its name in the state.

    Attributes:
        saved: the part `step` of a fingerprint.
    """

    def __init__(self, function: Any, names: Mapping[int, str]):
        self._graph = function.graph
        graph = function.graph.as_graph_def()
        library = forms.Forms(graph.library.function)
        inputs, captured = self._graph.inputs, function.captured_inputs
        first = len(inputs) - len(captured)
        known = {
            tensor.op.name: forms.digest(b"input", str(place).encode(), tensor.dtype.name.encode())
            for place, tensor in enumerate(inputs[:first])
        }
        arrays: Counter[str] = Counter()
        for tensor, outside in zip(inputs[first:], captured, strict=True):
            text = _captured_text(outside, names)
            known[tensor.op.name] = forms.digest(b"captured", text.encode())
            if outside.dtype not in (tf.resource, tf.variant, tf.string):
                arrays[text] += 1
        self._digests = library.of_nodes(graph.node, known)
        nodes = [*graph.node, *library.inner_nodes()]
        self._nodes = {node.name: node for node in graph.node}
        constants = arrays + forms.counted_constants(nodes)
        outputs = sorted(function.structured_outputs.items())
        whole = sorted(self._digests.values())
        for name, tensor in outputs:
            whole += [name.encode(), self._digests.get(tensor.op.name, b"input")]
        self.saved = {
            "digest": forms.digest(*whole).hex(),
            "operations": dict(sorted(Counter(node.op for node in nodes).items())),
            "constants": [[text, count] for text, count in constants.items()],
            "nodes": _packed(self._digests.values()),
        }

    def lines(self, before: Mapping[str, Any]) -> dict[str, str]:
        """Returns where the operations stand that another form lacks, of each type and constant.

        Args:
            before: the part `step` of another fingerprint.

        Returns:
            Type of an operation, or value of a constant, to `File "…", line …`.
        """
        known = _unpacked(before.get("nodes", ""))
        if not known:
            return {}
        found: dict[str, str] = {}
        new = {name for name, value in self._digests.items() if value[:3] not in known}
        for name in self._nodes:  # in the order in which they were made
            node = self._nodes[name]
            reads = {text.lstrip("^").split(":")[0] for text in node.input}
            if name not in new or (reads & new and node.op in found):
                continue
            where = _file_and_line(self._graph, name)
            text = forms.constant_text(node.attr["value"].tensor) if node.op == "Const" else None
            if where:
                found.setdefault(text or node.op, where)
                if not reads & new and node.op not in words.UNSAID:
                    found.setdefault("", f"{node.op} ({where})")  # the first that differs
        return found


def _captured_text(outside: Any, names: Mapping[int, str]) -> str:
    """Returns what a step captured: the name of a variable, or a sample of a tensor."""
    if outside.dtype in (tf.resource, tf.variant):
        return names.get(id(outside), "a resource")
    if outside.dtype == tf.string or not hasattr(outside, "numpy"):
        return f"{outside.dtype.name}{outside.shape}"
    return samples.array(outside)


def _file_and_line(graph: Any, name: str) -> str | None:
    line = inspection.program_line(graph.get_operation_by_name(name))
    return f'File "{line[0]}", line {line[1]}' if line else None


def _packed(digests: Any) -> str:
    short = sorted({value[:3] for value in digests})
    return base64.b64encode(b"".join(short)).decode() if len(short) <= _MOST_NODES else ""


def _unpacked(text: str) -> set[bytes]:
    content = base64.b64decode(text)
    return {content[place : place + 3] for place in range(0, len(content), 3)}
