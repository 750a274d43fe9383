"""What a `tf.data` pipeline is made of, as far as its position is concerned.

Owns the reading of a pipeline's graph and the verdict how its position can be kept exactly.
Promises to call a pipeline safe only for a structure that was measured to be safe; all else is
replayed. Refuses to draw from it.

Why a verdict is needed: a `shuffle` that reshuffles takes new seeds from a counter at each pass.
The counter is saved with the iterator of the shuffle, and that iterator is dropped by whatever
reads from it (a `batch`, say) when a pass ends, while the last elements are still on their way and
the `repeat` above has not begun the next pass. A position saved in that gap has lost the counter:
after a restore the next pass has another order, silently (TensorFlow 2.16 to 2.21;
`tests/test_data.py` keeps the proof).

    shuffle, then only element-wise stages, then repeat    no gap: the repeat may stay in the graph
    shuffle, then stages that open their input at once     the counter is known at the start of each
                                                           pass: passes are opened one by one, and
                                                           the start of the pass is saved as well
    anything else                                          replay by count
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from trainer.data import cache_files, stages

IGNORE, _FAIL = 1, 2  # of tf.data.experimental.ExternalStatePolicy
_LARGE_BYTES, _LARGE_NAMES = 1 << 12, 1 << 22

# TensorFlow calls these stateful so that they are not optimized away; they have no state. It lets
# some of them pass by itself, and refuses the others. Those of the last line are as stateful as the
# functions that they call, which are looked at too.
_WITHOUT_STATE = {
    *("CheckNumerics", "CheckNumericsV2", "DebugIdentityV2", "DebugIdentityV3"),
    *("DebugNumericSummaryV2", "Assert", "Print", "PrintV2", "ReadFile"),
    *("If", "Case", "While", "StatefulPartitionedCall"),
}

# Stages that never drop their input before they are dropped themselves.
_ELEMENTWISE = {
    *("MapDataset", "ParallelMapDatasetV2", "PrefetchDataset", "OptionsDataset"),
}
# Stages that open their first input when they are opened, and open it once.
_OPEN_AT_ONCE = _ELEMENTWISE | {
    *("BatchDatasetV2", "ParallelBatchDataset", "PaddedBatchDatasetV2"),
    *("FilterDataset", "TakeDataset", "SkipDataset", "ZipDataset", "ScanDataset"),
    *("InterleaveDataset", "ParallelInterleaveDatasetV4"),
    *("FlatMapDataset", "GroupByWindowDataset", "UnbatchDataset"),
}
# Stages and sources that TensorFlow was seen to restore exactly: those, and no others, that
# `tests/test_data_stages.py` measures on every TensorFlow that is supported. So no version is asked
# for here, and a stage that a newer one makes in another way is replayed until it is measured.
# `sample_from_datasets` and `choose_from_datasets` are not among them: restored, they give another
# order or never return.
_RESTORED = _OPEN_AT_ONCE | {
    *("RangeDataset", "TensorDataset", "TensorSliceDataset"),
    *("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDatasetV2"),
    *("ShuffleDatasetV3", "RepeatDataset", "CacheDatasetV2"),
    *("ConcatenateDataset", "ShardDataset", "RebatchDatasetV2", "AssertCardinalityDataset"),
}
_CURE = (
    "a restart draws the batches again with their later values. Random augmentation belongs in "
    "trainer.data.Indexed(map_fn=...), which draws from a seed of each batch's own, or in "
    "train_step, where a layer's state is saved"
)
_RESHUFFLES = ("reshuffle_each_iteration", "rerandomize_each_iteration")
_REPEAT = "RepeatDataset"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How the position of a pipeline can be kept.

    Args:
        reason: why it must be replayed, or None if it can be saved.
        repeat_in_graph: a `repeat` put on top of it keeps it exact.
        graph: what it is made of, a `GraphDef` without large values; None for a part of it.
    """

    reason: str | None
    repeat_in_graph: bool
    graph: Any = None


def judge(dataset: tf.data.Dataset) -> Verdict:
    """Returns how the position of a pipeline can be kept."""
    graph, refusal = read(dataset)
    return dataclasses.replace(_judge(dataset, graph, refusal), graph=graph)


def read(dataset: tf.data.Dataset) -> tuple[Any, str | None]:
    """Returns what a pipeline is made of, and why it cannot be saved as it stands, or None.

    Large values are left out of the graph, and a pipeline that TensorFlow cannot write down has
    none (None).
    """
    refusal = None
    for policy in (_FAIL, IGNORE):
        try:
            serialized = tf.raw_ops.DatasetToGraphV2(
                input_dataset=dataset._variant_tensor, external_state_policy=policy
            )
        except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError) as error:
            refusal = refusal or first_line(error)
            continue
        graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
        if refusal is not None and refusal.removesuffix(" is stateful") in _WITHOUT_STATE:
            refusal = _hidden_state(graph)
        for node in graph.node:
            if node.op == "Const":
                value = node.attr["value"].tensor
                names = value.dtype == tf.string.as_datatype_enum
                if value.ByteSize() > (_LARGE_NAMES if names else _LARGE_BYTES):
                    value.ClearField("tensor_content")
        return graph, refusal
    return None, refusal


