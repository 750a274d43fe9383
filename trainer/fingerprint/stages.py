"""The stages of a `tf.data` pipeline, by the names of its methods.

Owns the reading of a pipeline's graph as stages with arguments and seeds. Promises to leave out
what cannot change the data: numbers of parallel calls, buffers of a prefetch, names. Refuses to
draw from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from trainer.fingerprint import forms, samples

Stage = tuple[str, dict[str, Any]]

_NO_SEED = 87654321  # what stands for the global seed where none was set
_METHODS = {
    "TensorSlice": "from_tensor_slices",
    "Tensor": "from_tensors",
    "SparseTensorSlice": "from_sparse_tensor_slices",
    "PaddedBatch": "padded_batch",
    "ParallelBatch": "batch",
    "ParallelMap": "map",
    "ParallelInterleave": "interleave",
    "ParallelFilter": "filter",
    "ForeverRepeat": "repeat",
    "DirectedInterleave": "sample_from_datasets or choose_from_datasets",
    "Generator": "from_generator",
    "TFRecord": "TFRecordDataset",
    "TextLine": "TextLineDataset",
    "FixedLengthRecord": "FixedLengthRecordDataset",
}
# What changes how fast the data come and not which, or says what another argument says.
_LEFT_OUT = {
    *("num_parallel_calls", "num_parallel_batches", "prefetch_input_elements", "slack_period"),
    *("buffer_output_elements", "parallel_copy", "preserve_cardinality", "legacy_autotune"),
    *("buffer_size_min", "force_synchronous", "use_inter_op_parallelism", "serialized_options"),
    *("output_types", "output_shapes", "Targuments", "Toutput_types", "Tstate", "metadata"),
    *("replicate_on_split", "is_files", "N", "other_arguments", "use_default_device"),
    *(
        "use_unbounded_threadpool",
        "seed_generator",
        "cache",
        "captured_func_inputs",
        "Tkey_func_other_arguments",
    ),
}
_ARGUMENTS = {"count": "count", "components": "components", "filenames": "filenames"}


class Reader:
    """Reads the stages of one pipeline.

    Args:
        graph: a `GraphDef` (see `data.pipeline.read`).

    Attributes:
        files: paths of the files that it reads, in order, as far as they are told.
    """

    def __init__(self, graph: Any):
        self._forms = forms.Forms(graph.library.function)
        self._nodes = {node.name: node for node in graph.node}
        self.files: list[str] = []

    def stages(self) -> list[Stage]:
        """Returns the stages, what a stage reads before it."""
        found: dict[str, Stage] = {}
        ends = [node for node in self._nodes.values() if node.op == "_Retval"]
        waiting = [name for node in ends for name in _sources(node)]
        while waiting:
            node = self._nodes[waiting[-1]]
            below = [n for n in _sources(node) if self._is_stage(n) and n not in found]
            if below:
                waiting += reversed(below)
                continue
            waiting.pop()
            if self._is_stage(node.name) and node.name not in found:
                found[node.name] = (method(node.op), self._arguments(node))
        return list(found.values())

    def functions(self) -> list[str]:
        """Returns a digest of each function that a stage calls, in the order of the stages."""
        return [value for _, arguments in self.stages() for value in _functions(arguments)]

    def _is_stage(self, name: str) -> bool:
        return "Dataset" in self._nodes[name].op

    def _arguments(self, node: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, references in _inputs(node):
            values = [self._value(reference) for reference in references]
            values = [value for value in values if value is not None]
            if values and name not in _LEFT_OUT and not _is_buffer_for_speed(node, name):
                found[name] = values[0] if len(values) == 1 else values
        for key in sorted(node.attr):
            value = node.attr[key]
            kind = value.WhichOneof("value")
            if key in _LEFT_OUT or key.startswith("_") or kind in ("shape", "type", "list", None):
                continue
            if kind == "func":
                found[key] = f"a function #{self._forms.of_function(value.func.name).hex()[:8]}"
            elif not (key == "deterministic" and value.s == b"default"):
                plain = getattr(value, kind)
                found[key] = plain.decode(errors="replace") if kind == "s" else plain
        if "seed" in found and "seed2" in found:
            found["seed"] = _pair(found["seed"], found.pop("seed2"))
        inner = [_pair(*pair) for _, pair in self._seeds_in_functions(node)]
        if inner:
            found["seeds inside"] = inner
        return found

    def seeds(self) -> Iterator[tuple[str, str | None, tuple[int, int]]]:
        """Yields stage, operation within its function (or None) and seeds, where they are known."""
        for node in self._nodes.values():
            if not self._is_stage(node.name):
                continue
            pair = _seed_inputs(node, self._nodes)
            if pair is not None:
                yield method(node.op), None, pair
            for op, inner in self._seeds_in_functions(node):
                yield method(node.op), op, inner

    def _seeds_in_functions(self, node: Any) -> Iterator[tuple[str, tuple[int, int]]]:
        waiting, done = [node], set()
        while waiting:
            for _, function in self._forms.functions_of(waiting.pop()):
                if function.signature.name in done:
                    continue
                done.add(function.signature.name)
                inside = {inner.name: inner for inner in function.node_def}
                for inner in function.node_def:
                    pair = _seed_inputs(inner, inside) or _seed_attributes(inner)
                    if pair is not None:
                        yield inner.op, pair
                    waiting.append(inner)

    def _value(self, reference: str) -> Any:
        """Returns what a reader calls the value of an input, or None if it is no constant."""
        node = self._nodes.get(reference.lstrip("^").split(":")[0])
        while node is not None and node.op == "Identity":
            node = self._nodes.get(node.input[0].split(":")[0])
        if node is None or node.op != "Const":
            return None
        tensor = node.attr["value"].tensor
        dtype = tf.as_dtype(tensor.dtype)
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        if dtype == tf.string:
            return self._text(forms.texts(tensor), shape)
        if dtype in (tf.resource, tf.variant):
            return None
        if not shape or (shape == [1] or 0 in shape):
            return tf.make_ndarray(tensor).tolist()
        return f"{dtype.name}{shape}"

    def _text(self, values: Any, shape: list[int]) -> str:
        """Returns what a reader calls texts; paths are told by what lies there, if it is a file."""
        some = [value.decode(errors="replace") for value in samples.spread(values)]
        if some and samples.is_file(some[0]):
            self.files += some
            return f"{len(values)} files"
        names = [text.replace("\\", "/").rpartition("/")[2] for text in some]
        if not shape or not names:
            return names[0] if names else f"string{shape}"
        return forms.array_text("string", shape, forms.digest("\n".join(names).encode()).hex()[:8])


def method(op: str) -> str:
    """Returns the method of `tf.data.Dataset` that makes an operation."""
    kind = re.sub(r"(Dataset|(?<=Dataset))(V\d+)?$", "", op)
    kind = kind.removeprefix("Experimental")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
    return _METHODS.get(kind, words)


def file_attributes(graph: Any) -> list[str]:
    """Returns the files that a pipeline's functions name in an attribute, mapped into memory."""
    nodes = (node for function in graph.library.function for node in function.node_def)
    paths = [
        node.attr["memory_region_name"].s.decode(errors="replace")
        for node in nodes
        if node.op == "ImmutableConst"
    ]
    return [path for path in dict.fromkeys(paths) if samples.is_file(path)]


