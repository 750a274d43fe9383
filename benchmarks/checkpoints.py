"""What checkpoints cost, beside TensorFlow's own and beside the bare disk.

    python benchmarks/checkpoints.py                 every figure (about 15 minutes)
    python benchmarks/checkpoints.py stall restore   some of them

Figures: stall, first, throughput, restore, memory, slowdown. Each is measured in pairs within one
run (see pairs.py); the table gives medians, the ratio's median and spread, and the target. Run it
on a quiet machine: the figures of a busy one say little.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pairs
import tensorflow as tf

import trainer
from trainer.base.log import LOG

MEGABYTE = 1 << 20
STATES = {
    "128 MB in 16 variables": (16, 2 * MEGABYTE),
    "1,000 small variables": (1000, 10),
    "1 GB in 16 variables": (16, 16 * MEGABYTE),
}


class Many(trainer.Trainer):
    """A step that changes every one of many variables in place.

    Args:
        state: a key of STATES.
    """

    def __init__(self, state, *arguments, **named):
        self._shape = STATES[state]
        super().__init__(*arguments, **named)

    def build(self):
        count, size = self._shape
        self.many = [tf.Variable(tf.random.normal([size])) for _ in range(count)]

    def train_dataset(self):
        return tf.data.Dataset.range(1 << 60)

    def train_step(self, x):
        for variable in self.many:
            variable.assign_add(tf.ones_like(variable))
        return {"x": tf.cast(x, tf.float32)}


class Boundaries(trainer.Hook):
    """Times what happens between two steps where a save is due, and lets TensorFlow save in turn.

    Args:
        every: the interval of the saves.
        theirs: saves with TensorFlow half an interval later and returns the seconds, or None.
    """

    def __init__(self, every, theirs=None):
        self._every, self._theirs, self._since = every, theirs, None
        self.secs, self.secs_of_theirs = [], []

    def after_step(self, ctx):
        if ctx.step % self._every == 0:
            self._since = time.perf_counter()
        elif self._theirs and ctx.step % self._every == self._every // 2:
            self.secs_of_theirs.append(self._theirs())

    def before_step(self, ctx):
        if self._since is not None:
            self.secs.append(time.perf_counter() - self._since)
            self._since = None

    def get_state(self):
        return {}


def make(state, folder, hooks=(), **settings):
    """Returns a trainer whose saves come only when they are asked for, unless settings say so."""
    settings = {"save_every_secs": 1e9, "max_to_keep": 2, "seed": 1} | settings
    return Many(state, trainer.TrainerConfig(folder, **settings), hooks=hooks)


def tensorflow_writer(program, folder):
    """Returns a function that saves the same variables with TensorFlow and returns the seconds."""
    checkpoint = tf.train.Checkpoint(many=program.many)
    number = [0]

    def write():
        number[0] += 1
        begun = time.perf_counter()
        checkpoint.write(os.path.join(folder, f"tf-{number[0]}"))
        secs = time.perf_counter() - begun
        for name in os.listdir(folder):
            if name.startswith(f"tf-{number[0] - 2}."):
                os.unlink(os.path.join(folder, name))
        return secs

    return write


def stall(scratch):
    """A periodic save in the steady state: how long training stands still for it."""
    every, count, warm_up = 60, 15, 2
    for state in list(STATES)[:2]:
        folder = os.path.join(scratch, "ours")
        with make(state, folder, save_every_steps=every, save_every_secs=None) as program:
            hook = Boundaries(every, tensorflow_writer(program, scratch))
            program.register_hook(hook)
            program.train(steps=(count + warm_up) * every + 1)
        found = (hook.secs[warm_up:], hook.secs_of_theirs[warm_up:])
        print(pairs.Result(f"stall, {state}", *found).line(0.05), flush=True)
        shutil.rmtree(folder)


FIRST = """
import sys
sys.path.insert(0, {here!r})
import checkpoints
checkpoints.first_two({state!r}, {which!r}, {folder!r})
"""


def first_two(state, which, folder):
    """Prints the seconds of the first and the second save of a fresh process, as JSON."""
    every = 30
    settings = {"save_every_steps": every, "save_every_secs": None} if which == "ours" else {}
    with make(state, os.path.join(folder, "run"), **settings) as program:
        theirs = None if which == "ours" else tensorflow_writer(program, folder)
        hook = Boundaries(every if which == "ours" else 2 * every, theirs)
        program.register_hook(hook)
        program.train(steps=4 * every - 1)
    print(json.dumps((hook.secs if which == "ours" else hook.secs_of_theirs)[:2]))


def first(scratch):
    """The first and the second save of a process, which pay for what is done once."""
    for state in list(STATES)[:2]:

        def run(which, state=state):
            folder = tempfile.mkdtemp(dir=scratch)
            here = os.path.dirname(os.path.abspath(__file__))
            code = FIRST.format(here=here, state=state, which=which, folder=folder)
            out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            shutil.rmtree(folder)
            return json.loads(out.stdout.splitlines()[-1])

        ours, theirs = pairs.alternate(
            5,
            lambda: run("ours"),
            lambda: run("tensorflow"),
            warm_up=0,
        )
        for number, word in enumerate(("first", "second")):
            result = pairs.Result(
                f"{word} save's stall, {state}",
                [secs[number] for secs in ours],
                [secs[number] for secs in theirs],
            )
            print(result.line(1.0), flush=True)


def throughput(scratch):
    """A whole durable save, beside writing the same bytes to a plain file and syncing it."""
    for state, count in (("128 MB in 16 variables", 21), ("1 GB in 16 variables", 7)):
        folder = os.path.join(scratch, "ours")
        with make(state, folder) as program:
            program.train(steps=1)
            content = [memoryview(variable.numpy()).cast("B") for variable in program.many]
            size = sum(part.nbytes for part in content) / MEGABYTE
            number = [0]

            def ours(program=program, size=size):
                program.train(steps=1)
                # Saved at the end of that run: once more, and no deletion, as with the plain file.
                shutil.rmtree(os.path.join(program.model_dir, f"ckpt-{program.step}"))
                begun = time.perf_counter()
                program.save()
                return size / (time.perf_counter() - begun)

            def raw(content=content, size=size, number=number):
                number[0] += 1
                path = os.path.join(scratch, f"raw-{number[0]}")
                begun = time.perf_counter()
                with open(path, "wb", buffering=0) as file:
                    for part in content:
                        file.write(part)
                    os.fsync(file.fileno())
                secs = time.perf_counter() - begun
                old = os.path.join(scratch, f"raw-{number[0] - 2}")
                if os.path.exists(old):
                    os.unlink(old)
                return size / secs

            found = pairs.alternate(count, ours, raw, warm_up=3)
        result = pairs.Result(f"durable throughput, {state}", *found, unit="MB/s")
        print(result.line(0.85, at_most=False), flush=True)
        shutil.rmtree(folder)


def restore(scratch):
    """A restore with every check, beside TensorFlow's."""
    for state in list(STATES)[:2]:
        folder = os.path.join(scratch, "ours")
        with make(state, folder) as program:
            program.train(steps=1)
            checkpoint = tf.train.Checkpoint(many=program.many)
            checkpoint.write(os.path.join(scratch, "theirs"))

            def ours(program=program):
                begun = time.perf_counter()
                program.restore(1)
                return time.perf_counter() - begun

            def theirs(checkpoint=checkpoint):
                begun = time.perf_counter()
                checkpoint.read(os.path.join(scratch, "theirs")).assert_consumed()
                return time.perf_counter() - begun

            found = pairs.alternate(15, ours, theirs, warm_up=3)
        print(pairs.Result(f"restore, {state}", *found).line(1.3), flush=True)
        shutil.rmtree(folder)


