"""The canonical form of TensorFlow graphs.

Owns the digest of each operation of a graph, made of its type, its attributes, and the digests of
what it reads. Promises that names, addresses, devices, debug information and the order in which
independent operations were made are no part of it, so that the same program has the same digests in
every process. Refuses to say what a difference means.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# Attributes that name things, or say how to run and not what; all that begin with "_" as well.
_NOISE = {
    *("container", "shared_name", "token", "metadata", "config_proto", "config", "executor_type"),
    *("debug_name", "frame_name", "parallel_iterations", "swap_memory", "tensor_array_name"),
    *("stack_name", "use_inter_op_parallelism", "output_shapes", "shape_hint"),
}
_NUMBERED = re.compile(rb"_\d+")
_MOST_CONSTANTS = 300


def digest(*parts: bytes) -> bytes:
    """Returns eight bytes that stand for `parts`."""
    found = hashlib.blake2b(digest_size=8)
    for part in parts:
        found.update(len(part).to_bytes(4, "little"))
        found.update(part)
    return found.digest()


class Forms:
    """Digests of the operations and functions that share one library.

    Args:
        library: the `FunctionDef`s.
    """

    def __init__(self, library: Iterable[Any]):
        self._functions = {function.signature.name: function for function in library}
        self._digests: dict[str, bytes] = {}

    def of_nodes(self, nodes: Iterable[Any], known: Mapping[str, bytes]) -> dict[str, bytes]:
        """Returns the digest of each operation by its name.

        Args:
            nodes: `NodeDef`s.
            known: digests of what has one already: arguments, or operations that stand for things
                outside of the graph.
        """
        by_name = {node.name: node for node in nodes}
        found = dict(known)
        for name in by_name:
            if name not in found:
                self._follow(name, by_name, found)
        return {name: found[name] for name in by_name}

    def of_function(self, name: str) -> bytes:
        """Returns the digest of a function of the library by its name."""
        if name not in self._functions:
            return digest(b"unknown", re.sub(r"_\d+$", "", name).encode())
        if name not in self._digests:
            self._digests[name] = b"itself"  # a function that calls itself
            function = self._functions[name]
            known = {
                argument.name: digest(b"argument", str(place).encode())
                for place, argument in enumerate(function.signature.input_arg)
            }
            nodes = self.of_nodes(function.node_def, known)
            known.update(nodes)
            results = [
                _reference(function.ret[argument.name], known)
                for argument in function.signature.output_arg
            ]
            self._digests[name] = digest(b"function", *sorted(nodes.values()), b"to", *results)
        return self._digests[name]

    def inner_nodes(self) -> Iterator[Any]:
        """Yields the operations of all functions that have a digest: those that are called."""
        for name in list(self._digests):
            yield from self._functions[name].node_def

    def functions_of(self, node: Any) -> Iterator[tuple[str, Any]]:
        """Yields attribute and `FunctionDef` of what an operation calls."""
        for key in sorted(node.attr):
            value = node.attr[key]
            kind = value.WhichOneof("value")
            called = [value.func] if kind == "func" else []
            called += list(value.list.func) if kind == "list" else []
            for function in called:
                if function.name in self._functions:
                    yield key, self._functions[function.name]

    def _follow(self, start: str, nodes: Mapping[str, Any], found: dict[str, bytes]) -> None:
        """Finds the digest of an operation after those of what it reads, without recursion."""
        waiting = [start]
        while waiting:
            name = waiting[-1]
            if name in found and found[name] != b"loop":
                waiting.pop()
                continue
            node = nodes[name]
            missing = [
                source
                for source in map(_name, node.input)
                if source in nodes and source not in found
            ]
            if missing and name not in found:
                found[name] = b"loop"  # what a cycle leads back to
                waiting += missing
                continue
            found[name] = self._digest(node, found)
            waiting.pop()

    def _digest(self, node: Any, found: Mapping[str, bytes]) -> bytes:
        data = [_reference(text, found) for text in node.input if not text.startswith("^")]
        after = sorted(_reference(text, found) for text in node.input if text.startswith("^"))
        return digest(node.op.encode(), *data, b"after", *after, b"with", *self._attributes(node))

    def _attributes(self, node: Any) -> Iterator[bytes]:
        for key in sorted(node.attr):
            if key in _NOISE or key.startswith("_"):
                continue
            value = node.attr[key]
            kind = value.WhichOneof("value")
            yield key.encode()
            if kind == "func":
                yield self.of_function(value.func.name)
            elif kind == "list" and value.list.func:
                for function in value.list.func:
                    yield self.of_function(function.name)
            elif kind == "tensor" and value.tensor.dtype == tf.string.as_datatype_enum:
                # Texts of assertions hold names that Keras numbers.
                yield _NUMBERED.sub(b"", b"\0".join(texts(value.tensor)))
            elif kind == "tensor" and value.tensor.dtype == tf.resource.as_datatype_enum:
                yield b"resource"
            else:
                yield value.SerializeToString(deterministic=True)


def texts(tensor: Any) -> list[bytes]:
    """Returns the texts of a constant, in either of the ways in which TensorFlow writes them.

    Args:
        tensor: `TensorProto`.
    """
    content = tensor.tensor_content
    if not content:
        return list(tensor.string_val)
    sizes, place = [], 0
    for _ in range(int(np.prod([dim.size for dim in tensor.tensor_shape.dim]))):
        size = shift = 0
        while True:  # the sizes come first, seven bits in a byte
            byte = content[place]
            place += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        sizes.append(size)
    found = []
    for size in sizes:
        found.append(content[place : place + size])
        place += size
    return found


def constant_text(tensor: Any) -> str | None:
    """Returns what a reader calls the value of a constant, or None for a text or a resource.

    Args:
        tensor: `TensorProto`.
    """
    dtype = tf.as_dtype(tensor.dtype)
    if dtype in (tf.string, tf.resource, tf.variant):
        return None
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if int(np.prod(shape)) <= 4:
        return str(tf.make_ndarray(tensor).tolist())
    content = tensor.SerializeToString(deterministic=True)
    return array_text(dtype.name, shape, digest(content).hex()[:8])


def array_text(dtype: str, shape: list[int], values: str) -> str:
    """Returns what a reader calls an array: `float32[8, 8] #1a2b3c4d`."""
    return f"{dtype}{shape} #{values}"


def counted_constants(nodes: Iterable[Any]) -> Counter[str]:
    """Returns the values of constants and how often each occurs; a bounded number of them.

    Args:
        nodes: `NodeDef`s.
    """
    found: Counter[str] = Counter()
    for node in nodes:
        if node.op != "Const":
            continue
        text = constant_text(node.attr["value"].tensor)
        if text is not None and (text in found or len(found) < _MOST_CONSTANTS):
            found[text] += 1
    return found


def _name(reference: str) -> str:
    return reference.lstrip("^").split(":", 1)[0]


def _reference(text: str, found: Mapping[str, bytes]) -> bytes:
    """Returns the digest of one output of an operation."""
    name, _, output = text.lstrip("^").partition(":")
    return found.get(name, b"unknown") + (output or "0").encode()