def _functions(arguments: Mapping[str, Any]) -> list[str]:
    return [value for value in arguments.values() if str(value).startswith("a function #")]


def _sources(node: Any) -> list[str]:
    return [reference.lstrip("^").split(":")[0] for reference in node.input]


def _inputs(node: Any) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each input and what is given for it."""
    definition = op_def_registry.get(node.op)
    given = [reference for reference in node.input if not reference.startswith("^")]
    for argument in definition.input_arg if definition is not None else ():
        count = 1
        if argument.number_attr:
            count = node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            count = len(node.attr[argument.type_list_attr].list.type)
        yield argument.name, given[:count]
        given = given[count:]


def _is_buffer_for_speed(node: Any, name: str) -> bool:
    return name == "buffer_size" and "Shuffle" not in node.op


def _seed_inputs(node: Any, nodes: Mapping[str, Any]) -> tuple[int, int] | None:
    if "Dataset" not in node.op:
        return None
    found: list[int | None] = []
    for name, references in _inputs(node):
        if name in ("seed", "seed2") and len(references) == 1:
            source = nodes.get(references[0].split(":")[0])
            chosen = False
            if source is not None and source.op == "SelectV2":  # another number for (0, 0)
                chosen, source = True, nodes.get(source.input[2].split(":")[0])
            number = _number(source)
            found.append(2**31 - 1 if chosen and number == 0 and found == [0] else number)
    if len(found) != 2 or found[0] is None or found[1] is None:
        return None
    return found[0], found[1]


def _number(node: Any) -> int | None:
    if node is None or node.op != "Const":
        return None
    return int(tf.make_ndarray(node.attr["value"].tensor))


def _seed_attributes(node: Any) -> tuple[int, int] | None:
    """Returns the seeds of a random operation that keeps its state in the kernel."""
    if "seed" in node.attr and "seed2" in node.attr:
        return int(node.attr["seed"].i), int(node.attr["seed2"].i)
    return None


def _pair(first: Any, second: Any) -> Any:
    """Returns the seed that the program gave, with the global one if there was one."""
    return second if first == _NO_SEED else [first, second]