PEAK = """
import sys
sys.path.insert(0, {here!r})
import checkpoints
checkpoints.print_peak({state!r}, {every!r}, {folder!r})
"""


class Peak(trainer.Hook):
    """Notes the largest resident set of the process so far, in bytes, at a step.

    Args:
        step: the step.
    """

    def __init__(self, step):
        self.every_steps, self.bytes = step, 0

    def after_step(self, ctx):
        with open("/proc/self/status") as file:
            kilobytes = next(line.split()[1] for line in file if line.startswith("VmHWM"))
        self.bytes = int(kilobytes) * 1024

    def get_state(self):
        return {}


def print_peak(state, every, folder):
    """Prints the peak of a fresh process that saves every so many of 100 steps, or never."""
    settings = {"save_every_steps": every, "save_every_secs": None} if every else {}
    peak = Peak(100)
    with make(state, folder, [peak], **settings) as program:
        program.train(steps=100)
    print(peak.bytes)


def memory(scratch):
    """The peak resident set of a run with background saves, beside the same run without one."""
    state = "128 MB in 16 variables"
    size = STATES[state][0] * STATES[state][1] * 4
    here = os.path.dirname(os.path.abspath(__file__))

    def peak(every):
        folder = tempfile.mkdtemp(dir=scratch)
        code = PEAK.format(here=here, state=state, every=every, folder=folder)
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        shutil.rmtree(folder)
        return int(out.stdout.splitlines()[-1]) / size

    with_saves, without = pairs.alternate(5, lambda: peak(30), lambda: peak(None), warm_up=0)
    extra = [a - b for a, b in zip(with_saves, without, strict=True)]
    result = pairs.Result("peak extra memory, in states", extra, [1.0] * len(extra), unit="x")
    print(result.line(1.1), flush=True)


