"""Tries several learning rates, one run each, in one process or in several at a time.

    python examples/sweep.py --model_dir=runs/sweep --max_steps=500
    python examples/sweep.py --model_dir=runs/sweep --max_steps=500 --processes=2
    python examples/sweep.py --model_dir=runs/sweep/rate-0.01 --max_steps=500 --rate=0.01

Each rate has a folder of its own in `runs/sweep`. The same command again goes on where the sweep
was stopped: runs that are finished take no step. The last line trains one of them alone, which is
also what each process of the second does.

    python -m trainer prove examples/sweep.py:Member --steps=200 --kills=3 -- --rate=0.01
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import sklearn.datasets
import tensorflow as tf
from absl import app, flags

import trainer

RATE = flags.DEFINE_float("rate", None, "Train one run with this learning rate in model_dir.")
RATES = flags.DEFINE_list("rates", ["0.001", "0.01", "0.1"], "Learning rates to try.")
PROCESSES = flags.DEFINE_integer("processes", 0, "Runs at a time, each in a process; 0: in this.")

BATCH, TRAINING = 50, 1000


def load_digits():
    """Returns the 8x8 digits that scikit-learn ships, mixed: float32[1797, 64] and int64[1797]."""
    digits = sklearn.datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = digits.data[order] / 16.0, digits.target[order]
    return {"image": images.astype(np.float32), "label": labels.astype(np.int64)}


class Member(trainer.Trainer):
    """One run of the sweep."""

    def __init__(self, config, *, rate=None, hooks=(), strategy=None):
        self.rate = RATE.value if rate is None else rate
        super().__init__(config, hooks=hooks, strategy=strategy)

    def build(self):
        self.model = tf.keras.Sequential(
            [
                tf.keras.Input((64,)),
                tf.keras.layers.Dense(64, activation="relu"),
                tf.keras.layers.Dropout(0.3),
                tf.keras.layers.Dense(10),
            ]
        )
        self.optimizer = tf.keras.optimizers.SGD(self.rate, momentum=0.9)
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


class Report(trainer.Hook):
    """Writes the accuracy on the held-out digits to result.json when a run ends."""

    def end(self, ctx):
        if ctx.error is None:
            result = {"step": ctx.step, **ctx.trainer.evaluate()}
            with open(os.path.join(ctx.trainer.model_dir, "result.json"), "w") as file:
                json.dump(result, file)

    def get_state(self):
        return {}


def in_this_process(settings, folders):
    """Trains the members by turns and returns the exit status."""
    for rate, folder in folders.items():
        config = dataclasses.replace(settings, model_dir=folder)
        with Member(config, rate=rate, hooks=[trainer.LogProgress(100), Report()]) as member:
            status = member.train().exit_code
        if status:  # stopped by a signal: what is left is for the same command again
            return status
    return 0


def in_processes(folders, at_a_time):
    """Trains each member in a process, passes stop signals on, and returns the exit status."""
    waiting, running, statuses, asked = list(folders.items()), [], [], []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(number))
    while waiting or running:
        if asked:
            number = asked.pop(0)
            for process in running:
                process.send_signal(number)
            if waiting:
                statuses.append(130 if number == signal.SIGINT else 75)
                waiting.clear()
        while waiting and len(running) < at_a_time:
            rate, folder = waiting.pop(0)
            own = [f"--rate={rate}", f"--model_dir={folder}"]  # the last of equal flags counts
            command = [sys.executable, *sys.argv, *own]
            # In a session of its own, or Ctrl-C would reach it twice, which ends it without a save.
            running.append(subprocess.Popen(command, start_new_session=True))
        time.sleep(0.05)
        statuses += [process.returncode for process in running if process.poll() is not None]
        running[:] = [process for process in running if process.returncode is None]
    return next((status for status in statuses if status), 0)


def main(_):
    """Trains what the flags say, and prints the results of those that have ended."""
    settings = trainer.app.config_from_flags()
    folders = {
        float(rate): os.path.join(settings.model_dir, f"rate-{float(rate):g}")
        for rate in RATES.value
    }
    if RATE.value is not None:
        folders = {RATE.value: settings.model_dir}
    if PROCESSES.value and RATE.value is None:
        status = in_processes(folders, PROCESSES.value)
    else:
        status = in_this_process(settings, folders)
    for rate, folder in folders.items():
        path = os.path.join(folder, "result.json")
        if os.path.exists(path):
            with open(path) as file:
                print(f"rate {rate:g}: {json.load(file)}")
    return status


def parse(arguments):
    """Parses the command line; a wrong flag ends with status 2, as in every program here."""
    try:
        return trainer.app.parse(arguments)
    except flags.Error as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    trainer.app.define_flags()
    app.run(main, flags_parser=parse)
