"""A program that is judged by metrics: of Keras 3 or tf_keras, in both steps."""

import os
import signal

import numpy as np
import tensorflow as tf
import tf_keras

import trainer

ROWS, BATCH, CLASSES = 40, 8, 3
METRICS = {
    "auc": lambda keras: keras.metrics.AUC(num_thresholds=50),
    "iou": lambda keras: keras.metrics.MeanIoU(CLASSES),
    "f1": lambda keras: keras.metrics.F1Score(average="macro"),
    "mean": lambda keras: keras.metrics.Mean(),
    "hits": lambda keras: keras.metrics.SparseCategoricalAccuracy(),
    "precision": lambda keras: keras.metrics.Precision(),
}


def fresh(keras, name):
    """Returns a metric that nothing was added to."""
    return METRICS[name](keras)


class Judged(trainer.Trainer):
    """A linear classifier."""

    keras = tf.keras
    kill_at = None  # the batch of an evaluation, counted over all, at which the process dies

    def build(self):
        self.judged = 0
        self.w = tf.Variable(tf.zeros([2, CLASSES]))
        for name in METRICS:
            setattr(self, name, fresh(self.keras, name))
        self.of_pass = trainer.Metric(self.hits, reset="epoch")

    def rows(self):
        generator = np.random.default_rng(3)
        x = generator.normal(size=(ROWS, 2)).astype("float32")
        y = (x @ [[1, -1, 0], [0, 1, -1]] + generator.normal(size=(ROWS, CLASSES))).argmax(1)
        return {"x": x, "y": y.astype("int32")}

    def train_dataset(self):
        return trainer.data.Indexed(self.rows(), batch_size=BATCH)

    def update(self, name, metric, batch):
        """Has a metric know a batch."""
        chances = tf.nn.softmax(batch["x"] @ self.w)
        one_hot = tf.one_hot(batch["y"], CLASSES)
        given = {
            "auc": (one_hot[:, 0], chances[:, 0]),
            "iou": (batch["y"], tf.argmax(chances, axis=1)),
            "f1": (one_hot, chances),
            "mean": (chances[:, 1],),
            "hits": (batch["y"], chances),
            "precision": (one_hot[:, 2], chances[:, 2]),
        }
        metric.update_state(*given[name])

    def train_step(self, batch):
        with tf.GradientTape() as tape:
            logits = batch["x"] @ self.w
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(batch["y"], logits)
            )
        self.w.assign_sub(0.1 * tape.gradient(loss, self.w))
        for name in ("auc", "iou", "hits"):
            self.update(name, getattr(self, name), batch)
        return {"loss": loss, "auc": self.auc, "iou": self.iou, "hits": self.of_pass}

    def eval_dataset(self):
        return trainer.data.Indexed(self.rows(), batch_size=BATCH, shuffle=False, epochs=1)

    def eval_step(self, batch):
        for name in METRICS:
            self.update(name, getattr(self, name), batch)
        with tf.control_dependencies([tf.numpy_function(self.happens, [batch["y"]], [])]):
            return {name: getattr(self, name) for name in METRICS}

    def happens(self, y):
        """Kills the process at a batch, if asked to."""
        self.judged += 1
        if self.judged == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class OldJudged(Judged):
    """Judged by metrics of tf_keras."""

    keras = tf_keras


class Evaluate(trainer.Hook):
    """Evaluates, and keeps what it and the step said."""

    def __init__(self, every_steps):
        self.every_steps = every_steps
        self.seen = {}

    def after_step(self, ctx):
        found = ctx.trainer.evaluate()
        outputs = {name: float(value) for name, value in ctx.outputs.items()}
        self.seen[str(ctx.step)] = [found, outputs]

    def get_state(self):
        return {"seen": self.seen}

    def set_state(self, state):
        self.seen = state["seen"]
