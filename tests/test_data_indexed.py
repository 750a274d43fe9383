"""Data addressed by number, and data with a state of their own (K03, K10, K14)."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import data, testing
from trainer.checkpoints import store

from conftest import Summing, crash

IDS = np.arange(10)


def batches(indexed, count, start=0, **how):
    """Returns the first batches as lists."""
    dataset = indexed.dataset(start, **how).take(count)
    return [batch.numpy().tolist() for batch in dataset]


def flat(lists):
    return [number for some in lists for number in some]


# The order


def test_each_pass_holds_every_example_once_in_another_order():
    indexed = data.Indexed(IDS, batch_size=3, seed=7, drop_remainder=False)
    assert len(indexed) == 4
    passes = [flat(batches(indexed, 4, start)) for start in (0, 4, 8)]
    for order in passes:
        assert sorted(order) == IDS.tolist()
    assert len({tuple(order) for order in passes}) == 3
    assert [len(batch) for batch in batches(indexed, 8)] == [3, 3, 3, 1] * 2


def test_a_remainder_is_dropped_from_another_place_each_pass():
    indexed = data.Indexed(IDS, batch_size=3, seed=7)
    assert len(indexed) == 3
    left_out = [set(IDS) - set(flat(batches(indexed, 3, 3 * n))) for n in range(8)]
    assert all(len(some) == 1 for some in left_out)
    assert len(set(map(frozenset, left_out))) > 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 1000])
def test_small_and_odd_sizes(size):
    indexed = data.Indexed(np.arange(size), batch_size=4, seed=1, drop_remainder=False)
    assert sorted(flat(batches(indexed, len(indexed)))) == list(range(size))


def test_without_shuffle_the_order_is_the_sources():
    indexed = data.Indexed(IDS, batch_size=4, shuffle=False, drop_remainder=False)
    assert batches(indexed, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3]]


def test_the_seed_makes_the_order():
    orders = [
        flat(batches(data.Indexed(IDS, batch_size=5, seed=n), 2)) for n in (0, 0, 1, 2**31 - 1)
    ]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 3


@pytest.mark.parametrize("start", [0, 1, 5, 1000, 10**6])
def test_a_batch_depends_on_its_number_alone(start):
    indexed = data.Indexed(IDS, batch_size=3, seed=7, drop_remainder=False)
    assert batches(indexed, 3, start)[1:] == batches(indexed, 2, start + 1)


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("drop", [True, False])
def test_the_order_does_not_depend_on_who_shares_a_batch(parts, drop):
    indexed = data.Indexed(np.arange(30), batch_size=4, seed=7, drop_remainder=drop)
    whole = batches(indexed, 17)
    shares = [batches(indexed, 17, share=(part, parts)) for part in range(parts)]
    assert [flat(some) for some in zip(*shares, strict=True)] == whole


def test_an_end_after_so_many_passes():
    indexed = data.Indexed(IDS, batch_size=5, seed=7, epochs=2)
    assert len(list(indexed.dataset())) == 4
    assert list(indexed.dataset(4)) == []
    assert len(list(indexed.limited(1).dataset())) == 2
    assert indexed.limited(3) is indexed


def test_map_fn_gets_a_seed_of_its_own():
    def noise(batch, seed):
        return tf.random.stateless_uniform(tf.shape(batch), seed)

    indexed = data.Indexed(IDS, batch_size=5, seed=7, map_fn=noise)
    values = batches(indexed, 6)
    assert batches(indexed, 3, 3) == values[3:]
    assert len(set(flat(values))) == 30


def test_nested_sources():
    indexed = data.Indexed(
        {"a": IDS, "b": (IDS * 2.0, tf.constant([str(n) for n in IDS]))}, batch_size=2
    )
    batch = next(iter(indexed.dataset()))
    first = int(batch["a"][0])
    assert float(batch["b"][0][0]) == 2 * first
    assert batch["b"][1][0].numpy() == str(first).encode()


# Sources


class Squares:
    """A source that is no array."""

    def __len__(self):
        return 100

    def lookup(self, indices):
        return indices * indices


def test_a_source_with_a_lookup():
    indexed = data.Indexed(Squares(), batch_size=10, seed=7)
    assert sorted(flat(batches(indexed, 10))) == [n * n for n in range(100)]


def test_records_of_one_length(tmp_path):
    table = np.arange(40, dtype=np.uint8).reshape(10, 4)
    path = tmp_path / "with blank [1].bin"
    path.write_bytes(table.tobytes())
    records = data.FixedLengthRecords(path, 4, lambda content: content)
    assert len(records) == 10
    indexed = data.Indexed(records, batch_size=5, shuffle=False)
    assert batches(indexed, 2) == [table[:5].tolist(), table[5:].tolist()]
    with pytest.raises(ValueError, match="has 40 bytes, which is no multiple of record_bytes=7"):
        data.FixedLengthRecords(path, 7, lambda content: content)
    with pytest.raises(ValueError, match=r"gone cannot be read \(No such file"):
        data.FixedLengthRecords(tmp_path / "gone", 4, lambda content: content)


def test_array_records(tmp_path):
    module = pytest.importorskip("array_record.python.array_record_module")
    writer = module.ArrayRecordWriter(str(tmp_path / "a"), "group_size:1")
    for number in range(10):
        writer.write(str(number).encode())
    writer.close()
    records = data.ArrayRecords([tmp_path / "a"], tf.strings.to_number)
    indexed = data.Indexed(records, batch_size=5, seed=7)
    assert sorted(flat(batches(indexed, 2))) == IDS.tolist()


# Bad input


class Wrong(Squares):
    def lookup(self, indices):
        return tf.zeros([3])


class Scalar(Squares):
    def lookup(self, indices):
        return tf.zeros([])


@pytest.mark.parametrize(
    ("source", "settings", "text"),
    [
        ({"a": IDS, "b": IDS[:9]}, {}, r"different leading dimensions: \[9, 10\]"),
        (IDS[:0], {}, "the source of Indexed is empty"),
        (3.0, {}, "got float with a value that has no leading dimension"),
        ({}, {}, "got dict with no array"),
        (IDS, {"batch_size": 11}, "batch_size=11 is more than the 10 examples"),
        (IDS, {"batch_size": 0}, "batch_size must be a whole number from 1 .*, got 0"),
        (IDS, {"batch_size": 2.5}, "batch_size must be a whole number"),
        (IDS, {"seed": -1}, "seed must be a whole number from 0 .*, got -1"),
        (IDS, {"seed": True}, "seed must be a whole number"),
        (IDS, {"epochs": 0}, "epochs must be a whole number from 1"),
    ],
)
def test_bad_arguments(source, settings, text):
    with pytest.raises(ValueError, match=text):
        data.Indexed(source, **{"batch_size": 2} | settings)


@pytest.mark.parametrize("source", [Wrong(), Scalar()])
def test_a_lookup_that_returns_another_size(source):
    with pytest.raises(ValueError, match="its leading dimension must be that of the indices"):
        data.Indexed(source, batch_size=2).dataset()


def test_a_share_that_does_not_fit():
    with pytest.raises(ValueError, match=r"share=\(0, 3\) does not fit batch_size=4"):
        data.Indexed(IDS, batch_size=4).dataset(share=(0, 3))


# In a run


class Ids(Summing):
    """Keeps the ids of every batch in a hook's file; w is their sum."""

    def train_dataset(self):
        return data.Indexed(np.arange(10.0, dtype=np.float32), batch_size=3, drop_remainder=False)

    def train_step(self, batch):
        self.w.assign_add(tf.reduce_sum(batch))
        places = 10.0 ** tf.range(0.0, 2.0 * tf.cast(tf.size(batch), tf.float32), 2.0)
        return {"ids": tf.reduce_sum((batch + 1) * places), "epoch_of": tf.constant(0.0)}


