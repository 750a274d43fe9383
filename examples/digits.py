"""Trains a classifier of handwritten digits; kill it at any moment and run the same command again.

python examples/digits.py --model_dir=runs/digits --max_steps=1000 --save_every_steps=30
"""

import os

import numpy as np
import sklearn.datasets
import tensorflow as tf

import trainer

BATCH = 15
TRAINING = 1500  # of 1797 digits, so 100 steps an epoch; the others are held out


def load_digits() -> dict[str, np.ndarray]:
    """Returns the 8x8 digits that scikit-learn ships, mixed: float32[1797, 64] and int64[1797]."""
    digits = sklearn.datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    return {
        "image": (digits.data[order] / 16.0).astype(np.float32),
        "label": digits.target[order].astype(np.int64),
    }


class Digits(trainer.Trainer):
    """Two dense layers with dropout, trained with Adam."""

    def build(self):
        self.model = tf.keras.Sequential(
            [
                tf.keras.Input((64,)),
                tf.keras.layers.Dense(128, activation="relu"),
                tf.keras.layers.Dropout(0.3),
                tf.keras.layers.Dense(10),
            ]
        )
        self.optimizer = tf.keras.optimizers.Adam(1e-3)

    def train_dataset(self):
        rows = {name: values[:TRAINING] for name, values in load_digits().items()}
        return trainer.data.Indexed(rows, batch_size=BATCH, seed=7)

    def train_step(self, batch):
        with tf.GradientTape() as tape:
            logits = self.model(batch["image"], training=True)
            loss = cross_entropy(batch["label"], logits)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return {"loss": loss}

    def eval_dataset(self):
        rows = {name: values[TRAINING:] for name, values in load_digits().items()}
        return tf.data.Dataset.from_tensor_slices(rows).batch(100)

    def eval_step(self, batch):
        logits = self.model(batch["image"], training=False)
        right = tf.equal(tf.argmax(logits, axis=1), batch["label"])
        return {
            "accuracy": tf.reduce_mean(tf.cast(right, tf.float32)),
            "loss": cross_entropy(batch["label"], logits),
        }


def cross_entropy(labels, logits):
    """Returns the mean loss of a batch: int64[B] and float32[B, 10] to a scalar."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )


class Report(trainer.Hook):
    """Prints the accuracy on the held-out digits and the digest of the state when a run ends."""

    def end(self, ctx):
        if ctx.error is None:
            print(f"held-out accuracy {ctx.trainer.evaluate()['accuracy']:.4f}")
            print(f"state digest {trainer.testing.state_digest(ctx.trainer)}")

    def get_state(self):
        return {}


def hooks():
    """Returns the hooks; with KILL_AT_STEP in the environment, one that kills the process there."""
    kill_at = os.environ.get("KILL_AT_STEP")
    kill = [trainer.testing.KillAt(int(kill_at))] if kill_at else []
    return [trainer.LogProgress(every_steps=100), Report(), *kill]


if __name__ == "__main__":
    trainer.app.run(Digits, hooks=hooks)
