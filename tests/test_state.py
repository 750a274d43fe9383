"""Names of state, and golden checkpoints that hold them still."""

import pathlib
import shutil

import keras
import pytest
import tensorflow as tf

import trainer
from trainer.state import discovery

from conftest import HERE, run_python
from support import programs

GOLDEN = pathlib.Path(HERE, "golden")


def names(**attributes):
    return [entry.name for entry in discovery.discover(attributes.items()).entries]


def test_the_contract_names(make):
    class Design(trainer.Trainer):
        def build(self):
            self.model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(10)])
            self.optimizer = tf.keras.optimizers.Adam(1e-3)

        def train_dataset(self):
            return tf.data.Dataset.from_tensors(tf.ones((2, 64))).repeat()

        def train_step(self, batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.model(batch))
            variables = self.model.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables, strict=True)
            )
            return {"loss": loss}

    for _ in range(2):  # however many objects the process has made before
        state = make(Design).state()
        assert [name for name in state if not name.startswith("trainer/")] == [
            "model/dense/kernel",
            "model/dense/bias",
            "optimizer/iterations",
            "optimizer/learning_rate",
            "optimizer/adam/dense/kernel/momentum",
            "optimizer/adam/dense/bias/momentum",
            "optimizer/adam/dense/kernel/velocity",
            "optimizer/adam/dense/bias/velocity",
        ]
        assert "trainer/step" in state


def test_names_of_containers():
    one, two = tf.Variable(1.0), tf.Variable(2.0)
    assert names(a=[one, {"k": two}]) == ["a/0", "a/1/k"]
    assert names(a=(one,), b={3: two}) == ["a/0", "b/3"]
    assert names(a=one, b=one) == ["a"]
    assert names(a={"b/c": one, "b": {"c": two}}) == ["a/b/c", "a/b/c_1"]
    assert names(a={("not", "a name"): one}) == []


def test_names_of_modules_and_generators():
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self._hidden = tf.Variable(1.0)
            self.inner = [tf.Variable(2.0)]
            self.inner_of_itself = self

    assert names(m=Module(), g=tf.random.Generator.from_seed(1)) == [
        "m/hidden",
        "m/inner/0",
        "g/state",
    ]
    assert names(s=keras.random.SeedGenerator(1), m=keras.metrics.Mean()) == [
        "s/state",
        "m/total",
        "m/count",
    ]


def test_names_of_layers():
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(3),
            layers.Dense(2),
            layers.Dropout(0.5),
            layers.Dense(2, name="head"),
            layers.BatchNormalization(),
        ]
    )
    assert names(model=model) == [
        *("model/dense/kernel", "model/dense/bias", "model/dense_1/kernel", "model/dense_1/bias"),
        *("model/dropout/seed_generator/state", "model/head/kernel", "model/head/bias"),
        *("model/batch_normalization/gamma", "model/batch_normalization/beta"),
        *("model/batch_normalization/moving_mean", "model/batch_normalization/moving_variance"),
    ]


def test_names_of_a_subclassed_model():
    model = programs.SubclassedModel()
    model(tf.zeros((1, programs.FEATURES)))
    assert names(model=model) == [
        *("model/hidden/0/kernel", "model/hidden/0/bias", "model/hidden/1/kernel"),
        *("model/hidden/1/bias", "model/drop/seed_generator/state", "model/head/kernel"),
        "model/head/bias",
    ]


def test_one_optimizer_over_two_models_and_nested_ones():
    first = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    second = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    inner = keras.optimizers.SGD(0.1, momentum=0.5)
    optimizer = keras.optimizers.LossScaleOptimizer(inner)
    optimizer.build(first.trainable_variables + second.trainable_variables)
    found = names(optimizer=optimizer, first=first, second=second)
    assert "optimizer/inner_optimizer/sgd/first/dense/kernel/momentum" in found
    assert "optimizer/inner_optimizer/sgd/second/dense/kernel/momentum" in found
    assert "optimizer/dynamic_scale" in found


def test_names_do_not_depend_on_the_process(make):
    """Two processes, of which one has made other layers before, find the same names."""
    code = f"""
import sys, tempfile
sys.path.insert(0, {str(HERE)!r})
import tensorflow as tf, trainer
from support import programs
for _ in range(int(sys.argv[1])):
    tf.keras.layers.Dense(1), tf.keras.optimizers.Adam(), tf.keras.Sequential()
config = trainer.TrainerConfig(tempfile.mkdtemp(), save_every_steps=3)
print(sorted(programs.Metric(config).state()))
"""
    first, second = (run_python(code, count).stdout.splitlines()[-1] for count in (0, 3))
    assert first == second
    assert "accuracy/total" in first


@pytest.mark.parametrize("name", ["Adam", "Functional", "Sonnet", "LossScale", "OldKeras"])
def test_golden_checkpoints_are_still_read(tmp_path, name):
    """A checkpoint of each released format restores completely and goes on to the same end.

    Made by tests/support/make_golden.py; names are public, so a failure here is a breaking change.
    """
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    config = trainer.TrainerConfig(folder, save_every_steps=100, seed=7)
    with programs.PROGRAMS[name](config) as program:
        assert program.restored_step == 4
        program.train(max_steps=6)
        written = (GOLDEN / f"{name}.names").read_text().splitlines()
        assert sorted(program.state()) == written
