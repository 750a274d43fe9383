"""Keeps the best model of a run, exports it, and uses it.

    python examples/best_model.py --model_dir=runs/best --max_steps=1000

The best weights are a second model in the trainer, so they are in every checkpoint: a run that was
killed after its best evaluation still has them. When the run ends they are exported to
`runs/best/export`, as `model.keras` for Keras and as a SavedModel for everything else.
"""

import os
import shutil

import numpy as np
import sklearn.datasets
import tensorflow as tf

import trainer

BATCH, TRAINING = 50, 1000


def load_digits():
    """Returns the 8x8 digits that scikit-learn ships, mixed: float32[1797, 64] and int64[1797]."""
    digits = sklearn.datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.data[order] / 16.0, digits.target[order]
    return {"image": images.astype(np.float32), "label": labels.astype(np.int64)}


class BestModel(trainer.Trainer):
    """A classifier, and beside it the best that it has been so far."""

    def build(self):
        self.model = tf.keras.Sequential(
            [
                tf.keras.Input((64,), name="image"),
                tf.keras.layers.Dense(128, activation="relu"),
                tf.keras.layers.Dropout(0.5),
                tf.keras.layers.Dense(10),
            ]
        )
        self.best = tf.keras.models.clone_model(self.model)
        self.optimizer = tf.keras.optimizers.Adam(3e-3)
        self.optimizer.build(self.model.trainable_variables)

    def train_dataset(self):
        rows = {name: values[:TRAINING] for name, values in load_digits().items()}
        return trainer.data.Indexed(rows, batch_size=BATCH)

    def train_step(self, batch):
        with tf.GradientTape() as tape:
            logits = self.model(batch["image"], training=True)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits)
            )
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}

    def eval_dataset(self):
        rows = {name: values[TRAINING:] for name, values in load_digits().items()}
        return tf.data.Dataset.from_tensor_slices(rows).batch(100)

    def eval_step(self, batch):
        logits = self.model(batch["image"], training=False)
        right = tf.equal(tf.argmax(logits, axis=1), batch["label"])
        return {"accuracy": tf.reduce_mean(tf.cast(right, tf.float32))}


class KeepBest(trainer.Hook):
    """Evaluates every so many steps, and copies the model to `trainer.best` when it is better."""

    def __init__(self, every_steps=50):
        self.every_steps = every_steps
        self.accuracy, self.step = -1.0, None

    def after_step(self, ctx):
        accuracy = ctx.trainer.evaluate()["accuracy"]
        if accuracy > self.accuracy:
            self.accuracy, self.step = accuracy, ctx.step
            ctx.trainer.best.set_weights(ctx.trainer.model.get_weights())

    def get_state(self):
        return {"accuracy": self.accuracy, "step": self.step}

    def set_state(self, state):
        self.accuracy, self.step = state["accuracy"], state["step"]

    def end(self, ctx):
        if ctx.error is None and self.step is not None:
            folder = os.path.join(ctx.trainer.model_dir, "export")
            export(ctx.trainer.best, folder)
            print(f"best held-out accuracy {self.accuracy:.4f}, of step {self.step}, in {folder}")


def export(model, folder):
    """Writes a model in both formats; it appears in one rename, so nobody loads half of it."""
    scratch = f"{folder}.new"
    shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed here
    os.makedirs(scratch)
    model.save(os.path.join(scratch, "model.keras"))
    model.export(os.path.join(scratch, "saved_model"), verbose=False)
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(scratch, folder)


def classify(folder, images):
    """Returns the digit in each image, by the Keras file and by the SavedModel.

    Args:
        folder: what `export` wrote.
        images: float32[B, 64].
    """
    model = tf.keras.models.load_model(os.path.join(folder, "model.keras"))
    served = tf.saved_model.load(os.path.join(folder, "saved_model"))
    logits = model.predict(images, verbose=0), served.serve(images)
    return [np.argmax(values, axis=1) for values in logits]


if __name__ == "__main__":
    trainer.app.run(BestModel, hooks=lambda: [trainer.LogProgress(every_steps=100), KeepBest()])