class Busy(trainer.Trainer):
    """A perceptron with Adam whose step keeps both cores busy: 128 MB of state."""

    def build(self):
        layers = [tf.keras.layers.Dense(1024, "relu") for _ in range(10)]
        self.model = tf.keras.Sequential([tf.keras.Input((1024,)), *layers])
        self.optimizer = tf.keras.optimizers.Adam(1e-4)

    def train_dataset(self):
        return tf.data.Dataset.from_tensors(tf.random.normal([128, 1024])).repeat()

    def train_step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(x, training=True) - x) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


class Clock(trainer.Hook):
    """Times a run from before its first step to after its last: without the save at its end."""

    every_steps = 5

    def begin(self, ctx):
        self.ticks = []

    def before_step(self, ctx):
        self.ticks.append(time.perf_counter())

    def after_step(self, ctx):
        self.ticks.append(time.perf_counter())

    def get_state(self):
        return {}


def slowdown(scratch, secs=60, count=4):
    """A minute of training with saves at the automatic interval, beside one without."""
    programs, clocks = {}, {}
    for name, settings in (("ours", {}), ("theirs", {"save_every_secs": 1e9})):
        config = trainer.TrainerConfig(os.path.join(scratch, name), max_to_keep=2, **settings)
        clocks[name] = Clock()
        programs[name] = Busy(config, hooks=[clocks[name]])
        programs[name].train(steps=20)

    def run(name, steps):
        programs[name].train(steps=steps)
        return clocks[name].ticks[-1] - clocks[name].ticks[0]

    steps = 5 * int(secs / run("theirs", 50) * 10)
    found = pairs.alternate(
        count, lambda: run("ours", steps), lambda: run("theirs", steps), warm_up=0
    )
    print(pairs.Result("a minute at the automatic interval", *found).line(1.01), flush=True)
    with open(os.path.join(scratch, "ours", "journal.jsonl")) as file:
        saves = sum('"event": "save"' in line for line in file)
    print(f"    {steps} steps a minute, {count} minutes; {saves - count - 1} periodic saves in all")


FIGURES = {f.__name__: f for f in (stall, first, throughput, restore, memory, slowdown)}


if __name__ == "__main__":
    LOG.setLevel("ERROR")
    pairs.table(FIGURES, sys.argv[1:])
