"""Train steps of three sizes, written once, for every way of running them.

Owns the models, the data and the thread counts. Promises that each side of a comparison runs the
same model, optimizer, batch and input pipeline. Refuses to run or to time a step.
"""

import dataclasses
import time

import numpy as np
import tensorflow as tf

import trainer

THREADS = 2
CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Workload:
    """A size of step.

    Args:
        name: what the table calls it.
        features: numbers in an example.
        width: units of each hidden layer.
        layers: hidden layers.
        batch: examples in a batch.
        stretch: steps in one measurement, of about half a second.
        wait_secs: how long a step waits without computing, as for another device.
    """

    name: str
    features: int
    width: int
    layers: int
    batch: int
    stretch: int
    wait_secs: float = 0.0


TINY = Workload("tiny", features=16, width=32, layers=1, batch=32, stretch=4000)
SMALL = Workload("small", features=256, width=640, layers=2, batch=64, stretch=250)
MEDIUM = Workload("medium", features=784, width=1024, layers=3, batch=128, stretch=30)
ALL = (TINY, SMALL, MEDIUM)


def fix_threads():
    """Sets the thread counts of TensorFlow; before its first operation."""
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)


def dataset(size):
    """Returns endless batches of (float32[batch, features], int64[batch])."""
    draw = np.random.default_rng(0)
    examples = draw.random((1024, size.features), np.float32)
    labels = draw.integers(0, CLASSES, 1024)
    rows = tf.data.Dataset.from_tensor_slices((examples, labels))
    return rows.shuffle(1024, seed=1).repeat().batch(size.batch, drop_remainder=True).prefetch(2)


def model(size):
    """Returns the model."""
    layers = [
        tf.keras.layers.Dense(size.width, activation="relu", kernel_initializer="he_uniform")
        for _ in range(size.layers)
    ]
    waits = [Wait(size.wait_secs)] if size.wait_secs else []
    return tf.keras.Sequential(
        [tf.keras.Input((size.features,)), *waits, *layers, tf.keras.layers.Dense(CLASSES)]
    )


class Wait(tf.keras.layers.Layer):
    """Passes on what it is given, after a while."""

    def __init__(self, secs):
        super().__init__()
        self.secs = secs

    def call(self, given):
        """Returns the same."""
        waited = tf.numpy_function(lambda: time.sleep(self.secs), [], [], stateful=True)
        with tf.control_dependencies([waited]):
            return tf.identity(given)


def optimizer():
    """Returns the optimizer."""
    return tf.keras.optimizers.SGD(1e-3)


def loss():
    """Returns the loss function of (labels, logits)."""
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def make_step(size):
    """Returns a function that trains a model of its own on a batch and returns the loss."""
    net, rule, judge = model(size), optimizer(), loss()
    rule.build(net.trainable_variables)

    def step(batch):
        examples, labels = batch
        with tf.GradientTape() as tape:
            error = judge(labels, net(examples, training=True))
        rule.apply(tape.gradient(error, net.trainable_variables), net.trainable_variables)
        return error

    step.variables = [*net.variables, *rule.variables]
    step.parts = {"net": net, "rule": rule}
    return step


class Program(trainer.Trainer):
    """The same as a user of this package writes it."""

    def __init__(self, size, config, hooks=()):
        self.size = size
        super().__init__(config, hooks=hooks)

    def build(self):
        """Makes the model and its step."""
        self.step_on = make_step(self.size)
        self.parts = self.step_on.parts

    def train_dataset(self):
        """Returns the batches."""
        return dataset(self.size)

    def train_step(self, batch):
        """Trains on one batch."""
        return {"loss": self.step_on(batch)}
