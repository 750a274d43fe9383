"""Trains in three phases in one folder: pretrain without labels, train a head, finetune everything.

    python examples/several_phases.py --model_dir=runs/phases --max_steps=1200
    python -m trainer prove examples/several_phases.py:SeveralPhases --steps=120 --kills=3 \\
        -- --pretrain_steps=40 --head_steps=40

The phase is a function of the step alone, chosen in the compiled step. So there is one run, one
count of steps and one command, and a kill in any phase, or between two, is like any other.
"""

import numpy as np
import sklearn.datasets
import tensorflow as tf
from absl import flags

import trainer

PRETRAIN_STEPS = flags.DEFINE_integer("pretrain_steps", 600, "Steps of the autoencoder.")
HEAD_STEPS = flags.DEFINE_integer("head_steps", 300, "Steps of the head on a frozen encoder.")

BATCH, TRAINING = 50, 1000


def load_digits():
    """Returns the 8x8 digits that scikit-learn ships, mixed: float32[1797, 64] and int64[1797]."""
    digits = sklearn.datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.data[order] / 16.0, digits.target[order]
    return {"image": images.astype(np.float32), "label": labels.astype(np.int64)}


class SeveralPhases(trainer.Trainer):
    """An encoder that learns to restore noisy digits first, and to tell them apart then."""

    def __init__(self, config, *, pretrain_steps=None, head_steps=None, hooks=(), strategy=None):
        self.pretrain_steps = PRETRAIN_STEPS.value if pretrain_steps is None else pretrain_steps
        self.head_steps = HEAD_STEPS.value if head_steps is None else head_steps
        super().__init__(config, hooks=hooks, strategy=strategy)

    def build(self):
        layers = tf.keras.layers
        self.encoder = tf.keras.Sequential(
            [tf.keras.Input((64,)), layers.GaussianNoise(0.3), layers.Dense(64, activation="relu")]
        )
        self.decoder = tf.keras.Sequential([tf.keras.Input((64,)), layers.Dense(64)])
        self.head = tf.keras.Sequential([tf.keras.Input((64,)), layers.Dense(10)])
        # One optimizer a phase, for the variables that the phase trains: the others are frozen, and
        # their momentum too. Built here, because a branch of the compiled step makes no variables.
        everything = self.encoder.trainable_variables + self.head.trainable_variables
        self.phases = {
            "pretrain": self.phase(
                tf.keras.optimizers.Adam(3e-3),
                self.encoder.trainable_variables + self.decoder.trainable_variables,
            ),
            "head": self.phase(tf.keras.optimizers.Adam(3e-3), self.head.trainable_variables),
            "finetune": self.phase(tf.keras.optimizers.Adam(3e-4), everything),
        }

    def phase(self, optimizer, variables):
        """Returns an optimizer that is ready, and what it trains."""
        optimizer.build(variables)
        return {"optimizer": optimizer, "variables": variables}

    def train_dataset(self):
        rows = {name: values[:TRAINING] for name, values in load_digits().items()}
        return trainer.data.Indexed(rows, batch_size=BATCH)

    def train_step(self, batch):
        ends = (self.pretrain_steps, self.pretrain_steps + self.head_steps)
        number = tf.reduce_sum(tf.cast(self.step >= tf.constant(ends, tf.int64), tf.int32))
        branches = [
            lambda: self.update("pretrain", self.restoration_loss, batch),
            lambda: self.update("head", self.classification_loss, batch),
            lambda: self.update("finetune", self.classification_loss, batch),
        ]
        return {"loss": tf.switch_case(number, branches), "phase": number}

    def update(self, phase, loss_function, batch):
        """Takes one step of a phase and returns its loss."""
        optimizer, variables = self.phases[phase]["optimizer"], self.phases[phase]["variables"]
        with tf.GradientTape() as tape:
            loss = loss_function(batch)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def restoration_loss(self, batch):
        """Returns how far the decoder is from the images behind the noise."""
        logits = self.decoder(self.encoder(batch["image"], training=True), training=True)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(batch["image"], logits))

    def classification_loss(self, batch):
        """Returns the loss of the head."""
        logits = self.head(self.encoder(batch["image"], training=True), training=True)
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits)
        )

    def eval_dataset(self):
        rows = {name: values[TRAINING:] for name, values in load_digits().items()}
        return tf.data.Dataset.from_tensor_slices(rows).batch(100)

    def eval_step(self, batch):
        logits = self.head(self.encoder(batch["image"], training=False), training=False)
        right = tf.equal(tf.argmax(logits, axis=1), batch["label"])
        return {"accuracy": tf.reduce_mean(tf.cast(right, tf.float32))}


class Report(trainer.Hook):
    """Prints the accuracy on the held-out digits when a run ends."""

    def end(self, ctx):
        if ctx.error is None:
            print(f"held-out accuracy {ctx.trainer.evaluate()['accuracy']:.4f}")

    def get_state(self):
        return {}


if __name__ == "__main__":
    trainer.app.run(SeveralPhases, hooks=lambda: [trainer.LogProgress(every_steps=100), Report()])
