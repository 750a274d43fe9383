"""Kills and stop signals at random moments of real runs, counted and timed: `make chaos` runs it.

    python -m support.chaos [COUNT] [SEED]    so many of each (200), a seed for the moments

Each life is a process of its own, forked from one that has imported TensorFlow and not used it.
A run is killed again and again until it has done all its steps; then its state must be that of the
run that nobody killed. Exits with 1 if a figure misses its target.
"""

import contextlib
import dataclasses
import os
import random
import signal
import statistics
import sys
import tempfile
import time

import tensorflow as tf

import trainer
from trainer.checkpoints import files
from trainer.journal import journal

from support import processes

STEPS = 600
SAVE_EVERY_SECS = 0.3
LONGEST_LIFE_SECS = 1.0
ONE_CALL_SECS = 0.2


class Run(trainer.Trainer):
    """Dropout, Adam's slots, a generator and shuffled data; a step takes some milliseconds."""

    def build(self):
        """Makes the model."""
        self.model = tf.keras.Sequential(
            [
                tf.keras.Input((16,)),
                tf.keras.layers.Dense(64, activation="relu"),
                tf.keras.layers.Dropout(0.3, seed=5),
                tf.keras.layers.Dense(1),
            ]
        )
        self.optimizer = tf.keras.optimizers.Adam(1e-3)
        self.noise = tf.random.Generator.from_seed(3)
        self.work = tf.Variable(tf.eye(500), trainable=False)

    def train_dataset(self):
        """Returns shuffled numbers."""
        return tf.data.Dataset.range(1000).shuffle(1000, seed=11).repeat().batch(8)

    def train_step(self, batch):
        """Trains, and tells when it was done."""
        features = tf.cast(batch[:, tf.newaxis], tf.float32) * tf.ones([1, 16]) / 1000.0
        with tf.GradientTape() as tape:
            output = self.model(features + self.noise.normal([8, 16]), training=True)
            loss = tf.reduce_mean(tf.square(output)) + 1e-9 * self.busy()
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        with tf.control_dependencies([loss, self.optimizer.iterations.value]):
            return {"loss": loss, "done_at": tf.timestamp()}

    def busy(self):
        """Takes some milliseconds, and returns a number that cannot be had for less."""
        product = self.work.read_value()
        for _ in range(3):
            product = tf.matmul(product, self.work.read_value())
        return product[0, 0]


class Tell(trainer.Hook):
    """Reports that training begins, and when its last step was done."""

    only_outputs = True
    every_steps = 1

    def __init__(self, report):
        self._report = report
        self._last = 0.0

    def begin(self, ctx):
        """Reports the step that training begins at."""
        self._report({"begun": ctx.step, "at": time.time()})

    def after_step(self, ctx):
        """Remembers when the step was done."""
        self._last = float(ctx.outputs["done_at"])

    def end(self, ctx):
        """Reports when the last step was done."""
        self._report({"ended": ctx.step, "at": self._last})

    def get_state(self):
        """Returns nothing: it is no part of the run."""
        return {}


@dataclasses.dataclass
class Tally:
    """What came of the signals of one kind."""

    cases: int = 0
    runs: int = 0
    differing: int = 0
    steps_lost: list = dataclasses.field(default_factory=list)
    lateness: list = dataclasses.field(default_factory=list)
    lost_secs: list = dataclasses.field(default_factory=list)
    write_secs: list = dataclasses.field(default_factory=list)


def live(folder, report):
    """Trains to the end and reports the digest of the state."""
    config = trainer.TrainerConfig(folder, max_steps=STEPS, seed=7, save_every_secs=SAVE_EVERY_SECS)
    with Run(config, hooks=[Tell(report)]) as program:
        result = program.train()
        report({"reason": result.reason, "saved": program.checkpoints[-1:]})
        if result.reason in ("finished", "already_finished"):
            report({"digest": trainer.testing.state_digest(program)})


