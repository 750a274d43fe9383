"""Steps a second, beside the hand-written loop in the graph, Orbit, Keras and a Python loop.

    python benchmarks/steps.py                every figure (about three minutes)
    python benchmarks/steps.py graph orbit    some of them

Figures: graph, first, orbit, keras, python. The trainer runs once, without a stop, and its hook
`Turns` runs the other side in between, so that both meet the same noise (order A B B A, see
pairs.py).
"""

import contextlib
import logging
import os
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pairs
import tensorflow as tf
import workloads

import trainer

PAIRS = 10
WARM_UP = 2


class Turns(trainer.Hook):
    """Measures the trainer between two of its steps, and the other side in between.

    Args:
        every_steps: steps in one measurement.
        other: runs so many steps of the other side.
        pairs: measurements of each side.
    """

    def __init__(self, every_steps, other, pairs=PAIRS):
        self.every_steps = every_steps
        self.ours, self.theirs = [], []
        self._other = other
        self._pairs = pairs + WARM_UP
        self._went_on = None

    def begin(self, ctx):
        """Starts the clock."""
        self._went_on = time.perf_counter()

    def after_step(self, ctx):
        """Notes this side's rate, and the other's every second time, twice."""
        self.ours.append(self.every_steps / (time.perf_counter() - self._went_on))
        if len(self.ours) % 2:
            self.theirs += [self._rate(), self._rate()]
        if len(self.ours) >= self._pairs:
            ctx.request_stop("measured")
        self._went_on = time.perf_counter()

    def result(self, name):
        """Returns the pairs after the warm-up."""
        return pairs.Result(name, self.ours[WARM_UP:], self.theirs[WARM_UP:], "steps/s")

    def _rate(self):
        begun = time.perf_counter()
        self._other(self.every_steps)
        return self.every_steps / (time.perf_counter() - begun)


class UntilStep(trainer.Hook):
    """Measures the way from the first step to another, and ends the run there.

    Args:
        step: that step.
    """

    def __init__(self, step):
        self.every_steps = step
        self.rate = None
        self._begun = None

    def begin(self, ctx):
        """Starts the clock."""
        self._begun = time.perf_counter()

    def after_step(self, ctx):
        """Stops it."""
        self.rate = ctx.step / (time.perf_counter() - self._begun)
        ctx.request_stop("measured")


class EveryStep(trainer.Hook):
    """Asks to be called after each step, and counts."""

    calls = 0

    def after_step(self, ctx):
        """Counts."""
        self.calls += 1


def beside(name, size, other, *, save_every_steps=None, stretch=None, extra=(), count=PAIRS):
    """Returns the rates of the trainer, with progress every 100 steps, and of another loop."""
    turns = Turns(stretch or size.stretch, other, count)
    with tempfile.TemporaryDirectory() as folder:
        config = trainer.TrainerConfig(
            model_dir=folder, max_steps=10**9, seed=1, save_every_steps=save_every_steps
        )
        hooks = [trainer.LogProgress(every_steps=100), *extra, turns]
        with workloads.Program(size, config, hooks) as program:
            program.train()
    return turns.result(f"{name}, {size.name} step")


def hand_written(size):
    """Returns the loop in the graph that a careful user writes, with nothing around it."""
    step, iterator = workloads.make_step(size), iter(workloads.dataset(size))

    @tf.function
    def loop(iterator, count):
        error = tf.constant(0.0)
        for _ in tf.range(count):
            error = step(next(iterator))
        return error

    return lambda count: float(loop(iterator, tf.constant(count)))


def python_loop(size):
    """Returns the loop in Python around one compiled step."""
    step, iterator = workloads.make_step(size), iter(workloads.dataset(size))

    @tf.function
    def one(iterator):
        return step(next(iterator))

    def loop(count):
        for _ in range(count):
            one(iterator)

    return loop


def orbit_loop(size, folder, save_every_steps):
    """Returns Orbit's loop, 100 steps at a time, with its checkpoint manager."""
    import orbit

    class Task(orbit.StandardTrainer):
        """The same step for Orbit."""

        def __init__(self):
            self.step_on = workloads.make_step(size)
            self.error = tf.Variable(0.0)
            super().__init__(workloads.dataset(size))

        def train_step(self, iterator):
            """Trains on one batch."""
            count.assign_add(1)
            self.error.assign(self.step_on(next(iterator)))

        def train_loop_end(self):
            """Returns what is shown."""
            return {"loss": self.error.read_value()}

    count = tf.Variable(0, dtype=tf.int64)
    task = Task()
    checkpoint = tf.train.Checkpoint(count=count, **task.step_on.parts)
    manager = tf.train.CheckpointManager(
        checkpoint,
        folder,
        max_to_keep=5,
        step_counter=count,
        checkpoint_interval=save_every_steps,
    )
    controller = orbit.Controller(
        trainer=task, global_step=count, checkpoint_manager=manager, steps_per_loop=100
    )

    def loop(steps):
        with contextlib.redirect_stdout(sys.stderr):
            controller.train(int(count) + steps, checkpoint_at_completion=False)

    return loop


