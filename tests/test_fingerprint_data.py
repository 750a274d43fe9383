"""Data that are other ones at a restart, or have seeds that no restart has: refused, or told."""

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer.data import dataset_source
from trainer.fingerprint import data as data_part
from trainer.fingerprint import drawn, words

from conftest import run_python

AUTO = tf.data.AUTOTUNE
ORDER = ("trainer/data/order",)


class Drawing(trainer.Trainer):
    """Sums what it draws; `make` returns the data."""

    make = None

    def build(self):
        self.w = tf.Variable(0.0)

    def train_dataset(self):
        return type(self).make()

    def train_step(self, batch):
        leaf = tf.nest.flatten(batch)[0]
        self.w.assign_add(tf.reduce_sum(tf.cast(leaf, tf.float32)))
        return {"w": self.w}


def drawing(make):
    return type("Drawing", (Drawing,), {"make": staticmethod(make)})


@pytest.fixture
def unseeded():
    """TensorFlow, NumPy and Python as they are in a process that has seeded none of them."""
    from tensorflow.python.eager import context

    ctx = context.context()
    before = ctx._seed
    ctx._set_global_seed(None)
    np.random.seed()
    yield
    ctx._set_global_seed(before)


def ten():
    return tf.data.Dataset.range(10)


# Pipelines whose seeds the kernel or a helper draws when they are made.
DRAWN = {
    "shuffle": (lambda: ten().shuffle(4).batch(2), "shuffle()"),
    "one order": (lambda: ten().shuffle(4, reshuffle_each_iteration=False), "shuffle()"),
    "below others": (lambda: ten().shuffle(4).repeat().batch(2).map(lambda x: x), "shuffle()"),
    "random": (lambda: tf.data.Dataset.random().take(9), "random()"),
    "sample": (lambda: tf.data.Dataset.sample_from_datasets([ten(), ten()]), "random()"),
    "in interleave": (
        lambda: ten().interleave(lambda x: tf.data.Dataset.range(x).shuffle(3)),
        "interleave(), ShuffleDatasetV3 in its function",
    ),
    "in map": (
        lambda: ten().map(lambda x: tf.cast(x, tf.float32) + tf.random.uniform([])),
        "map(), RandomUniform in its function",
    ),
    "rejection": (
        lambda: ten().rejection_resample(lambda x: tf.cast(x % 2, tf.int32), [0.5, 0.5]),
        "RandomUniform in its function",
    ),
    "helper": (
        lambda: tf.keras.utils.timeseries_dataset_from_array(
            np.arange(20.0), None, 3, shuffle=True, batch_size=2
        ).map(lambda x: x * 2),
        "shuffle(), which a helper of Keras drew with NumPy",
    ),
    "old helper": (
        lambda: __import__("tf_keras").utils.timeseries_dataset_from_array(
            np.arange(20.0), None, 3, shuffle=True, batch_size=2
        ),
        "shuffle(), which a helper of Keras drew with NumPy",
    ),
    "Indexed": (lambda: trainer.data.Indexed(np.arange(10.0), batch_size=2), "Indexed()"),
}


def above_1000(make):
    """Makes data until the seed that NumPy gave is one that is looked for."""
    while True:
        state = np.random.get_state()
        number = np.random.randint(1e6)
        np.random.set_state(state)
        if number >= 1000:
            return make()
        np.random.rand()


@pytest.mark.parametrize("name", DRAWN)
def test_seeds_drawn_before_the_trainer_are_refused(name, make, unseeded, folder):
    create, stage = DRAWN[name]
    made = above_1000(create)
    with pytest.raises(trainer.UnseededDataError) as caught:
        make(drawing(lambda: made))
    text = str(caught.value)
    assert stage in text
    assert "Make the dataset inside train_dataset()" in text
    assert "a seed=" in text
    assert "keep_program_values=('trainer/data/order',)" in text
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, trainer.TrainerError)


@pytest.mark.parametrize("name", DRAWN)
def test_the_same_inside_train_dataset_is_accepted(name, make, unseeded, said, folder):
    create, _ = DRAWN[name]
    for _ in range(3):  # the second and third start with a generator that the first has seeded
        program = make(drawing(create))
        program.train(steps=1)
        program.close()
    assert "the program is not the one" not in said()
    assert "changed since" not in said()


@pytest.mark.parametrize("name", [name for name in DRAWN if name != "Indexed"])
def test_a_program_that_seeds_by_itself_is_accepted(name, make, unseeded):
    tf.keras.utils.set_random_seed(1234)
    made = DRAWN[name][0]()
    make(drawing(lambda: made))


@pytest.mark.parametrize("seed", [0, 42, 1337, 12345, 999_999, 2**31 - 1])
@pytest.mark.parametrize("set_global", [False, True])
def test_a_seed_given_outside_is_accepted(seed, set_global, make, unseeded):
    np.random.rand(700)  # so that the last words of the generator are used ones
    if set_global:
        tf.random.set_seed(5)
    made = ten().shuffle(4, seed=seed).batch(2).prefetch(AUTO)
    make(drawing(lambda: made))


