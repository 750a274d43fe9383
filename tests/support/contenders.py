"""Three ways to keep the same training run: this package, TensorFlow's manager, Keras's backup.

Each trains the sum: w is n(n+1)/2 after step n. The crash campaigns run them all; only the first
has to come out whole, the others are there to compare with.
"""

import os

import tensorflow as tf

import trainer
from trainer.checkpoints import file_names

EVERY, KEEP = 3, 2


def total(step):
    """What w must be after `step` steps."""
    return step * (step + 1) / 2


class Ours:
    """A trainer of this package."""

    name = "this package"

    def __init__(self, folder):
        from conftest import Summing

        config = trainer.TrainerConfig(folder, save_every_steps=EVERY, max_to_keep=KEEP, seed=7)
        self._trainer = Summing(config)
        self.step, self.w = self._trainer.step, float(self._trainer.w)

    def train(self, until, report):
        """Trains until a step; calls `report` with each step whose save was acknowledged."""

        class Report(trainer.Hook):
            def after_save(self, ctx):
                report(ctx.saved_step)

        self._trainer.register_hook(Report())
        self._trainer.train(max_steps=until)
        self.step, self.w = self._trainer.step, float(self._trainer.w)

    def leftovers(self):
        """Returns the names in the folder that a run which was never killed would not leave."""
        folder = self._trainer.model_dir
        own = {"LOCK", "checkpoint", "heartbeat.json", "journal.jsonl"}
        own |= {file_names.checkpoint(step) for step in self._trainer.checkpoints[-KEEP:]}
        return sorted(
            name
            for name in set(os.listdir(folder)) - own
            if not name.endswith((".damaged", "lost+found"))
        )


class Manager:
    """`tf.train.CheckpointManager`, as its guide shows it."""

    name = "tf.train.CheckpointManager"

    def __init__(self, folder):
        self._step, self._w = tf.Variable(0, dtype=tf.int64), tf.Variable(0.0)
        checkpoint = tf.train.Checkpoint(step=self._step, w=self._w)
        self._manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=KEEP)
        self._manager.restore_or_initialize()
        self.step, self.w = int(self._step), float(self._w)

    def train(self, until, report):
        for step in range(int(self._step) + 1, until + 1):
            self._step.assign(step)
            self._w.assign_add(step)
            if step % EVERY == 0 or step == until:
                self._manager.save(checkpoint_number=step)
                report(step)
        self.step, self.w = int(self._step), float(self._w)

    def leftovers(self):
        folder = self._manager.directory
        known = {os.path.basename(path) for path in self._manager.checkpoints}
        return sorted(
            name
            for name in os.listdir(folder)
            if name not in ("checkpoint", "lost+found") and name.split(".")[0] not in known
        )


class Backup:
    """`keras.callbacks.BackupAndRestore`, with a save every few batches."""

    name = "Keras BackupAndRestore"

    def __init__(self, folder):
        dense = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        self._model = tf.keras.Sequential([tf.keras.Input((1,)), dense])
        self._model.compile(tf.keras.optimizers.SGD(1.0), lambda y, p: -p)
        self._folder = folder
        callback = self._callback()
        callback.set_model(self._model)
        callback.on_train_begin()  # this is where it restores
        self.w = float(self._model.weights[0][0, 0])
        self.step = next(n for n in range(100) if total(n) >= self.w)

    def _callback(self):
        return tf.keras.callbacks.BackupAndRestore(
            self._folder, save_freq=EVERY, delete_checkpoint=False
        )

    def train(self, until, report):
        class Report(tf.keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if (batch + 1) % EVERY == 0:
                    report(batch + 1)

        data = tf.range(1.0, until + 1)[:, None]
        callbacks = [self._callback(), Report()]
        self._model.fit(data, data, 1, 1, 0, callbacks, shuffle=False)
        self.w = float(self._model.weights[0][0, 0])

    def leftovers(self):
        return []


CONTENDERS = {"ours": Ours, "manager": Manager, "keras": Backup}