class Remember(trainer.Hook):
    """Notes what each step saw; a step that was trained again replaces the first time."""

    def __init__(self):
        self.seen = {}

    def after_step(self, ctx):
        self.seen[ctx.step] = (float(ctx.outputs["ids"]), ctx.epoch, ctx.epoch_step)

    def get_state(self):
        return {}


def test_the_ids_across_three_crashes_equal_the_unbroken_runs(make, folder):
    """Two of the crashes come right at the end of a pass."""
    unbroken = Remember()
    make(Ids, [unbroken], model_dir=folder + "-unbroken", save_every_steps=4).train(max_steps=14)
    cut = Remember()
    for step in (4, 9, 12):
        program = make(Ids, [cut, testing.CrashAt(step)], save_every_steps=4)
        crash(program, max_steps=14)
    make(Ids, [cut], save_every_steps=4).train(max_steps=14)
    assert cut.seen == unbroken.seen
    assert [cut.seen[step][1:] for step in (1, 4, 5, 12, 14)] == [
        *((1, 1), (1, 4), (2, 1), (3, 4), (4, 2)),
    ]
    for first in (1, 5, 9):
        digits = "".join(f"{int(cut.seen[step][0]):06d}" for step in range(first, first + 3))
        digits += f"{int(cut.seen[first + 3][0]):02d}"
        ids = sorted(int(digits[place : place + 2]) for place in range(0, len(digits), 2))
        assert ids == list(range(1, 11))