def test_a_helpers_own_seed_is_accepted(make, unseeded):
    made = tf.keras.utils.timeseries_dataset_from_array(
        np.arange(20.0), None, 3, shuffle=True, seed=123, batch_size=2
    )
    make(drawing(lambda: made))


def test_it_goes_on_knowingly(make, unseeded, said):
    made = ten().shuffle(4)
    program = make(drawing(lambda: made), keep_program_values=ORDER)
    program.train(steps=3)
    program.close()
    assert "the seeds of shuffle() were drawn before the trainer seeded" in said()
    assert make(drawing(lambda: ten().shuffle(4)), keep_program_values=ORDER).step == 3
    assert "matches no name" not in said()


def test_numpys_last_draws_and_its_seed_are_read_from_its_state():
    for seed in (None, 7):
        for words_between in (0, 500, 1500):
            np.random.seed(seed)
            np.random.rand(words_between)
            number = np.random.randint(1e6)
            np.random.rand(50)
            state = drawn.state()
            assert number in drawn._last_draws(state)
            assert drawn._was_seeded(state[0]) is (seed is not None)


def restart(make, before, now, **settings):
    """Trains three steps on some data and starts again with others."""
    program = make(drawing(before))
    program.train(steps=3)
    program.close()
    return make(drawing(now), **settings)


def two_files(folder, contents, names=("a", "b")):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in zip(names, contents, strict=True):
        (folder / name).write_text(content)
    return [str(folder / name) for name in names]


def lines(paths):
    return lambda: tf.data.TextLineDataset(paths).map(tf.strings.length).repeat()


OTHER_ORDER = {
    "seed": (
        lambda: ten().shuffle(4, seed=1),
        lambda: ten().shuffle(4, seed=2),
        "shuffle(): seed [7, 1] -> [7, 2]",
    ),
    "buffer": (
        lambda: ten().shuffle(4, seed=1),
        lambda: ten().shuffle(5, seed=1),
        "shuffle(): buffer_size 4 -> 5",
    ),
    "no shuffle": (lambda: ten().shuffle(4, seed=1), ten, "one stage fewer: shuffle()"),
    "one shuffle more": (ten, lambda: ten().shuffle(4, seed=1), "one more stage: shuffle()"),
    "inner seed": (
        lambda: ten().interleave(lambda x: ten().shuffle(3, seed=1)),
        lambda: ten().interleave(lambda x: ten().shuffle(3, seed=2)),
        "interleave(): seeds inside [[7, 1]] -> [[7, 2]]",
    ),
}


@pytest.mark.parametrize("name", OTHER_ORDER)
def test_another_order_at_a_restart_is_refused(name, make, said):
    before, now, text = OTHER_ORDER[name]
    with pytest.raises(trainer.CheckpointMismatchError) as caught:
        restart(make, before, now)
    assert f"trainer/data/order: train_dataset: {text}" in str(caught.value)
    assert "keep_program_values=('trainer/data/order',) goes on all the same" in str(caught.value)
    program = make(drawing(now), keep_program_values=(*ORDER, "trainer/data/iterator"))
    assert program.step == 3
    assert text in said()


def test_a_seed_made_outside_that_is_another_one_names_the_old(make):
    with pytest.raises(trainer.CheckpointMismatchError, match=r"seed \[7, 4321\] -> \[7, 8765\]"):
        restart(make, lambda: ten().shuffle(9, 4321), lambda: ten().shuffle(9, 8765))


def test_files_in_another_order_are_refused(make, tmp_path):
    one, two = two_files(tmp_path, ("a\nbb\n", "ccc\ndddd\n"))
    with pytest.raises(trainer.CheckpointMismatchError, match="the same files in another order"):
        restart(make, lines([one, two]), lines([two, one]))


OTHER_DATA = {
    "batch size": (lambda: ten().batch(2), lambda: ten().batch(4), "batch(): batch_size 2 -> 4"),
    "rows": (
        lambda: tf.data.Dataset.from_tensor_slices(np.arange(20)),
        lambda: tf.data.Dataset.from_tensor_slices(np.arange(30)),
        "from_tensor_slices(): components int64[20] -> int64[30]",
    ),
    "values": (
        lambda: tf.data.Dataset.from_tensor_slices(np.arange(20)),
        lambda: tf.data.Dataset.from_tensor_slices(np.arange(20) + 1),
        "an array int64[20] in memory holds other values",
    ),
    "large": (
        lambda: tf.data.Dataset.from_tensor_slices(np.zeros((2000, 300), "float32")),
        lambda: tf.data.Dataset.from_tensor_slices(np.ones((2000, 300), "float32")),
        "an array float32[2000, 300] in memory holds other values",
    ),
    "captured": (
        lambda: ten().map(lambda x: tf.gather(np.arange(500), x)),
        lambda: ten().map(lambda x: tf.gather(np.arange(1, 501), x)),
        "map(): its function is another one",
    ),
    "function": (
        lambda: ten().map(lambda x: x + 1),
        lambda: ten().map(lambda x: x + 2),
        "map(): its function is another one",
    ),
    "range": (lambda: ten(), lambda: tf.data.Dataset.range(11), "range(): stop 10 -> 11"),
    "cache": (lambda: ten(), lambda: ten().cache(), "one more stage: cache()"),
    "remainder": (
        lambda: ten().batch(4).repeat(),
        lambda: ten().batch(4, drop_remainder=True).repeat(),
        "batch(): drop_remainder False -> True",
    ),
    "Indexed": (
        lambda: trainer.data.Indexed(np.arange(20.0), batch_size=2, seed=1),
        lambda: trainer.data.Indexed(np.arange(20.0) + 1, batch_size=2, seed=1),
        "an array float64[20] in memory holds other values",
    ),
    "kind": (
        lambda: trainer.data.Indexed(np.arange(10), batch_size=2, seed=1),
        lambda: ten().batch(2),
        "train_dataset: Indexed -> tf.data",
    ),
}


