"""Each stage that `saveable` calls safe is measured, on the TensorFlow that the tests run on.

A stage is in its list if, and only if, it is here or among the pipelines of `test_data`, and a
position saved after any number of batches, twice in a row, is restored to the batches of a source
that was never cut.
"""

import re

import pytest
import tensorflow as tf

from trainer.data import dataset_source, saveable

from test_data import PIPELINES, mode_of, shuffled

numbers = tf.data.Dataset.range


def parsed(dataset):
    return dataset.map(lambda text: tf.strings.to_number(text, tf.int64))


def of_records(folder):
    path = str(folder / "records")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(7):
            writer.write(b"%d" % number)
    return parsed(tf.data.TFRecordDataset([path, path]))


def of_lines(folder):
    (folder / "lines").write_text("".join(f"{number}\n" for number in range(7)))
    return parsed(tf.data.TextLineDataset(str(folder / "lines")))


def of_bytes(folder):
    (folder / "bytes").write_bytes(b"0123456")
    return parsed(tf.data.FixedLengthRecordDataset(str(folder / "bytes"), 1))


def three(x):
    return numbers(x, x + 3)


# Name to what makes it, and how its position must be kept. Below a shuffle that takes new seeds at
# each pass, a stage has to open its input at once.
STAGES = {
    "parallel batch": (lambda _: shuffled().batch(3, num_parallel_calls=2), "passes"),
    "padded batch": (
        lambda _: shuffled().map(lambda x: tf.fill([x % 3], x)).padded_batch(3),
        "passes",
    ),
    "take": (lambda _: shuffled().take(7), "passes"),
    "skip": (lambda _: shuffled().skip(3), "passes"),
    "scan": (
        lambda _: shuffled().scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s * 3 + x)),
        "passes",
    ),
    "interleave": (lambda _: shuffled(4).interleave(three, cycle_length=2), "passes"),
    "flat map": (lambda _: shuffled(4).flat_map(three), "passes"),
    "group by window": (
        lambda _: shuffled().group_by_window(lambda x: x % 2, lambda _, w: w.batch(3), 3),
        "passes",
    ),
    "unbatch": (lambda _: shuffled().batch(3).unbatch(), "passes"),
    "options": (lambda _: shuffled().with_options(tf.data.Options()).map(lambda x: x), "graph"),
    "one tensor": (lambda _: tf.data.Dataset.from_tensors(tf.range(3)), "graph"),
    "slices": (lambda _: tf.data.Dataset.from_tensor_slices(tf.range(7)).batch(2), "graph"),
    "records": (of_records, "graph"),
    "lines": (of_lines, "graph"),
    "bytes": (of_bytes, "graph"),
    "shard": (lambda _: numbers(10).shard(2, 1), "graph"),
    "rebatch": (lambda _: numbers(10).batch(4).rebatch(3), "graph"),
    "cardinality": (
        lambda _: (
            numbers(10)
            .filter(lambda x: x > 2)
            .apply(tf.data.experimental.assert_cardinality(7))
            .batch(2)
        ),
        "graph",
    ),
    "concatenate": (lambda _: numbers(4).concatenate(numbers(5)).batch(2), "graph"),
}


def draw(source, count):
    """Returns the next batches of a source, as a run draws them."""
    batches = []
    while len(batches) < count:
        batch = next(source.iterator, None)
        if batch is None:
            assert source.open_next_epoch()
        else:
            source.drawn(1)
            batches.append(batch.numpy().tolist())
    return batches


@pytest.mark.parametrize("name", list(STAGES))
def test_a_stage_goes_on_exactly(tmp_path, name):
    make, mode = STAGES[name]

    def source():
        return dataset_source.DatasetSource(lambda: make(tmp_path), None)

    assert mode_of(source()) == mode
    steps = 24
    whole = draw(source(), steps)
    for first in range(0, steps, 2):
        before, between, after = source(), source(), source()
        assert draw(before, first) == whole[:first]
        between.restore(before.saved(), by_count=False)
        assert draw(between, 1) == whole[first : first + 1]
        after.restore(between.saved(), by_count=False)
        assert draw(after, steps - first - 1) == whole[first + 1 :]


def stages(dataset):
    """Returns the stages of a pipeline by TensorFlow's names, those in functions included."""
    graph, _ = saveable.read(dataset)
    nodes = [*graph.node, *(n for function in graph.library.function for n in function.node_def)]
    return {node.op for node in nodes if re.search(r"Dataset(V\d)?$", node.op)}


def test_a_stage_is_called_safe_if_and_only_if_it_is_measured(tmp_path):
    made = [make(tmp_path) for make, _ in STAGES.values()]
    made += [make() for make, mode in PIPELINES.values() if mode != "replay"]
    assert set().union(*map(stages, made)) == saveable._RESTORED
