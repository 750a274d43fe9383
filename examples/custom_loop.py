"""The custom training loop of TensorFlow's guide on fault tolerance, resuming for real.

The guide trains a small classifier with SGD, keeps two checkpoints, saves after every step, and
interrupts itself. Its loop reads a checkpoint and restores nothing; this one goes on at the step
after the last one saved:

    python examples/custom_loop.py --model_dir=runs/loop --max_steps=300 --fail_at_step=50
    python examples/custom_loop.py --model_dir=runs/loop --max_steps=300
"""

import numpy as np
import sklearn.datasets
import tensorflow as tf
from absl import flags

import trainer

FAIL_AT_STEP = flags.DEFINE_integer("fail_at_step", None, "Raise after this step.")


def create_model():
    """Returns the guide's model for 8x8 digits."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(512, activation="relu"),
            tf.keras.layers.Dropout(0.2),
            tf.keras.layers.Dense(10),
        ]
    )


class CustomLoop(trainer.Trainer):
    """The guide's loop body as a train step."""

    def build(self):
        self.model = create_model()
        self.optimizer = tf.keras.optimizers.SGD(learning_rate=0.05)
        self.loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train_dataset(self):
        digits = sklearn.datasets.load_digits()
        images = (digits.images / 16.0).astype(np.float32)
        return tf.data.Dataset.from_tensor_slices((images, digits.target)).shuffle(1797).batch(32)

    def train_step(self, batch):
        images, labels = batch
        with tf.GradientTape() as tape:
            loss = self.loss(labels, self.model(images, training=True))
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return {"loss": loss}


class Interrupt(trainer.Hook):
    """Raises after a step, as the guide's callback does."""

    def __init__(self, step):
        self.step = step

    def after_step(self, ctx):
        if ctx.step == self.step:
            raise RuntimeError("Interruption")

    def get_state(self):
        return {}


def hooks():
    """Returns the hooks that the flags ask for."""
    interrupt = [Interrupt(FAIL_AT_STEP.value)] if FAIL_AT_STEP.value else []
    return [trainer.LogProgress(every_steps=50), *interrupt]


if __name__ == "__main__":
    trainer.app.run(CustomLoop, hooks=hooks, max_to_keep=2, save_every_steps=1)