def life(folder, number, places):
    """One process, which gets a signal at a random moment; returns what it told, and when."""
    child = processes.Child(lambda report: live(folder, report))
    sent = None
    values = []
    for value in child.reports():
        values.append(value)
        if "begun" in value:
            time.sleep(places.uniform(0.0, LONGEST_LIFE_SECS))
            sent = time.time()
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)
    child.end()
    return values, sent


def campaign(number, count, expected, places, scratch):
    """Sends a signal so many times, to run after run, and returns the tally."""
    tally = Tally()
    while tally.cases < count:
        folder = os.path.join(scratch, f"{signal.Signals(number).name}-{tally.runs}")
        tally.runs += 1
        while True:
            values, sent = life(folder, number, places)
            told = {key: value for entry in values for key, value in entry.items()}
            if "digest" in told:
                tally.differing += told["digest"] != expected
                break
            if "error" in told:
                raise RuntimeError(told["error"])
            if number == signal.SIGTERM and told.get("reason") != "preempted":
                continue  # it came when training was over
            tally.cases += 1
            note(tally, number, folder, values, sent)
    return tally


def note(tally, number, folder, values, sent):
    """Takes in one life that a signal ended."""
    if number == signal.SIGTERM:
        ended = next(entry for entry in values if "ended" in entry)
        saved = next(entry["saved"] for entry in values if "saved" in entry)
        tally.steps_lost.append(ended["ended"] - (saved[0] if saved else 0))
        tally.lateness.append(max(0.0, ended["at"] - sent))
        return
    events = journal.read(files.for_path(folder), folder)
    begun = next(entry["at"] for entry in values if "begun" in entry)
    saves = [event for event in events if event["event"] == "save" and event["time"] >= begun]
    snapshots = [event["time"] - event["write_secs"] for event in saves]
    tally.lost_secs.append(sent - max([begun, *snapshots]))
    tally.write_secs += [event["write_secs"] for event in saves]


def step_secs(scratch):
    """Returns the digest of a run that nobody killed, and the seconds that its steps take."""
    values, _ = processes.Child(
        lambda report: live(os.path.join(scratch, "unbroken"), report)
    ).wait()
    told = {key: value for entry in values for key, value in entry.items()}
    begun = next(entry["at"] for entry in values if "begun" in entry)
    ended = next(entry["at"] for entry in values if "ended" in entry)
    return told["digest"], (ended - begun) / STEPS


def main(count=200, seed=0):
    """Runs both campaigns and prints the table; returns 1 if a figure misses its target."""
    places = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        expected, step = step_secs(scratch)
        terms = campaign(signal.SIGTERM, count, expected, places, scratch)
        kills = campaign(signal.SIGKILL, count, expected, places, scratch)
    write = statistics.mean(kills.write_secs)
    half = SAVE_EVERY_SECS / 2 + write
    late = sorted(terms.lateness)[int(0.95 * len(terms.lateness))]
    mean_lost, most_lost = statistics.mean(kills.lost_secs), max(kills.lost_secs)
    rows = [
        (f"{terms.cases} SIGTERMs: steps lost", sum(terms.steps_lost), 0, ""),
        ("… state unlike the unbroken run's", terms.differing, 0, f"of {terms.runs} runs"),
        ("… signal to last step done, 95th percentile", late, step + 0.02, "s"),
        (
            f"{kills.cases} SIGKILLs: state unlike the unbroken run's",
            kills.differing,
            0,
            f"of {kills.runs} runs",
        ),
        ("… lost work, mean", mean_lost, 1.1 * half, "s"),
        ("… lost work, most", most_lost, SAVE_EVERY_SECS + write + ONE_CALL_SECS, "s"),
    ]
    print(f"a step takes {1000 * step:.2f} ms, a save {1000 * write:.1f} ms\n")
    print("| figure | seen | at most | | |\n|---|---|---|---|---|")
    for name, seen, most, unit in rows:
        verdict = "met" if seen <= most else "MISSED"
        print(f"| {name} | {seen:.4g} | {most:.4g} | {unit} | {verdict} |")
    return int(any(seen > most for _, seen, most, _ in rows))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
