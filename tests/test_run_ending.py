"""The one way out of a run: whatever ends it, the reason is true and no error is lost."""

import errno
import json
import os
import pathlib
import signal
import time

import pytest
import tensorflow as tf

import trainer
from trainer.checkpoints import files
from trainer.journal import goodput, journal
from trainer.run import inside, saving

from conftest import Summing
from support import faults

TERM, USR1 = signal.SIGTERM, signal.SIGUSR1


@pytest.fixture
def _impatient(monkeypatch):
    """Training does not wait for a save here, as with a large state."""
    monkeypatch.setattr(saving, "_PATIENCE_SECS", 0.0)


class Slowly(Summing):
    """Evaluates for a second."""

    def eval_dataset(self):
        return tf.data.Dataset.range(10)

    def eval_step(self, batch):
        slept = tf.numpy_function(lambda: time.sleep(0.1), [], [], stateful=True)
        with tf.control_dependencies([slept]):
            return {"mean": tf.cast(batch, tf.float32)}


class StopAndEvaluate(trainer.Hook):
    """Is asked to stop at a step, and evaluates then and after each save."""

    def __init__(self, step, release=None):
        self.step = step
        self.release = release
        self.error = "end was not called"

    def after_step(self, ctx):
        if ctx.step == self.step:
            os.kill(os.getpid(), TERM)
            if self.release is not None:
                self.release.go.set()
                assert inside.of(ctx.trainer).saver._writer.wait(60)
            ctx.trainer.evaluate()

    def after_save(self, ctx):
        ctx.trainer.evaluate()

    def end(self, ctx):
        self.error = ctx.error

    def get_state(self):
        return {}