def _judge(dataset: tf.data.Dataset, graph: Any, refusal: str | None) -> Verdict:
    if dataset.options().experimental_slack:
        return Verdict("an iterator with experimental_slack does not return", repeat_in_graph=True)
    files = cache_files.named(dataset)
    if files:
        return Verdict(
            f"cache({files[0]!r}) writes a file while the first pass is drawn, and cannot go on in "
            "the middle of it; cache() without a name keeps the data in memory and is saved",
            repeat_in_graph=True,
        )
    if refusal is not None:
        used = stages.used(dataset)
        advice = f"; it uses {', '.join(used)}: {_CURE}" if used else ""
        return Verdict(reason=refusal + advice, repeat_in_graph=True)
    nodes = _nodes(graph)
    for node in nodes:
        if re.search(r"Dataset(V\d)?$", node.op) and node.op not in _RESTORED:
            reason = f"{_stage(node)} is not known to be restored exactly"
            return Verdict(reason, repeat_in_graph=True)
    verdicts = [_judge_shuffle(node, graph) for node in graph.node if _reshuffles(node)]
    verdicts += [_judge_function(function) for function in graph.library.function]
    lost = next((verdict.reason for verdict in verdicts if verdict.reason), None)
    return Verdict(lost, lost is not None or all(v.repeat_in_graph for v in verdicts))


def _hidden_state(graph: Any) -> str | None:
    """Returns what TensorFlow would say of the first operation that has state, or None."""
    for node in _nodes(graph):
        known = op_def_registry.get(node.op)
        stage = "Dataset" in node.op or node.op.startswith("_")  # TensorFlow's own: a _Retval
        if known is not None and known.is_stateful and not stage | (node.op in _WITHOUT_STATE):
            return f"{node.op} is stateful"
    return None


def _nodes(graph: Any) -> list[Any]:
    return [*graph.node, *(n for function in graph.library.function for n in function.node_def)]


def without_repeat(dataset: tf.data.Dataset) -> tuple[tf.data.Dataset, int | None]:
    """Takes an outermost `repeat` off a pipeline.

    Args:
        dataset: the pipeline; stages that prefetch or set options may stand above the repeat.

    Returns:
        What was repeated, and how often (None: without end); the pipeline itself and 1 if it does
        not end in a repeat.
    """
    inner: Any = dataset
    prefetches = False
    while type(inner).__name__ in ("_PrefetchDataset", "_OptionsDataset"):
        prefetches = prefetches or type(inner).__name__ == "_PrefetchDataset"
        inner = inner._input_dataset
    if type(inner).__name__ != "_RepeatDataset":
        return dataset, 1
    count = int(inner._count)
    once = inner._input_dataset.with_options(dataset.options())
    return once.prefetch(tf.data.AUTOTUNE) if prefetches else once, None if count < 0 else count


def _judge_shuffle(shuffle: Any, graph: Any) -> Verdict:
    """Follows a reshuffling stage up to the pipeline's end."""
    node, loser = shuffle, None  # the first stage that may drop its input too early
    while True:
        consumers = [
            (other, position)
            for other in graph.node
            for position, name in enumerate(other.input)
            if name.split(":")[0] == node.name and other.op != "_Retval"
        ]
        if not consumers:
            return Verdict(reason=None, repeat_in_graph=loser is None)
        node, position = consumers[0]
        if node.op == _REPEAT and loser is None and _is_endless(node, graph):
            return Verdict(reason=None, repeat_in_graph=True)
        if len(consumers) > 1 or (position > 0 and node.op != "ZipDataset"):
            return _not_exact(shuffle, loser or node)
        if node.op not in _OPEN_AT_ONCE:
            return _not_exact(shuffle, loser or node)
        if loser is None and node.op not in _ELEMENTWISE:
            loser = node


def _judge_function(function: Any) -> Verdict:
    """Judges a function that makes datasets (of `interleave`, `flat_map` and the like)."""
    shuffles = [node for node in function.node_def if _reshuffles(node)]
    repeats = [node for node in function.node_def if node.op == _REPEAT]
    if shuffles and repeats:
        return _not_exact(shuffles[0], repeats[0])
    return Verdict(reason=None, repeat_in_graph=True)


def _reshuffles(node: Any) -> bool:
    flags = [node.attr[name].b for name in _RESHUFFLES if name in node.attr]
    return "Dataset" in node.op and any(flags)


def _is_endless(repeat: Any, graph: Any) -> bool:
    name = repeat.input[1].split(":")[0]
    for node in graph.node:
        if node.name == name and "value" in node.attr:
            return int(tf.make_ndarray(node.attr["value"].tensor)) < 0
    return False


def _not_exact(shuffle: Any, above: Any) -> Verdict:
    return Verdict(
        reason=(
            f"TensorFlow loses the state of {_stage(shuffle)} below {_stage(above)} between two "
            "passes; put .repeat() right after .shuffle(), or leave .repeat() out: the trainer "
            "repeats"
        ),
        repeat_in_graph=True,
    )


def _stage(node: Any) -> str:
    return f"{node.op.split('Dataset')[0].lower()}()"


def first_line(error: Exception) -> str:
    """Returns the first line of a TensorFlow error without the name of the operation."""
    text = str(error).splitlines()[0].split("}}", 1)[-1].split(" [Op:")[0]
    return text.rpartition("graph: ")[2].strip().rstrip(".")
