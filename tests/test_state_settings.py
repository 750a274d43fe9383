"""Settings of optimizers, those too whose configuration cannot be had (K11)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.state import optimizer_settings

from conftest import Summing


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """The schedule of TensorFlow's Transformer tutorial, which has no `get_config`."""

    def __call__(self, step):
        return 0.1 * tf.minimum(tf.cast(step, tf.float32) / 10.0, 1.0)


class CosineDecay(WarmUp):
    """One of the program's own with the name of one of Keras's."""


class Broken(keras.optimizers.SGD):
    def get_config(self):
        raise KeyError("rate")


class Nothing(keras.optimizers.SGD):
    def get_config(self):
        return None


class Odd(keras.optimizers.SGD):
    def get_config(self):
        odd = {"fraction": np.float32(0.5), "flag": np.bool_(True), 3: 1.0, "mask": {1, 2}}
        return super().get_config() | odd | {"table": np.arange(3), "clip": tf.constant(1.0)}


def program(make_optimizer):
    class Program(Summing):
        def build(self):
            super().build()
            self.v = keras.Variable(1.0)
            self.optimizer = make_optimizer()

        def train_step(self, x):
            self.optimizer.apply_gradients([(tf.constant(1.0), self.v)])
            return super().train_step(x)

    return Program


WITHOUT_CONFIG = {
    "WarmUp": lambda: keras.optimizers.Adam(WarmUp(), beta_1=0.8),
    "CosineDecay": lambda: keras.optimizers.Adam(CosineDecay()),
    "Broken": lambda: Broken(0.1, momentum=0.9),
    "Nothing": lambda: Nothing(0.1),
    "Odd": lambda: Odd(0.1),
    "Scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(WarmUp())),
}


@pytest.mark.parametrize("name", WITHOUT_CONFIG)
def test_a_run_without_configuration_is_saved_and_resumed_exactly(name, caplog):
    def make(folder, hooks):
        config = trainer.TrainerConfig(folder, seed=3, save_every_steps=2)
        return program(WITHOUT_CONFIG[name])(config, hooks=hooks)

    caplog.set_level("INFO", logger="trainer")
    testing.assert_resumes_exactly(make, steps=7, crashes=(3, 5))
    lines = [r.getMessage() for r in caplog.records if "are written without" in r.getMessage()]
    assert len(lines) == 4 * len(set(lines))  # once at each construction
    assert lines[0].startswith("optimizer: checkpoints are written without ")


def test_what_is_known_without_configuration():
    adam = keras.optimizers.Adam(WarmUp(), beta_1=0.8, gradient_accumulation_steps=4)
    (found,) = optimizer_settings.settings([("adam", adam)]).values()
    full = keras.optimizers.Adam(0.1, beta_1=0.8, gradient_accumulation_steps=4)
    (expected,) = optimizer_settings.settings([("adam", full)]).values()
    assert found["beta_1"] == 0.8
    assert found["gradient_accumulation_steps"] == 4
    assert {key: value for key, value in expected.items() if key in found} == found
    assert len(found) >= len(expected) - 1


def test_what_json_does_not_know_is_named(caplog):
    caplog.set_level("INFO", logger="trainer")
    optimizer = Odd(0.1)
    (found,) = optimizer_settings.settings([("odd", optimizer)]).values()
    assert found["fraction"] == 0.5
    assert found["flag"] is True
    assert not {"mask", "table", "clip", 3} & found.keys()
    optimizer_settings.say_unknown([("odd", optimizer)])
    for text in ("mask (set is not JSON)", "table (ndarray is not JSON)", "clip (EagerTensor"):
        assert text in caplog.text


def test_a_window_is_still_guarded(make):
    def windowed(steps):
        return program(lambda: keras.optimizers.SGD(WarmUp(), gradient_accumulation_steps=steps))

    make(windowed(4)).train(max_steps=6)
    with pytest.raises(trainer.CheckpointMismatchError, match="lies within a window"):
        make(windowed(3))


def test_a_usual_optimizer_is_not_named(make, said):
    make(program(lambda: keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 5))))
    assert "are written without" not in said()
