"""What in a pipeline makes a resumed run differ, whichever way its position is kept.

Owns the search of stages that give batches in the order in which threads finish, and of operations
in their functions that look at the world or at state which no checkpoint holds. Promises to name
the stage, the program's line where TensorFlow knows it, and the cure. Refuses to draw from a
pipeline, and to say how its position is kept (see `saveable`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from trainer.data import stages
from trainer.graph import inspection, stateful

_IGNORE = 1  # tf.data.experimental.ExternalStatePolicy.IGNORE

_ORDER = (
    "its elements come in the order in which threads finish, which is another one each time; leave "
    "deterministic=False and sloppy=True out"
)
_RACE = (
    "parallel calls draw from one random state, in the order in which threads come to it; draw "
    "with tf.random.stateless_* in trainer.data.Indexed(map_fn=...), whose seed belongs to the "
    "batch, or leave num_parallel_calls out"
)
_ADVICE = stateful.ADVICE | {
    stateful.RANDOM: _RACE,
    stateful.WORLD: (
        "it gives another value each time, and when a batch is drawn again after a restart too; "
        "use what the data hold, or tf.random.stateless_* with the seed that "
        "trainer.data.Indexed(map_fn=...) is given"
    ),
    stateful.TABLE: (
        "the content of a table that can change is in no checkpoint; use a "
        "tf.lookup.StaticHashTable, or look it up in train_step in a tf.Variable"
    ),
    stateful.CONTENT: (
        "a table's or queue's content is in no checkpoint; make it part of the data, or hold it in "
        "a tf.Variable that train_step uses"
    ),
    stateful.FILE: (
        "the file is read again for each batch, and what it holds is in no checkpoint; read it "
        "once into a tf.constant"
    ),
}
_NOTES = {
    stateful.PYTHON: "it runs Python, which is exact only if it depends on its arguments alone",
    stateful.FILE: "it reads files that the data name, which is exact as long as they stay as they "
    "are",
}


@dataclasses.dataclass(frozen=True)
class Findings:
    """What makes a resumed run differ.

    Args:
        certain: what does, each with its stage and the cure.
        possible: what does if the program does not keep its part.
    """

    certain: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()


def findings(dataset: tf.data.Dataset, graph: Any = None, *, name: str | None = None) -> Findings:
    """Returns what in a pipeline makes a resumed run differ.

    Args:
        dataset: the pipeline.
        graph: what it is made of, from `pipeline.judge`, where that is known.
        name: what to call its stages; None: by the methods that made them.
    """
    certain, possible = list(_unordered(dataset, graph)), []
    for stage in stages.walk(dataset):
        where = name or stages.label(stage)
        for function in stages.functions(stage):
            races = _is_parallel(stage) or _makes_parallel(function)
            for hidden in inspection.hidden_state(function, draws=races):
                if hidden.kind == stateful.RANDOM and not races:
                    continue  # drawn again in the same order
                if "_from_generator_" in hidden.where:
                    continue  # TensorFlow's own Python; that it is replayed is said elsewhere
                line = f"{where}: {hidden.op} ({hidden.where}): "
                if hidden.kind == stateful.PYTHON or hidden.named_by_input:
                    possible.append(line + _NOTES[hidden.kind])
                else:
                    certain.append(line + _ADVICE[hidden.kind])
    return Findings(tuple(dict.fromkeys(certain)), tuple(dict.fromkeys(possible)))


def _unordered(dataset: tf.data.Dataset, graph: Any) -> Iterator[str]:
    """Yields the stages whose elements come in no fixed order."""
    by_options = dataset.options().deterministic is False
    interleaves = _interleaves(dataset, graph, by_options)
    for stage in stages.walk(dataset):
        label = stages.label(stage)
        if type(stage).__name__ == "_ParallelInterleaveDataset":
            given = interleaves.pop(0)
        else:
            given = getattr(stage, "_deterministic", "true")
        if type(stage).__name__.strip("_").startswith("DataServiceDataset"):
            yield f"{label}: the workers of a service give their elements in no fixed order"
        if given == "false" or (given == "default" and by_options):
            yield _said(label, "", given)
        for function in stages.functions(stage):
            for op_type, _, attributes, _ in inspection.operations(function.graph):
                given = _order_of(attributes)
                if given == "false" or (given == "default" and by_options):
                    yield _said(_stage_of(op_type), f" in {label}", given)


def _interleaves(dataset: tf.data.Dataset, graph: Any, by_options: bool) -> list[str]:
    """Returns the order of each parallel interleave, the last one first.

    Only TensorFlow's graph knows it, and to write one for each copies the data which the pipeline
    holds in memory: that is done only where one of them has no order.
    """
    found = [s for s in stages.walk(dataset) if type(s).__name__ == "_ParallelInterleaveDataset"]
    if graph is not None:
        orders = [_order_of(node.attr) for node in graph.node if "Interleave" in node.op]
        if "false" not in orders and not (by_options and "default" in orders):
            return ["true"] * len(found)
    return [_order_of_last(stage) for stage in found]


def _order_of_last(interleave: Any) -> str:
    try:
        content = tf.raw_ops.DatasetToGraphV2(
            input_dataset=interleave._variant_tensor, external_state_policy=_IGNORE
        )
    except tf.errors.OpError:  # TensorFlow cannot write down what is below it
        return "default"
    nodes = tf.compat.v1.GraphDef.FromString(content.numpy()).node
    orders = [_order_of(node.attr) for node in nodes if "Interleave" in node.op]
    return orders[-1] if orders else "default"  # inputs stand before what uses them


def _order_of(attributes: Any) -> str:
    if "sloppy" in attributes and attributes["sloppy"].b:
        return "false"
    return attributes["deterministic"].s.decode() if "deterministic" in attributes else "true"


def _said(label: str, outside: str, given: str) -> str:
    if given == "default":
        return f"{label}{outside}, with options.deterministic = False: {_ORDER}"
    arguments = f"{label[:-1]}, " if label.endswith(")") else f"{label}("
    return f"{arguments}deterministic=False){outside}: {_ORDER}"


def _stage_of(op_type: str) -> str:
    return op_type.replace("Legacy", "").replace("Parallel", "").split("Dataset")[0].lower()


def _is_parallel(stage: Any) -> bool:
    calls = getattr(stage, "_num_parallel_calls", None)
    if type(stage).__name__ == "_ParallelBatchDataset" or calls is None:
        return False
    return not isinstance(calls, tf.Tensor) or int(calls) != 1


def _makes_parallel(function: Any) -> bool:
    """Tells whether a function makes a dataset that calls functions in parallel."""
    return any(
        op_type.startswith(("ParallelMap", "ParallelInterleave", "LegacyParallel"))
        for op_type, *_ in inspection.operations(function.graph)
    )
