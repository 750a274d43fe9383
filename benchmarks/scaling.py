"""How costs grow with the work: variables, hooks, steps, checkpoints kept, processes' age.

    python benchmarks/scaling.py                    every figure (about two minutes)
    python benchmarks/scaling.py steps checkpoints  some of them

Figures: variables, hooks, steps, checkpoints, memory. The step adds one number, so that nothing
hides what is around it. Pairs in one run (see pairs.py).
"""

import gc
import logging
import os
import resource
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pairs
import tensorflow as tf
import workloads

import trainer
from trainer.checkpoints import folder as checkpoint_folder

PAIRS = 10
NEVER = 10**9
PAGE_BYTES = resource.getpagesize()


class Adding(trainer.Trainer):
    """Adds one number a step, and holds other variables."""

    def __init__(self, config, hooks=(), others=0):
        self.number_of_others = others
        super().__init__(config, hooks=hooks)

    def build(self):
        """Makes the variables."""
        self.total = tf.Variable(0, dtype=tf.int64)
        self.others = [tf.Variable(0.0) for _ in range(self.number_of_others)]

    def train_dataset(self):
        """Returns numbers without end."""
        return tf.data.Dataset.range(2**60)

    def train_step(self, number):
        """Adds a number."""
        return {"total": self.total.assign_add(number)}


class Stretch(trainer.Hook):
    """Takes the time of stretches of steps within a run."""

    def __init__(self, every_steps):
        self.every_steps = every_steps
        self.secs = []

    def begin(self, ctx):
        """Starts the clock."""
        self._went_on = time.perf_counter()

    def after_step(self, ctx):
        """Notes a stretch."""
        now = time.perf_counter()
        self.secs.append(now - self._went_on)
        self._went_on = now


class Counting(trainer.Hook):
    """Is called every hundred steps."""

    every_steps = 100
    calls = 0

    def after_step(self, ctx):
        """Counts."""
        self.calls += 1


def adding(scratch, name, hooks=(), **options):
    """Returns a trainer in a folder of its own, and the seconds that its construction took."""
    settings = {"save_every_steps": NEVER, "seed": 1}
    others = options.pop("others", 0)
    config = trainer.TrainerConfig(os.path.join(scratch, name), **settings | options)
    begun = time.perf_counter()
    program = Adding(config, hooks, others)
    return program, time.perf_counter() - begun


def microsecs(program, stretch, steps, count=2):
    """Returns microseconds a step in the median of some stretches, without the first."""
    stretch.secs.clear()
    program.train(steps=(count + 1) * steps)
    return 1e6 * statistics.median(stretch.secs[1:]) / steps


def variables(scratch):
    """A step beside 10,000 variables and beside 10; construction at 10,000 and 1,000."""
    steps = 4000
    few, many = Stretch(steps), Stretch(steps)
    small, _ = adding(scratch, "10", [few], others=10)
    large, secs = adding(scratch, "10000", [many], others=10_000)
    found = pairs.alternate(
        PAIRS, lambda: microsecs(large, many, steps, 1), lambda: microsecs(small, few, steps, 1)
    )
    print(pairs.Result("a step, 10,000 variables beside 10", *found, "us").line(1.1), flush=True)
    tenth = [adding(scratch, f"tenth{n}", others=1000)[1] for n in range(3)]
    result = pairs.Result("construction, 10,000 variables beside 1,000", [secs] * 3, tenth)
    print(result.line(10), flush=True)


def hooks(scratch):
    """A step with 100 hooks called every 100 steps, and with one."""
    steps = 4000
    few, many = Stretch(steps), Stretch(steps)
    one, _ = adding(scratch, "one", [few, Counting()])
    hundred, _ = adding(scratch, "hundred", [many, *(Counting() for _ in range(100))])
    found = pairs.alternate(
        PAIRS, lambda: microsecs(hundred, many, steps), lambda: microsecs(one, few, steps)
    )
    print(pairs.Result("a step, 100 hooks beside 1", *found, "us").line(1.5), flush=True)


def steps(scratch):
    """A step of a run of a million and of a thousand; what the million leave in memory."""
    few, many = Stretch(1000), Stretch(50_000)
    short, _ = adding(scratch, "short", [few])
    long, _ = adding(scratch, "long", [many])
    short.train(steps=5000)  # warm-up
    long.train(steps=5000)
    before = resident()
    found = pairs.alternate(
        PAIRS,
        lambda: microsecs(long, many, 50_000, count=1),
        lambda: microsecs(short, few, 1000, count=20),
    )
    grown = resident() - before
    print(pairs.Result("a step, in 1,000,000 beside 1,000", *found, "us").line(1.1), flush=True)
    result = pairs.Result("memory after 1,000,000 steps beside 50 MB", [grown / 1e6], [50], "MB")
    print(result.line(1.0), flush=True)


def checkpoints(scratch):
    """A save and a list with 500 checkpoints kept, and with 5."""
    few, _ = adding(scratch, "5", max_to_keep=5)
    many, _ = adding(scratch, "500", max_to_keep=500)
    for program, count in ((few, 5), (many, 500)):
        for _ in range(count):
            program.train(steps=1)

    def save(program):
        def run():
            begun = time.perf_counter()
            program.train(steps=1)
            return time.perf_counter() - begun

        return run

    def listing(name):
        def run():
            begun = time.perf_counter()
            checkpoint_folder.Folder(os.path.join(scratch, name)).complete()
            return time.perf_counter() - begun

        return run

    found = pairs.alternate(PAIRS, save(many), save(few))
    print(pairs.Result("a step and its save, 500 kept beside 5", *found).line(100), flush=True)
    found = pairs.alternate(PAIRS, listing("500"), listing("5"))
    print(pairs.Result("the list, 500 kept beside 5", *found).line(100), flush=True)


def memory(scratch):
    """What construct, train and close leave in memory, 20 times."""

    def once(name):
        program, _ = adding(scratch, name, others=100)
        with program:
            program.train(steps=200)
            program.save()
        del program
        gc.collect()

    for number in range(5):
        once(f"warm{number}")
    before = resident()
    for number in range(20):
        once(f"again{number}")
    grown = (resident() - before) / 1e6
    result = pairs.Result("memory of 20 trainers beside 50 MB", [grown], [50], "MB")
    print(result.line(1.0), flush=True)


def resident():
    """Returns the bytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


FIGURES = {figure.__name__: figure for figure in (variables, hooks, steps, checkpoints, memory)}


def main(names):
    """Measures the figures named, or all."""
    workloads.fix_threads()
    logging.getLogger("trainer").setLevel(logging.ERROR)
    pairs.table(FIGURES, names)


if __name__ == "__main__":
    main(sys.argv[1:])