def test_the_position_takes_a_few_numbers(make, folder):
    make(Ids, max_steps=4).train()
    tensors = store.Store(folder).manifest(4).tensors
    assert {name: what for name, what in tensors.items() if name.startswith("trainer/data/")} == {
        "trainer/data/position": ["int64", []],
        "trainer/data/indexed": ["int64", [5]],
    }


def test_another_order_is_said(make, said):
    make(Ids, max_steps=4).train()

    class Other(Ids):
        def train_dataset(self):
            return data.Indexed(np.arange(10.0, dtype=np.float32), batch_size=5, seed=1)

    make(Other)
    assert "the order of the data is another one from batch 4 on: batch_size was 3, now 5" in said()
    assert "seed was " in said()
    assert "drop_remainder was 0, now 1" in said()
    assert "examples of this pass may come twice or not at all" in said()


@pytest.mark.parametrize("epochs", ["config", "source"])
def test_epochs_end_the_run(make, epochs):
    class Finite(Ids):
        def train_dataset(self):
            indexed = super().train_dataset()
            return indexed.limited(2) if epochs == "source" else indexed

    settings = {"epochs": 2} if epochs == "config" else {}
    result = make(Finite, max_steps=100, **settings).train()
    assert result == trainer.RunResult(8, "out_of_data")
    if epochs == "config":
        assert make(Finite, epochs=2).train() == trainer.RunResult(8, "already_finished")


def test_a_run_may_go_on_with_other_data(make, said):
    """From a pipeline to Indexed and back: the number of batches is what both understand."""
    make(max_steps=6).train()

    class Numbered(Summing):
        def train_dataset(self):
            return data.Indexed(
                np.arange(1.0, 1001.0, dtype=np.float32), batch_size=1, shuffle=False
            )

        def train_step(self, x):
            return super().train_step(x[0])

    program = make(Numbered)
    program.train(max_steps=8)
    assert float(program.w) == 36
    back = make(max_steps=10)
    back.train()
    assert float(back.w) == 55


def test_the_seed_of_the_run_is_the_datas(make, folder):
    orders = []
    for seed in (1, 1, 2):
        hook = Remember()
        program = make(Ids, [hook], model_dir=f"{folder}{len(orders)}", seed=seed)
        program.train(max_steps=4)
        orders.append(hook.seen)
    assert orders[0] == orders[1] != orders[2]


def test_evaluation_moves_nothing(make, folder):
    """The evaluation data draw from the global generators, and are the same each time (K30)."""

    class Evaluated(Ids):
        def eval_dataset(self):
            return data.Indexed(np.random.normal(size=10).astype(np.float32), batch_size=5)

        def eval_step(self, batch):
            return {"mean": tf.reduce_mean(batch)}

    class Evaluate(trainer.Hook):
        def after_step(self, ctx):
            found.append(ctx.trainer.evaluate()["mean"])

        def get_state(self):
            return {}

    found = []
    seen = []
    for hooks in ([], [Evaluate()]):
        with make(Evaluated, hooks, model_dir=f"{folder}{len(seen)}") as program:
            program.train(max_steps=5)
            seen.append(testing.state_digests(program))
    seen[1].pop("trainer/hooks/Evaluate", None)
    assert seen[0] == seen[1]
    assert len(found) == 5
    assert len(set(found)) == 1


