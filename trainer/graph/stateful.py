"""Which of TensorFlow's operations have state or look at the world, and of which kind.

Owns the sorting of operation types into kinds. Promises that an operation which TensorFlow itself
calls stateful and that is not known to be harmless has a kind, so that new ones are named too.
Refuses to look at a graph (see `inspection`).
"""

from __future__ import annotations

import functools
import re
from typing import Any

from tensorflow.python.framework import op_def_registry

ITERATOR, PYTHON, CONTENT, TABLE, RANDOM = "iterator", "python", "content", "table", "random"
WORLD, FILE, VARIABLE, UNKNOWN = "world", "file", "variable", "unknown"

ADVICE = {
    ITERATOR: "its position is in no checkpoint; zip that data into train_dataset()",
    PYTHON: "what a Python function does is in no checkpoint; write it with TensorFlow operations",
    CONTENT: "a table's or queue's content is in no checkpoint; hold it in a tf.Variable",
    TABLE: (
        "the content of a table that can change is in no checkpoint; hold it in a tf.Variable, or "
        "in a tf.lookup.StaticHashTable if it never changes"
    ),
    # Random kernels keep a counter of their own; their stateless kin have a seed as an input.
    RANDOM: (
        "its random state is in the kernel and starts over after a restart; use "
        "tf.keras.layers (Dropout and the like), a tf.random.Generator held as an attribute, "
        "or tf.random.stateless_* keyed by self.step"
    ),
    WORLD: (
        "it gives another value each time, and after a restart too; use what is saved, such as "
        "self.step, or tf.random.stateless_* keyed by self.step for random numbers"
    ),
    FILE: (
        "what a file holds is in no checkpoint; read it once in build() into a tf.constant or "
        "tf.Variable, or make it part of train_dataset()"
    ),
    VARIABLE: "a variable that is made in the graph by its name is in no checkpoint; make it in "
    "build() and hold it as an attribute",
    UNKNOWN: "TensorFlow says that it has state, and no checkpoint holds that; hold what it keeps "
    "in a tf.Variable",
}

# They have seeds, too, and draw nothing themselves, or are judged by another rule.
_NOT_RANDOM = r"Dataset|Queue|^ComputeAccidentalHits$|^AllCandidateSampler$|^CudnnRNN"

