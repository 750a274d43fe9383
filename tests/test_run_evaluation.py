"""Evaluations, and signals and kills that come in the middle of one (K22, K30)."""

import os
import signal
import threading
import time

import pytest
import tensorflow as tf

import trainer
from trainer.run import inside

from conftest import Summing, crash, run_python

TERM = signal.SIGTERM


class Judged(Summing):
    """Evaluates three batches, on each of which something may happen."""

    batches = 3

    def eval_dataset(self):
        return tf.data.Dataset.range(self.batches)

    def eval_step(self, batch):
        with tf.control_dependencies([tf.numpy_function(self.happens, [batch], [], stateful=True)]):
            return {"mean": tf.cast(batch, tf.float32)}

    def happens(self, batch):
        """Called for each batch."""


class Evaluate(trainer.Hook):
    """Evaluates, and keeps which evaluations came to their end."""

    def __init__(self, every_steps):
        self.every_steps = every_steps
        self.finished = []
        self.found = None

    def after_step(self, ctx):
        self.found = ctx.trainer.evaluate()
        self.finished.append(ctx.step)

    def get_state(self):
        return {"finished": self.finished}

    def set_state(self, state):
        self.finished = state["finished"]


class Signalled(Judged):
    """Is asked to stop while it evaluates."""

    secs = 0.0

    def happens(self, batch):
        os.kill(os.getpid(), TERM)
        time.sleep(self.secs)


class Long(Signalled):
    """Takes ten seconds for it."""

    batches, secs = 200, 0.05

    def happens(self, batch):
        if batch < 2:
            os.kill(os.getpid(), TERM)  # twice within 0.1 s is one request
        time.sleep(self.secs)


def test_a_signal_during_an_evaluation_is_honoured_after_it(make):
    hook = Evaluate(4)
    program = make(Signalled, hooks=[hook], max_steps=12, save_every_steps=100)
    assert program.train() == trainer.RunResult(4, "preempted", 75)
    assert hook.found == {"mean": 1.0}
    assert program.checkpoints == [4]


def test_an_evaluation_without_time_is_ended(make, said):
    hook = Evaluate(4)
    program = make(Long, hooks=[hook], max_steps=12, save_every_steps=3, grace_secs=0.6)
    begun = time.monotonic()
    assert program.train() == trainer.RunResult(4, "preempted", 75)
    assert time.monotonic() - begun < 5.0
    assert hook.finished == []
    assert program.checkpoints == [3]
    assert "not saved at step 4: evaluate() was ended after " in said()
    assert said().splitlines()[-1] == "preempted at step 4; checkpoint 3 stands"
    again = make(Judged, hooks=[Evaluate(4)], max_steps=12, save_every_steps=3)
    assert again.train().reason == "finished"
    assert inside.of(again).parts.hooks._hooks["Evaluate"].finished == [4, 8, 12]
    assert float(again.w) == 78


@pytest.mark.parametrize("method", ["begin", "after_save", "end"])
def test_an_evaluation_without_time_elsewhere(make, method, monkeypatch):
    class Elsewhere(trainer.Hook):
        done = False

    def call(self, ctx):
        if not self.done:
            self.done = True
            ctx.trainer.evaluate()

    setattr(Elsewhere, method, call)
    program = make(Long, hooks=[Elsewhere()], max_steps=4, save_every_steps=3, grace_secs=0.6)
    result = program.train()
    want = {"begin": (0, "preempted"), "after_save": (3, "preempted"), "end": (4, "finished")}
    assert (result.step, result.reason) == want[method]
    assert program.checkpoints == {"begin": [], "after_save": [3], "end": [3, 4]}[method]


def test_outside_a_run_an_evaluation_ends_as_the_program_says(make):
    class Quiet(Judged):
        batches = 5

        def happens(self, batch):
            time.sleep(0.05)

    program = make(Quiet, grace_secs=0.1)
    heard = []
    before = signal.signal(TERM, lambda *_: heard.append(TERM))
    timer = threading.Timer(0.1, os.kill, (os.getpid(), TERM))
    timer.start()
    try:
        assert program.evaluate() == {"mean": 2.0}
    finally:
        timer.join()
        signal.signal(TERM, before)
    assert heard == [TERM]


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import trainer
from trainer.run import inside
from test_run_evaluation import Evaluate, Judged

class Killed(Judged):
    def happens(self, batch):
        if batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)

config = trainer.TrainerConfig({folder!r}, save_every_steps=5, max_steps=10, seed=7)
Killed(config, hooks=[Evaluate(5)]).train()
"""


def test_killed_inside_an_evaluation(make, folder):
    """The evaluation comes before the save of its step (K30)."""
    with make(save_every_steps=4, hooks=[Evaluate(6), trainer.testing.CrashAt(5)]) as program:
        crash(program, max_steps=10)
    code = KILLED.format(tests=os.path.dirname(__file__), folder=folder)
    assert run_python(code, check=False).returncode == -signal.SIGKILL
    program = make(Judged, hooks=[hook := Evaluate(5)], save_every_steps=5, max_steps=10)
    assert program.restored_step == 4  # step 5 was run, and its evaluation was not over
    program.train()
    assert hook.finished == [5, 10]
    assert program.checkpoints[-2:] == [5, 10]
    assert float(program.w) == 55


def test_killed_after_an_evaluation_was_saved(make):
    with make(Judged, hooks=[Evaluate(5), trainer.testing.CrashAt(7)], save_every_steps=5) as first:
        crash(first, max_steps=10)
    program = make(Judged, hooks=[hook := Evaluate(5)], save_every_steps=5, max_steps=10)
    assert program.restored_step == 5
    program.train()
    assert hook.finished == [5, 10]
