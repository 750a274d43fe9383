"""`deterministic`: when TensorFlow's op determinism is turned on, and what is said of it."""

import pytest
import tensorflow as tf

import trainer
from trainer.run import determinism

from conftest import run_python


@pytest.fixture
def switched(monkeypatch):
    """Counts how often op determinism was turned on, without turning it on."""
    calls = []
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: calls.append(1))
    return calls


@pytest.mark.parametrize(
    ("wanted", "gpus", "on"),
    [
        (None, [], False),
        (None, ["GPU:0"], True),
        (True, [], True),
        (True, ["GPU:0"], True),
        (False, ["GPU:0"], False),
    ],
)
def test_when_it_is_turned_on(wanted, gpus, on, switched, said):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
        determinism.turn_on(wanted)
    assert bool(switched) is on
    assert ("deterministic=False turns them off" in said()) is (wanted is None and bool(gpus))


def test_it_is_on_before_the_program_builds(switched, folder):
    class Asks(trainer.Trainer):
        def build(self):
            self.on = bool(switched)
            self.w = tf.Variable(0.0)

        def train_dataset(self):
            return tf.data.Dataset.range(9)

        def train_step(self, x):
            self.w.assign_add(1.0)
            return {"w": self.w}

    with Asks(trainer.TrainerConfig(folder, deterministic=True)) as program:
        assert program.on


def test_only_true_false_and_none(folder):
    with pytest.raises(ValueError, match="deterministic must be True, False or None, got 'yes'"):
        trainer.TrainerConfig(folder, deterministic="yes")


def test_a_run_with_it_is_trained(tmp_path):
    code = """
import sys, tensorflow as tf, trainer
from tensorflow.python.framework import config

class Noisy(trainer.Trainer):
    def build(self):
        self.model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
        self.noise = tf.random.Generator.from_seed(1)
    def train_dataset(self):
        return tf.data.Dataset.from_tensor_slices(tf.ones([40, 4])).shuffle(9).batch(2)
    def train_step(self, x):
        y = self.model(x + self.noise.normal([1, 4]))
        return {"loss": tf.reduce_mean(tf.nn.bias_add(y, [1.0, 2.0]) ** 2)}

for folder, wanted in zip(sys.argv[1:], (None, True)):
    with Noisy(trainer.TrainerConfig(folder, max_steps=9, deterministic=wanted)) as program:
        print(program.train().step, config.is_op_determinism_enabled())
"""
    result = run_python(code, tmp_path / "default", tmp_path / "on")
    assert result.stdout.split() == ["9", "False", "9", "True"]