def keras_loop(size, folder, save_every_steps, **compile_options):
    """Returns `fit` with `BackupAndRestore`."""
    net = workloads.model(size)
    net.compile(workloads.optimizer(), workloads.loss(), **compile_options)
    backup = tf.keras.callbacks.BackupAndRestore(
        os.path.join(folder, "backup"), save_freq=save_every_steps
    )
    endless = workloads.dataset(size)

    def loop(count):
        net.fit(endless, steps_per_epoch=count, verbose=0, callbacks=[backup])

    return loop


def best_keras(size, folder, save_every_steps):
    """Returns the fastest of the settings that users would try, with its name."""

    def rate(options):
        loop = keras_loop(size, folder, save_every_steps, **options)
        loop(size.stretch // 2)
        begun = time.perf_counter()
        loop(size.stretch)
        return time.perf_counter() - begun

    tried = [
        {"steps_per_execution": steps, "jit_compile": jit}
        for steps in (10, 50, 100)
        for jit in ("auto", False)
    ]
    best = min(tried, key=rate)
    said = f"steps_per_execution={best['steps_per_execution']}, jit_compile={best['jit_compile']}"
    return keras_loop(size, folder, save_every_steps, **best), said


def graph(scratch):
    """Everything on, beside the hand-written loop with nothing."""
    for size in workloads.ALL:
        result = beside("hand-written graph loop", size, hand_written(size), count=2 * PAIRS)
        print(result.line(0.97, at_most=False), flush=True)


def first(scratch):
    """The first second of a run, beside that of the hand-written loop, which is traced before."""
    size = workloads.TINY
    steps = 2 * size.stretch

    def ours():
        until = UntilStep(steps)
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            config = trainer.TrainerConfig(folder, max_steps=10**9, seed=1)
            with workloads.Program(size, config, [trainer.LogProgress(100), until]) as program:
                program.train()
        return until.rate

    def theirs():
        loop = hand_written(size)
        loop(1)
        begun = time.perf_counter()
        loop(steps)
        return steps / (time.perf_counter() - begun)

    found = pairs.alternate(PAIRS, ours, theirs)
    name = f"hand-written graph loop, the first {steps} steps, {size.name} step"
    print(pairs.Result(name, *found, "steps/s").line(0.97, at_most=False), flush=True)


def orbit(scratch):
    """Beside Orbit's controller, with saves at the same steps."""
    for size, target in ((workloads.TINY, 1.3), (workloads.SMALL, 1.0)):
        every = 4 * size.stretch
        loop = orbit_loop(size, os.path.join(scratch, size.name), every)
        result = beside("Orbit", size, loop, save_every_steps=every)
        print(result.line(target, at_most=False), flush=True)


def keras(scratch):
    """Beside Keras' fit, with saves at the same steps."""
    for size in (workloads.TINY, workloads.SMALL):
        every, stretch = 4 * size.stretch, size.stretch // 4
        folder = os.path.join(scratch, f"keras-{size.name}")
        loop = keras_loop(size, folder, every)
        result = beside("Keras fit", size, loop, save_every_steps=every, stretch=stretch)
        print(result.line(5.0, at_most=False), flush=True)
        loop, said = best_keras(size, folder, every)
        result = beside(f"Keras fit, {said}", size, loop, save_every_steps=every)
        print(result.line(1.5, at_most=False), flush=True)


def python(scratch):
    """A hook on every step, beside a bare loop in Python on a compiled step."""
    size = workloads.TINY
    loop = python_loop(size)
    result = beside(
        "Python loop, hook on every step", size, loop, stretch=1000, extra=[EveryStep()]
    )
    print(result.line(0.95, at_most=False), flush=True)


FIGURES = {figure.__name__: figure for figure in (graph, first, orbit, keras, python)}


def main(names):
    """Measures the figures named, or all."""
    workloads.fix_threads()
    logging.getLogger("absl").setLevel(logging.ERROR)
    print(f"TensorFlow {tf.__version__}, {workloads.THREADS} threads of each kind\n")
    pairs.table(FIGURES, names)


if __name__ == "__main__":
    main(sys.argv[1:])