def test_iterating_is_one_pass():
    assert sorted(flat(b.numpy().tolist() for b in data.Indexed(IDS, batch_size=5))) == IDS.tolist()


# Python sources


class Counter:
    """1, 2, 3, … with a state; its own iterator."""

    def __init__(self, last=100, state=dict):
        self._last, self._state, self._next = last, state, 1

    def __iter__(self):
        return self

    def __next__(self):
        if self._next > self._last:
            raise StopIteration
        self._next += 1
        return np.float32(self._next - 1)

    def get_state(self):
        if self._state is bytes:
            return json.dumps(self._next).encode()
        return {"next": self._next} if self._state is dict else self

    def set_state(self, state):
        self._next = json.loads(state) if self._state is bytes else state["next"]


def counting(**how):
    return type("Counting", (Summing,), {"train_dataset": lambda self: Counter(**how)})


@pytest.mark.parametrize("state", [dict, bytes])
def test_a_python_source_goes_on_by_its_state(make, said, state):
    cls = counting(state=state)
    crash(make(cls, hooks=[testing.CrashAt(8)]), max_steps=10)
    program = make(cls, max_steps=10)
    assert program.restored_step == 6
    program.train()
    assert float(program.w) == 55
    assert "data position: the state of Counter" in said()


def test_a_python_source_that_ends(make):
    result = make(counting(last=7), max_steps=10).train()
    assert result == trainer.RunResult(7, "out_of_data")


def test_a_python_source_drawn_again(make, said):
    make(counting(), max_steps=6).train()
    program = make(counting(), max_steps=10, keep_program_values=("trainer/data/*",))
    program.train()
    assert float(program.w) == 55
    assert "drawing 6 batches again" in said()


class Reshuffling:
    """Another order each time it is gone through, by a count of its own."""

    def __init__(self):
        self._passes = 0

    def __iter__(self):
        self._passes += 1
        order = np.random.default_rng(self._passes).permutation(5) + 1
        return ReshufflingIterator(order)


class ReshufflingIterator(Counter):
    def __init__(self, order):
        super().__init__(last=len(order))
        self._order = order

    def __next__(self):
        return np.float32(self._order[int(super().__next__()) - 1])


def test_a_python_source_that_counts_its_passes():
    shuffled = type("Shuffled", (Summing,), {"train_dataset": lambda self: Reshuffling()})

    class Weighted(shuffled):
        def train_step(self, x):
            self.w.assign(self.w * 1.1)
            return super().train_step(x)

    def make(folder, hooks):
        config = trainer.TrainerConfig(folder, save_every_steps=3, seed=7)
        return Weighted(config, hooks=hooks)

    testing.assert_resumes_exactly(make, steps=23, crashes=[4, 10, 16, 20])


def test_a_python_source_replayed_on_request(make, folder, said):
    make(counting(), max_steps=6, data_position="replay").train()
    assert "Counter is drawn from again by count (data_position='replay')" in said()
    assert "trainer/data/state" not in store.Store(folder).manifest(6).tensors
    program = make(counting(), max_steps=10, data_position="replay")
    program.train()
    assert float(program.w) == 55


@pytest.mark.parametrize("kind", ["map_fn", "generator", "lookup"])
def test_hidden_randomness_in_indexed_is_named(make, said, kind):
    class Random(Summing):
        def build(self):
            super().build()
            self.generator = tf.random.Generator.from_seed(1)

        def train_dataset(self):
            def noisy(batch, seed):
                if kind == "generator":
                    return batch + self.generator.uniform([1])
                return batch + tf.random.uniform([1])

            class Python(Squares):
                def lookup(self, indices):
                    return tf.numpy_function(lambda n: np.float32(n), [indices], tf.float32)

            if kind == "lookup":
                return data.Indexed(Python(), batch_size=1)
            return data.Indexed(np.float32(IDS), batch_size=1, map_fn=noisy)

        def train_step(self, x):
            return super().train_step(tf.reduce_sum(x))

    make(Random)
    assert "the batches of Indexed do not depend on their number alone (" in said()
    assert "from the seed that it is given" in said()