# In order: the first that fits a type in full decides. None: nothing that a restart would lose.
_KINDS: tuple[tuple[str | None, str], ...] = (
    (ITERATOR, r"IteratorGetNext\w*|MultiDeviceIteratorGetNextFromShard"),
    (PYTHON, r"PyFunc|PyFuncStateless|EagerPyFunc"),
    (WORLD, r"Timestamp|NonDeterministicInts|GlobalIterId"),
    (
        FILE,
        r"ReadFile|MatchingFiles|Restore(Slice|V2)?|LoadAndRemapMatrix|RecordInput"
        r"|Reader(Read|NumRecords|NumWorkUnits|Serialize|Restore|Reset)\w*",
    ),
    (TABLE, r"LookupTable(Find|Size|Export)(V2)?"),
    (
        CONTENT,
        r"LookupTable(Insert|Remove|Import)(V2)?|Queue(Enqueue|Dequeue|Size|IsClosed|Close)\w*"
        r"|FakeQueue|Stack(Push|Pop|Close)(V2)?|Stage(Peek|Size|Clear)?|Unstage"
        r"|(Ordered)?Map(Stage|Unstage|UnstageNoKey|Peek|Size|IncompleteSize|Clear)"
        r"|Barrier\w+|(Resource)?Accumulator\w+|(Add|Take)\w*Sparse\w*TensorsMap"
        r"|BoostedTrees(?!Aggregate|Bucketize|Calculate|Make|Sparse)\w+|IsBoostedTrees\w+"
        r"|(Get|Delete)Session(Handle|Tensor)(V2)?"
        r"|InfeedDequeue\w*|OutfeedDequeue\w*|XlaSparseCore\w+|StoreMinibatchStatisticsInFdo"
        r"|(Dynamic)?Enqueue\w*TPUEmbedding\w*|(Load|Retrieve)TPUEmbedding\w+"
        r"|(Recv|Send)TPUEmbedding\w+",
    ),
    (VARIABLE, r"VarHandleOp|Variable(V2)?"),
    # Variables that are inputs: the coverage check sees them.
    (
        None,
        r"ReadVariable\w+|Assign\w*Variable\w*|Resource(Apply|SparseApply|Scatter|Gather)\w*"
        r"|ResourceStridedSliceAssign|ResourceCountUpTo|VariableShape|VarIsInitializedOp"
        r"|DisableCopyOnRead|DestroyResourceOp|Rng(Skip|ReadAndSkip)|StatelessRandomGetAlg"
        r"|Stateful(RandomBinomial|(Standard|Truncated)Normal(V2)?|Uniform(Int|FullInt)?)",
    ),
    # Said or written, and never read back.
    (
        None,
        r"Assert|Print(V2)?|\w*Summary\w*|CheckNumerics(V2)?|DebugIdentity\w*|ImportEvent"
        r"|\w*StatsAggregator\w*|WriteFile|Save(V2|Slices)?|DistributedSave|MergeV2Checkpoints"
        r"|FileSystemSetConfiguration|OutfeedEnqueue\w*|InfeedEnqueue\w*",
    ),
    # Made for one call, or only a handle: what is done with it has a kind of its own.
    (
        None,
        r"TensorArray\w*|Empty|DeepCopy|GuaranteeConst|Mutex\w*|ConsumeMutexLock"
        r"|TemporaryVariable|\w*HashTable\w*|InitializeTable\w*|(\w*Queue|Stack|Barrier)(V2)?"
        r"|(Resource|Sparse)?ConditionalAccumulator|\w+Reader(V2)?",
    ),
    # Data in the making, which `data` judges; functions; the machine.
    (
        None,
        r"\w*Dataset\w*|\w*Iterator\w*|\w*SeedGenerator|\w*MemoryCache|DummyIterationCounter"
        r"|\w*ThreadPoolHandle|If|While|Case|StatefulPartitionedCall|RemoteCall|Collective\w+"
        r"|Nccl\w+|CrossReplicaSum|AllToAll|Send|Recv|DeviceIndex|SyncDevice|WorkerHeartbeat"
        r"|(Configure|Shutdown)\w*TPU\w*|IsTPUEmbeddingInitialized|TPU(Annotate|Copy|Dummy)\w+"
        r"|TPUOrdinalSelector|AssignVariableXlaConcatND|ReadVariableXlaSplitND|ConvertToCooTensor"
        r"|GetMinibatch\w+|AllCandidateSampler",
    ),
)


def kind_of(op_type: str, attributes: Any) -> str | None:
    """Returns the kind of an operation, or None if no restart changes what it gives.

    Args:
        op_type: its type.
        attributes: its attributes, as in a `NodeDef`.
    """
    if re.fullmatch(r"CudnnRNN(Backprop)?(V\d)?", op_type):  # random only where it drops something
        return RANDOM if attributes["dropout"].f else None
    return _kind_of_type(op_type)


def draws(op_type: str) -> bool:
    """Tells whether an operation draws random numbers from a variable."""
    return op_type.startswith("Rng") or re.match(r"Stateful(?!Partitioned)", op_type) is not None


def makes_mutable_table(op_type: str) -> bool:
    """Tells whether an operation makes a table that can change."""
    return op_type.startswith(("MutableHashTable", "MutableDenseHashTable", "AnonymousMutable"))


@functools.cache
def _kind_of_type(op_type: str) -> str | None:
    known = op_def_registry.get(op_type)
    given = {attribute.name for attribute in known.attr} if known is not None else set()
    if {"seed", "seed2"} <= given and not re.search(_NOT_RANDOM, op_type):
        return RANDOM
    for kind, pattern in _KINDS:
        if re.fullmatch(pattern, op_type):
            return kind
    return UNKNOWN if known is not None and known.is_stateful else None