@pytest.mark.parametrize("name", OTHER_DATA)
def test_other_data_at_a_restart_are_told(name, make, said):
    before, now, text = OTHER_DATA[name]
    restart(make, before, now, keep_program_values=("trainer/data/iterator",))
    assert text in said()
    assert said().count("the program is not the one that wrote checkpoint 3") == 1


def test_files_that_hold_something_else_are_told(make, tmp_path, said):
    paths = two_files(tmp_path, ("a\nbb\n", "ccc\n"))
    program = make(drawing(lines(paths)))
    program.train(steps=3)
    program.close()
    two_files(tmp_path, ("a\nbb\n", "ddd\n"))
    make(drawing(lines(paths))).close()
    two_files(tmp_path, ("a\nbb\n", "dddddd\n"))
    make(drawing(lines(paths)))
    assert "1 of 2 files hold something else" in said()
    assert "bytes in files 9 -> 12" in said()


SAME = {
    "parallel calls": (
        lambda: ten().map(lambda x: x + 1, num_parallel_calls=2).prefetch(1),
        lambda: ten().map(lambda x: x + 1, num_parallel_calls=7).prefetch(9),
    ),
    "to parallel": (
        lambda: ten().map(lambda x: x + 1),
        lambda: ten().map(lambda x: x + 1, num_parallel_calls=AUTO),
    ),
    "interleave": (
        lambda: ten().interleave(lambda x: ten().skip(x), num_parallel_calls=2, cycle_length=2),
        lambda: ten().interleave(lambda x: ten().skip(x), num_parallel_calls=1, cycle_length=2),
    ),
    "generator": (
        lambda: tf.data.Dataset.from_generator(
            lambda: iter(range(50)), output_signature=tf.TensorSpec((), tf.int64)
        ),
    )
    * 2,
    "python function": (lambda: ten().map(lambda x: tf.numpy_function(np.abs, [x], tf.int64)),) * 2,
}


@pytest.mark.parametrize("name", SAME)
def test_what_cannot_change_the_data_is_not_said(name, make, said):
    before, now = SAME[name]
    restart(make, before, now, keep_program_values=("trainer/data/iterator",))
    assert "the program is not" not in said()
    assert "changed since" not in said()


def test_files_that_were_moved_are_the_same(make, tmp_path, said):
    one = two_files(tmp_path / "x", ("a\nbb\n", "ccc\n"))
    two = two_files(tmp_path / "y", ("a\nbb\n", "ccc\n"), names=("c", "d"))
    restart(make, lines(one), lines(two))
    assert "the program is not" not in said()


def test_the_sample_of_an_array_takes_as_long_for_a_large_one():
    large = tf.zeros((1 << 28,), tf.uint8)
    source = dataset_source.DatasetSource(
        lambda: tf.data.Dataset.from_tensors(np.zeros(8, np.uint8)), None
    )
    source.pipeline = type("Held", (), {"_inputs": lambda self: []})()
    source.pipeline.tensors = [large]
    times = []
    for _ in range(3):
        begun = tf.timestamp().numpy()
        found = data_part.read(source)
        times.append(tf.timestamp().numpy() - begun)
    assert found["arrays"][0].startswith("uint8[268435456] #")
    assert min(times) < 0.005  # a quarter of a GB; 20 ms a GB is the bound


def test_other_words_for_a_batch():
    part = {"kind": "list", "stages": [], "arrays": [], "element": "a", "cardinality": -2}
    assert words.data_changes(part, part) == ([], [])
    assert words.data_changes(part, {**part, "element": "b"}) == ([], ["a batch is a -> b"])


def test_the_layout_of_tutorials_in_a_process_of_its_own(folder):
    code = f"""
import numpy as np, tensorflow as tf, trainer
X = np.arange(64, dtype="float32")
made = tf.data.Dataset.from_tensor_slices(X).shuffle(64).batch(8)
class P(trainer.Trainer):
    def build(self): self.w = tf.Variable(0.0)
    def train_dataset(self): return made
    def train_step(self, b): self.w.assign_add(tf.reduce_sum(b)); return {{"w": self.w}}
try:
    P(trainer.TrainerConfig({folder!r}, seed=7))
except trainer.UnseededDataError as error:
    print(error)
"""
    assert "the seed of shuffle() was drawn before the trainer seeded" in run_python(code).stdout
