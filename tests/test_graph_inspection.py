"""Operations that look at the world or hold state are named, and no others (K08)."""

import pytest
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.framework import op_def_registry

from trainer.graph import inspection, stateful

from conftest import Summing

INT = tf.int64


def registered():
    """Yields the name and the definition of each operation that TensorFlow offers."""
    for name in dir(tf.raw_ops):
        known = op_def_registry.get(name)
        if known is not None:
            yield name, known


def kind(name, **floats):
    node = node_def_pb2.NodeDef()
    node.attr["dropout"].f = floats.get("dropout", 0.0)
    return stateful.kind_of(name, node.attr)


def test_no_operation_of_the_registry_is_unknown():
    """A stateful one that nobody sorted would be named as unknown: sort it, then."""
    assert not [name for name, _ in registered() if kind(name) == stateful.UNKNOWN]
    assert sum(known.is_stateful for _, known in registered()) > 400  # the registry was read


FAMILIES = {
    stateful.RANDOM: "RandomUniform RandomStandardNormal TruncatedNormal RandomShuffle Multinomial "
    "RandomGamma RandomPoissonV2 UniformCandidateSampler SampleDistortedBoundingBoxV2",
    stateful.WORLD: "Timestamp NonDeterministicInts",
    stateful.FILE: "ReadFile MatchingFiles RestoreV2 ReaderReadV2 RecordInput",
    stateful.TABLE: "LookupTableFindV2 LookupTableSizeV2 LookupTableExportV2",
    stateful.CONTENT: "LookupTableInsertV2 LookupTableRemoveV2 QueueEnqueueV2 QueueDequeueManyV2 "
    "QueueSizeV2 Stage Unstage MapStage OrderedMapUnstage BarrierInsertMany BarrierTakeMany "
    "ResourceAccumulatorTakeGradient StackPushV2 GetSessionTensor BoostedTreesUpdateEnsembleV2",
    stateful.PYTHON: "PyFunc PyFuncStateless EagerPyFunc",
    stateful.ITERATOR: "IteratorGetNext IteratorGetNextAsOptional IteratorGetNextSync",
    stateful.VARIABLE: "VarHandleOp VariableV2",
    None: "ReadVariableOp AssignAddVariableOp ResourceApplyAdam ResourceScatterNdUpdate "
    "RngReadAndSkip StatefulUniform StatefulPartitionedCall While If Assert PrintV2 WriteSummary "
    "WriteScalarSummary CheckNumericsV2 TensorArrayV3 TensorArrayWriteV3 MutexLock "
    "ShuffleDatasetV3 "
    "SnapshotDatasetV2 MapDataset CollectiveReduceV2 HashTableV2 InitializeTableV2 FIFOQueueV2 "
    "StatelessRandomUniformV2 ComputeAccidentalHits BoostedTreesBucketize MatMul Empty",
}


@pytest.mark.parametrize("expected", FAMILIES, ids=str)
def test_families(expected):
    known = {name for name, _ in registered()}
    for name in FAMILIES[expected].split():
        assert name in known, name
        assert kind(name) == expected, name


def test_what_has_a_seed_is_random_or_known_to_draw_nothing():
    seeded = {
        name for name, known in registered() if {"seed", "seed2"} <= {a.name for a in known.attr}
    }
    harmless = {name for name in seeded if kind(name) != stateful.RANDOM and "Queue" not in name}
    assert harmless == {name for name in seeded if name.startswith("CudnnRNN")} | {
        *("AllCandidateSampler", "ComputeAccidentalHits", "SnapshotDataset"),
    }
    assert kind("CudnnRNNV3", dropout=0.5) == stateful.RANDOM
    assert kind("CudnnRNNBackpropV3", dropout=0.5) == stateful.RANDOM


def named(function, *signature):
    traced = tf.function(function).get_concrete_function(*signature)
    return [hidden.op for hidden in inspection.hidden_state(traced)]


def constant_table():
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2], INT), tf.constant([0, 1], INT))
    return tf.lookup.StaticHashTable(pairs, -1), tf.lookup.StaticVocabularyTable(pairs, 1)


def test_only_tables_that_can_change_are_named():
    spec = tf.TensorSpec([1], INT)
    static, vocabulary = constant_table()
    assert named(lambda x: static.lookup(x) + vocabulary.lookup(x) + vocabulary.size(), spec) == []
    words = tf.keras.layers.StringLookup(vocabulary=["a", "b"])
    text = tf.keras.layers.TextVectorization(vocabulary=["a", "b"])
    assert named(lambda x: (words(x), text(x)), tf.TensorSpec([1], tf.string)) == []
    for table in (
        tf.lookup.experimental.MutableHashTable(INT, INT, 0),
        tf.lookup.experimental.DenseHashTable(INT, INT, 0, -1, -2),
    ):
        assert named(table.lookup, spec) == ["LookupTableFindV2"]
        inside = lambda x, t=table: tf.cond(x[0] > 0, lambda: t.lookup(x), lambda: x)  # noqa: E731
        assert named(inside, spec) == ["LookupTableFindV2"]


def step(operation):
    class Program(Summing):
        def train_step(self, x):
            return super().train_step(x + 0.0 * tf.reshape(tf.cast(operation(x), tf.float32), []))

    return Program


NAMED = {
    "Timestamp": lambda x: tf.timestamp(),
    "NonDeterministicInts": lambda x: tf.raw_ops.NonDeterministicInts(shape=[], dtype=INT),
    "ReadFile": lambda x: tf.strings.length(tf.io.read_file(__file__)),
    "PyFuncStateless": lambda x: tf.numpy_function(lambda v: v, [x], tf.float32, stateful=False),
}


@pytest.mark.parametrize("op", NAMED)
def test_the_step_that_looks_at_the_world_is_named(make, said, op):
    make(step(NAMED[op]))
    lines = [line for line in said().splitlines() if "a resumed run will differ" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"train_step: a resumed run will differ because of {op} (")
    assert "test_graph_inspection.py" in lines[0]


def test_a_table_that_a_hook_fills_is_named(make, said):
    class Program(Summing):
        def build(self):
            super().build()
            self.table = tf.lookup.experimental.MutableHashTable(INT, tf.float32, 1.0)

        def train_step(self, x):
            return super().train_step(x * tf.reshape(self.table.lookup(tf.constant(0, INT)), []))

    make(Program)
    assert "because of LookupTableFindV2 (" in said()
    assert "a table that can change is in no checkpoint" in said()


def test_what_is_harmless_is_not_named(make, said):
    static, _ = constant_table()

    def harmless(x):
        tf.print(x, output_stream="file:///dev/null")
        tf.debugging.assert_all_finite(x, "bad")
        tf.debugging.assert_greater(x, 0.0)
        found = static.lookup(tf.cast(x, INT))
        array = tf.TensorArray(tf.float32, 2).write(0, x).write(1, x)
        drawn = tf.random.stateless_uniform([], [1, 2])
        return array.read(0) + tf.cast(found, tf.float32) + drawn

    make(step(harmless))
    assert "will differ" not in said()