def events(folder, kind):
    lines = (pathlib.Path(folder) / "journal.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.mark.usefixtures("_impatient")
def test_a_signal_that_leaves_no_time_while_a_save_is_written(make, folder):
    """The evaluation after that save is ended as well: once this escaped from train()."""
    hook = StopAndEvaluate(5)
    program = make(Slowly, hooks=[hook], max_steps=20, grace_secs=0.05)
    hook.release = inside.of(program).parts.store.files = faults.Held(1)
    assert program.train() == trainer.RunResult(5, "preempted", 75)
    assert hook.error is None
    assert program.checkpoints == [3]
    assert [event["reason"] for event in events(folder, "stop")] == ["preempted"]


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("how", ["raise", "warn"])
def test_the_failure_of_that_save_reaches_the_caller(make, folder, how):
    hook = StopAndEvaluate(5)
    program = make(Slowly, hooks=[hook], max_steps=20, grace_secs=0.05, on_save_error=how)

    class Failing(faults.Held):
        def write_bundle(self, prefix, tensors, streams):
            super().write_bundle(prefix, tensors, streams)
            raise OSError(errno.ENOSPC, "No space left on device")

    hook.release = inside.of(program).parts.store.files = Failing(1)
    with pytest.raises(trainer.SaveError, match="could not save checkpoint 3 .*No space left"):
        program.train()
    assert isinstance(hook.error, trainer.SaveError)
    assert [event["reason"] for event in events(folder, "stop")] == ["error"]


def test_an_evaluation_after_a_save_that_is_ended_leaves_the_step_whole(make, said):
    class StopAfterSave(StopAndEvaluate):
        def after_save(self, ctx):
            os.kill(os.getpid(), TERM)
            ctx.trainer.evaluate()

    program = make(Slowly, hooks=[StopAfterSave(0)], max_steps=20, grace_secs=0.3)
    assert program.train() == trainer.RunResult(3, "preempted", 75)
    assert program.checkpoints == [3]
    assert "evaluate() was ended after" in said()


def test_sigusr1_while_hooks_hear_of_a_save(make):
    """It comes after the look at requests and before the next call begins: once it was lost."""

    class Ask(trainer.Hook):
        def after_save(self, ctx):
            if ctx.saved_step == 150:
                os.kill(os.getpid(), USR1)
                time.sleep(0.1)  # it is heard in a thread

    program = make(hooks=[Ask()], save_every_steps=150, max_steps=300)
    assert program.train().step == 300
    assert program.checkpoints == [150, 151, 300]


def test_a_subclass_called_trainer_may_have_private_attributes(make):
    """Names with two underscores are shared by classes of one name: once this hid our own."""

    class Trainer(Summing):
        def build(self):
            super().build()
            self.__config = "mine"
            self.__parts = self.__saver = None
            self.__w = tf.Variable(1.0)

        def __train(self, *_):
            raise AssertionError("the trainer's own method is another one")

        def train_step(self, x):
            self.__w.assign_add(1.0)
            return super().train_step(x)

    program = make(Trainer, max_steps=4)
    assert program.train().step == 4
    assert program.config.max_steps == 4
    assert float(make(Trainer, max_steps=4).state()["Trainer__w"]) == 5.0


class Wrong(Summing):
    """The update of step 90 spoils the state; an output shows it at 99 only."""

    def build(self):
        super().build()
        self.spoilt = tf.Variable(0.0)

    def train_step(self, x):
        self.spoilt.assign_add(tf.where(x == 90.0, float("nan"), 0.0))
        slept = tf.numpy_function(self.happens, [x], [], stateful=True)
        with tf.control_dependencies([slept]):
            outputs = super().train_step(x)
        return outputs | {"late": tf.where(x == 99.0, self.spoilt, 0.0)}

    def happens(self, x):
        """Called at each step."""


def test_a_stop_signal_ends_the_search_for_the_batch(make, folder, said):
    """Once the search went on through the whole grace."""
    seen = []

    class Searching(Wrong):
        def happens(self, x):
            seen.append(float(x))
            if len(seen) == 99 + 20:
                os.kill(os.getpid(), TERM)
                time.sleep(0.1)

    settings = {"on_nonfinite": "rollback", "save_every_steps": 1000, "max_steps": 120}
    program = make(Searching, **settings)
    assert program.train() == trainer.RunResult(0, "preempted", 75)
    assert len(seen) in (99 + 20, 99 + 21)
    assert program.checkpoints == [0]
    assert "the search for the batch was ended by a stop signal" in said()
    again = make(Wrong, **settings)
    assert again.train() == trainer.RunResult(120, "finished", 0)
    assert [event["left_out"] for event in events(folder, "rollback")] == [90]


class RaiseAtTheEnd(trainer.Hook):
    def end(self, ctx):
        raise RuntimeError("no more ink")


def test_a_hook_that_raises_in_end_leaves_the_run_as_it_was(make, folder):
    """Once the journal had no line for it, so that the report counted the work as lost."""
    program = make(hooks=[RaiseAtTheEnd()], max_steps=4)
    with pytest.raises(RuntimeError, match="no more ink"):
        program.train()
    (stop,) = events(folder, "stop")
    assert stop["reason"] == "finished"
    assert stop["error"] == "RuntimeError: no more ink"
    report = goodput.report(journal.read(files.LocalFiles(), folder))
    assert (report["interruptions"], report["steps_lost"]) == (0, [])


@pytest.mark.parametrize("moment", ["begin", "after_save"])
def test_save_while_other_hooks_still_have_to_be_called(make, moment):
    class Save(trainer.Hook):
        def save(self, ctx):
            ctx.trainer.save()

    class Later(trainer.Hook):
        pass

    setattr(Save, moment, Save.save)
    text = f"save.. inside {moment} would miss the hooks that still have to run"
    with pytest.raises(trainer.TrainerError, match=text):
        make(hooks=[Save(), Later()], max_steps=4).train()
    assert make(hooks=[Later(), Save()], max_steps=4).train().step == 4


def test_the_grace_holds_for_a_save_that_is_due_too(make, said, monkeypatch):
    """Once it was made all the same, and the log said "not saved" and "stands"."""
    program = make(hooks=[trainer.testing.SignalAt(6)], max_steps=20, grace_secs=3)
    monkeypatch.setattr(type(inside.of(program).saver), "expected_secs", 4.0)
    assert program.train() == trainer.RunResult(6, "preempted", 75)
    assert program.checkpoints == [3]
    assert "not saved at step 6: the save before took 4 s" in said()
    assert said().splitlines()[-1] == "preempted at step 6; checkpoint 3 stands"


@pytest.mark.parametrize("status", [None, 0, 75, "enough"])
def test_an_exit_in_a_hook_is_an_error_of_the_run(make, folder, status):
    """Once status 0 and 75 went out, which say "is done" and "is saved"."""

    class Exit(trainer.Hook):
        def after_step(self, ctx):
            if ctx.step == 5:
                raise SystemExit(status)

    program = make(hooks=[Exit()], max_steps=10)
    text = f"hook Exit called sys.exit.{status!r}. in after_step at step 5: an exit there is an err"
    with pytest.raises(trainer.TrainerError, match=text):
        program.train()
    assert program.checkpoints == [3]
    assert [event["reason"] for event in events(folder, "stop")] == ["error"]


@pytest.mark.parametrize("what", ["train", "restore", "register_hook"])
@pytest.mark.parametrize("moment", ["begin", "after_step", "after_save", "end"])
def test_what_would_pull_the_state_away_from_under_a_run(make, what, moment):
    calls = {
        "train": lambda program: program.train(steps=1),
        "restore": lambda program: program.restore(3),
        "register_hook": lambda program: program.register_hook(trainer.LogProgress()),
    }

    class Call(trainer.Hook):
        def call(self, ctx):
            calls[what](ctx.trainer)

    setattr(Call, moment, Call.call)
    program = make(hooks=[Call()], max_steps=6)
    with pytest.raises(trainer.TrainerError, match=rf"{what}\(\) while train\(\) is on"):
        program.train()


def test_the_log_and_the_journal_name_the_reason_of_tensorflow(make, folder, said):
    """Once they said "Graph execution error:"."""

    class Fails(Summing):
        def train_step(self, x):
            tf.debugging.assert_less(x, 5.0, message="x is too large")
            return super().train_step(x)

    with pytest.raises(tf.errors.InvalidArgumentError):
        make(Fails, max_steps=10).train()
    (stop,) = events(folder, "stop")
    assert stop["error"].startswith("InvalidArgumentError: assertion failed: [x is too large]")
    assert "run ended at step 3 by InvalidArgumentError: assertion failed" in said()


@pytest.mark.parametrize("ask", [False, True])
def test_a_last_save_left_out_for_a_signal_asks_to_be_run_again(make, monkeypatch, ask):
    """Once the status was 0, "is done", though the last steps were nowhere."""

    class Ask(trainer.Hook):
        def after_step(self, ctx):
            if ctx.step == 8:
                os.kill(os.getpid(), TERM)
                if ask:
                    ctx.request_stop("enough")

    program = make(hooks=[Ask()], max_steps=8, save_every_steps=5, grace_secs=3)
    monkeypatch.setattr(type(inside.of(program).saver), "expected_secs", 4.0)
    assert program.train() == trainer.RunResult(8, "preempted", 75)
    assert program.checkpoints == [5]
    monkeypatch.undo()
    again = make(max_steps=8)
    assert again.restored_step == 5
    assert again.train() == trainer.RunResult(8, "finished", 0)