def test_sparse_and_ragged_sources():
    with pytest.raises(ValueError, match=r"has a RaggedTensor; give dense arrays"):
        data.Indexed({"a": tf.ragged.constant([[1], [2, 3]])}, batch_size=1)
    with pytest.raises(ValueError, match=r"has a SparseTensor; give dense arrays"):
        data.Indexed(tf.sparse.from_dense([[1, 0]]), batch_size=1)


def test_bad_python_sources(make):
    with pytest.raises(ValueError, match=r"epochs=3 needs data that can be gone through again"):
        make(counting(), epochs=3)
    listed = type("Listed", (Counter,), {"__next__": lambda self: [np.float32(1)]})
    with pytest.raises(ValueError, match="gave a list as its batch; give a tuple or a dict"):
        make(type("Lists", (Summing,), {"train_dataset": lambda self: listed()}))
    with pytest.raises(ValueError, match="neither JSON nor bytes"):
        make(counting(state=list))
    with pytest.raises(ValueError, match="gave no batch"):
        make(counting(last=0))
    lists = type("Lists", (Summing,), {"train_dataset": lambda self: [1.0, 2.0]})
    with pytest.raises(
        ValueError, match=r"returned list; return a tf\.data\.Dataset, a trainer\.d"
    ):
        make(lists)


def test_a_real_grain_iterator(make, folder):
    grain = pytest.importorskip("grain.python")

    class Grained(Summing):
        def train_dataset(self):
            numbers = grain.MapDataset.range(1, 11).shuffle(seed=3).map(np.float32)
            return numbers.to_iter_dataset()

    xs = {}

    class Note(trainer.Hook):
        def after_step(self, ctx):
            xs[ctx.step] = float(ctx.outputs["x"])

        def get_state(self):
            return {}

    make(Grained, [Note()], model_dir=folder + "-unbroken").train(max_steps=25)
    unbroken = dict(xs)
    xs.clear()
    for step in (4, 10, 17):
        crash(make(Grained, [Note(), testing.CrashAt(step)]), max_steps=25)
    make(Grained, [Note()]).train(max_steps=25)
    assert xs == unbroken
    assert sorted(unbroken[step] for step in range(1, 11)) == list(range(1, 11))


# tf.data: forcing a choice, and large states (K14)


def test_a_choice_that_cannot_be_had(make):
    class Generated(Summing):
        def train_dataset(self):
            def numbers():
                yield from np.arange(1.0, 100.0, dtype=np.float32)

            return tf.data.Dataset.from_generator(
                numbers, output_signature=tf.TensorSpec((), tf.float32)
            )

    with pytest.raises(ValueError, match="data_position='saved' cannot be had: PyFunc is stateful"):
        make(Generated, data_position="saved")
    with pytest.raises(ValueError, match="data_position must be one of 'auto', 'saved', 'replay'"):
        make(data_position="sometimes")


def test_a_replay_on_request(make, said, folder):
    crash(make(hooks=[testing.CrashAt(8)], data_position="replay"), max_steps=10)
    assert "data position: replayed by count (data_position='replay')" in said()
    assert "trainer/data/iterator" not in store.Store(folder).manifest(6).tensors
    program = make(max_steps=10, data_position="replay")
    program.train()
    assert float(program.w) == 55


def test_the_size_of_a_saved_position_is_said(make, said):
    make()
    assert "data position: saved with the checkpoint, about " in said()


def test_a_large_position_is_warned_of(make, said, folder):
    class Buffered(Summing):
        def train_dataset(self):
            rows = tf.data.Dataset.range(20_000).map(
                lambda n: tf.fill([256], tf.cast(n, tf.float32))
            )
            return rows.shuffle(10_000).map(lambda row: row[0])

    make(Buffered, max_steps=3).train()
    assert "the position in the data takes " in said()
    assert "trainer.data.Indexed shuffles numbers instead" in said()
    assert os.path.getsize(f"{folder}/ckpt-3/state.data-00000-of-00001") > 1_000_000


def test_no_warning_of_a_small_position(make, said):
    make(max_steps=3).train()
    assert "the position in the data takes" not in said()
