"""The training data: how they are made, and a sample of what they are made of.

Owns the part `data` of a fingerprint:

    kind          "tf.data", "Indexed" or the type of a Python object
    stages        [method, arguments] of a pipeline, in order
    element       dtypes and shapes of a batch
    cardinality   batches of a pass; -1: without end, -2: unknown
    arrays        of those in memory: dtype, shape and a digest of a sample
    files         how many are told, their size, and six digits for each

and the seeds that were drawn before the trainer seeded. Promises a bounded time however large the
data are, and that renaming or moving a file makes no difference. Refuses to draw a batch.

Why a seed drawn outside shows: `tf.random.set_seed` makes TensorFlow draw the seeds of each stage
from a counter, in Python; they are numbers in the graph. Where no global seed is set and the stage
has none, the graph holds the pair (0, 0), by which the kernel takes seeds from the clock; no other
way leads to that pair, an explicit (0, 0) included. So a shuffle made inside `train_dataset` never
has it, nor one with `seed=`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from trainer.data import indexed, position
from trainer.fingerprint import drawn, samples, stages

_INDEXED = "Indexed"


def read(source: position.Source) -> dict[str, Any]:
    """Returns the part `data` of a fingerprint.

    Args:
        source: the training data.
    """
    element = tf.nest.map_structure(_spec_text, source.element_spec)
    found: dict[str, Any] = {"element": repr(element), "stages": [], "cardinality": -2}
    made, paths = source.made, []
    if isinstance(made, indexed.Indexed):
        found["kind"], found["cardinality"] = _INDEXED, len(made)
    elif isinstance(made, tf.data.Dataset):
        found["kind"], found["cardinality"] = "tf.data", int(made.cardinality())
    else:
        found["kind"] = type(made).__name__
    if source.graph is not None:
        reader = stages.Reader(source.graph)
        if found["kind"] == _INDEXED:
            functions = dict(enumerate(reader.functions()))
            found["stages"] = [
                (_INDEXED, made.order()),
                ("lookup or map_fn", {f"part {n}": text for n, text in functions.items()}),
            ]
        else:
            found["stages"] = reader.stages()
        paths = list(dict.fromkeys([*reader.files, *stages.file_attributes(source.graph)]))
    found["stages"] = [list(stage) for stage in found["stages"]]
    found["arrays"] = list(
        dict.fromkeys(samples.array(tensor) for tensor in _tensors(source.pipeline))
    )
    files = [samples.file(path) for path in samples.spread(paths)]
    if files:
        found["files"] = {
            "count": len(paths),
            "bytes": sum(size for size, _ in files),
            "each": "".join(known for _, known in files),
        }
    return found


@dataclasses.dataclass(frozen=True)
class Moment:
    """The moment before the trainer seeded."""

    number: int = dataclasses.field(default_factory=indexed.moment)
    numpy: drawn.State = dataclasses.field(default_factory=drawn.state)


def drawn_outside(source: position.Source, before: Moment) -> list[str]:
    """Returns the stages whose seeds were drawn before the trainer seeded, in words.

    Args:
        source: the training data.
        before: when the trainer seeded.
    """
    if isinstance(source.made, indexed.Indexed):
        return ["Indexed()"] if source.made.drew_seed_before(before.number) else []
    if source.graph is None:
        return []
    seeds = list(stages.Reader(source.graph).seeds())
    numbers = [pair[1] for _, _, pair in seeds]
    by_helper = drawn.by_helper(source.made, numbers, before.numpy, drawn.state())
    found = []
    for stage, inner, pair in seeds:
        if pair == (0, 0):
            found.append(f"{stage}()" + (f", {inner} in its function" if inner else ""))
        elif pair[1] in by_helper:
            found.append(f"{stage}(), which a helper of Keras drew with NumPy ({pair[1]})")
    return list(dict.fromkeys(found))


def _tensors(dataset: Any) -> Iterator[Any]:
    """Yields the arrays in memory that data are made of: not texts, nor single numbers."""
    for value in _captured(dataset) if dataset is not None else ():
        for tensor in tf.nest.flatten(value, expand_composites=True):
            known = isinstance(tensor, tf.Tensor) and hasattr(tensor, "numpy")
            if known and tensor.shape.rank and tensor.dtype not in _OPAQUE:
                yield tensor


_OPAQUE = (tf.string, tf.resource, tf.variant)


def _captured(dataset: Any) -> Iterator[Any]:
    waiting, seen = [dataset], set()
    while waiting:
        stage = waiting.pop()
        if id(stage) in seen:
            continue
        seen.add(id(stage))
        waiting += stage._inputs()
        for name, value in vars(stage).items():
            if name == "_variant_tensor_attr":
                continue
            if hasattr(value, "function") and hasattr(value.function, "captured_inputs"):
                yield list(value.function.captured_inputs)
            elif isinstance(value, tf.Tensor | tf.RaggedTensor | tf.SparseTensor | list | tuple):
                yield value


def _spec_text(spec: Any) -> str:
    if isinstance(spec, tf.TensorSpec):
        shape = "" if spec.shape.rank is None else spec.shape.as_list()
        return f"{spec.dtype.name}{shape}"
    return str(spec)
