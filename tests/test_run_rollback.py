"""Bad numbers: going back, and leaving the batch out that did it."""

import json
import math
import pathlib

import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.base import clock
from trainer.graph import compiled
from trainer.run import retry

from conftest import Summing, crash


class Poisoned(Summing):
    """The data are NaN at some steps."""

    bad = (8,)

    def train_dataset(self):
        def value(x):
            return tf.where(
                tf.reduce_any(x == list(self.bad)), float("nan"), tf.cast(x, tf.float32)
            )

        return tf.data.Dataset.range(1, 100).map(value)


class Late(Summing):
    """The update of step 8 spoils the state; step 9's output is the first to show it."""

    def train_step(self, x):
        loss = self.w * 1.0
        self.w.assign_add(tf.where(x == 8.0, float("nan"), x))
        return {"loss": loss, "x": x}


ROLLBACK = {"on_nonfinite": "rollback", "save_every_steps": 3, "max_to_keep": 2, "max_steps": 12}
IGNORE = {"on_nonfinite": "ignore"}


def events(folder, event):
    lines = (pathlib.Path(folder) / "journal.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["event"] == event]


def test_without_it_the_run_stops_and_the_healthy_checkpoints_stay(make):
    program = make(Poisoned, **ROLLBACK | {"on_nonfinite": "raise"})
    with pytest.raises(trainer.NonFiniteError, match="output 'loss' of step 8 is nan"):
        program.train()
    assert program.checkpoints == [3, 6]


@pytest.mark.parametrize("program_class", [Poisoned, Late])
def test_they_may_be_ignored(make, said, program_class):
    program = make(program_class, hooks=[testing.CrashAt(10)], **ROLLBACK | IGNORE)
    crash(program)
    again = make(program_class, **ROLLBACK | IGNORE)
    assert again.restored_step == 9
    assert again.train() == trainer.RunResult(12, "finished", 0)
    assert math.isnan(float(again.w))
    assert again.checkpoints == [9, 12]
    assert "not finite" not in said()
    with make(program_class, max_steps=12):
        assert "checkpoint 12 holds values that are not finite: w" in said()


@pytest.mark.parametrize("program_class", [Poisoned, Late])
def test_the_batch_that_did_it_is_left_out(make, said, program_class):
    program = make(program_class, **ROLLBACK)
    assert program.train() == trainer.RunResult(12, "finished", 0)
    assert float(program.w) == 70  # 78 - 8
    assert program.checkpoints == [9, 12]
    assert (
        said().count("back at checkpoint 6, batch 8 is left out from now on (rollback 1 of 3)") == 1
    )
    (entry,) = events(program.model_dir, "rollback")
    assert (entry["step"], entry["left_out"]) == (6, 8)


@pytest.mark.parametrize("program_class", [Poisoned, Late])
@pytest.mark.parametrize("crashes", [[4, 7], [10, 11], [7, 10]])
def test_a_cut_run_leaves_the_same_batch_out(program_class, crashes):
    def make(folder, hooks):
        settings = ROLLBACK | {"seed": 7}
        del settings["max_steps"]
        return program_class(trainer.TrainerConfig(folder, **settings), hooks=hooks)

    testing.assert_resumes_exactly(make, steps=15, crashes=crashes)


def test_a_later_resume_leaves_it_out_too(make):
    class Counted(Poisoned):
        seen = []

        def train_step(self, x):
            tf.py_function(lambda value: self.seen.append(float(value)), [x], [])
            return super().train_step(x)

    crash(make(Counted, hooks=[testing.CrashAt(10)], **ROLLBACK))
    Counted.seen.clear()
    program = make(Counted, **ROLLBACK)
    assert program.restored_step == 9
    program.train()
    assert Counted.seen == [10.0, 11.0, 12.0]
    program.restore(9)
    assert program.state()["trainer/left_out"].numpy() == b"[8]"


def test_before_the_first_checkpoint_there_is_a_way_back_too(make):
    class AtOnce(Poisoned):
        bad = (2,)

    program = make(AtOnce, **ROLLBACK)
    assert program.train().reason == "finished"
    assert float(program.w) == 76


def test_the_hooks_of_a_step_left_out_see_no_value(make, said):
    class Watch(trainer.Hook):
        rows = {}

        def after_step(self, ctx):
            self.rows[ctx.step] = float(ctx.outputs["x"])

        def get_state(self):
            return {}

    hook = Watch()
    make(Poisoned, hooks=[hook, trainer.LogProgress(every_steps=4)], **ROLLBACK).train()
    assert str(hook.rows[8]) == "nan"
    assert [hook.rows[step] for step in (6, 7, 9, 12)] == [6, 7, 9, 12]
    assert "step 8/12  loss -" in said()


def test_without_end_it_is_an_error_with_the_list(make):
    class Often(Poisoned):
        bad = (4, 5, 7, 8)

    with pytest.raises(trainer.NonFiniteError, match="of step 8 is nan") as caught:
        make(Often, **ROLLBACK).train()
    assert (
        "max_rollbacks=3 are used up: steps [4, 5, 7] were undone and their batches left out"
        in (caught.value.__notes__)
    )


def test_several_batches_are_left_out(make):
    class Twice(Poisoned):
        bad = (4, 5, 8)

    program = make(Twice, **ROLLBACK)
    program.train()
    assert float(program.w) == 78 - 4 - 5 - 8


def test_a_variable_that_spoils_no_output_is_found_at_the_save(make):
    class Silent(Summing):
        def build(self):
            super().build()
            self.other = tf.Variable(0.0)

        def train_step(self, x):
            self.other.assign_add(tf.where(x == 5.0, float("inf"), x))
            return super().train_step(x)

    program = make(Silent, **ROLLBACK)
    program.train()
    assert float(program.other) == 78 - 5
    assert program.checkpoints == [9, 12]


def test_the_update_counter_is_one_behind(make):
    class Keras(Poisoned):
        def build(self):
            self.w = tf.keras.Variable(0.0)
            self.optimizer = tf.keras.optimizers.SGD(1.0)
            self.optimizer.build([self.w])

        def train_step(self, x):
            with tf.GradientTape() as tape:
                loss = -self.w.value * x
            self.optimizer.apply(tape.gradient(loss, [self.w.value]), [self.w])
            return {"loss": loss}

    program = make(Keras, **ROLLBACK)
    program.train()
    assert float(program.w) == 70
    assert int(program.optimizer.iterations) == 11
    assert program.step == 12


class Spiky(Summing):
    """One output jumps at step 9, though all is finite."""

    def train_step(self, x):
        outputs = super().train_step(x)
        return outputs | {"noise": tf.where(x == 9.0, 100.0, 1.0)}


def test_a_spike_is_undone(make, said):
    hook = trainer.RollbackOnSpike("noise", factor=5, window=4)
    program = make(Spiky, hooks=[hook], save_every_steps=3, max_steps=12)
    assert program.train().reason == "finished"
    assert float(program.w) == 78 - 9
    assert "noise is 100, above 5 times the median 1 of the 4 steps before" in said()


def test_a_spike_before_the_first_checkpoint_is_undone_too(make):
    hook = trainer.RollbackOnSpike("noise", factor=5, window=4)
    program = make(Spiky, hooks=[hook], save_every_steps=100, max_steps=12)
    assert program.train().reason == "finished"
    assert float(program.w) == 78 - 9


def test_a_spike_in_a_cut_run_is_undone_alike():
    def make(folder, hooks):
        config = trainer.TrainerConfig(folder, save_every_steps=3, seed=7)
        return Spiky(config, hooks=[trainer.RollbackOnSpike("noise", factor=5, window=4), *hooks])

    testing.assert_resumes_exactly(make, steps=15, crashes=[5, 11])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"factor": 1}, "factor must be above 1, got 1"),
        ({"window": 0}, "window must be at least 1, got 0"),
    ],
)
def test_a_spike_hook_checks_its_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        trainer.RollbackOnSpike("loss", **arguments)


def test_a_spike_hook_names_the_outputs_there_are(make):
    program = make(Summing, hooks=[trainer.RollbackOnSpike("los")], max_steps=4)
    with pytest.raises(ValueError, match=r"there is no output 'los'; there are \['loss', 'x'\]"):
        program.train()


def test_restoring_a_checkpoint_that_is_not_finite_says_so(make, said):
    class Infinite(Summing):
        def build(self):
            self.w = tf.Variable(float("inf") if self.infinite else 0.0)

        def train_step(self, x):
            self.w.assign_add(x)
            return {"x": x}

    Infinite.infinite = True  # allowed: it was made so
    make(Infinite, max_steps=2).train()
    Infinite.infinite = False
    assert make(Infinite, max_steps=4).restored_step == 2
    assert "checkpoint 2 holds values that are not finite: w; it cannot be saved again" in said()


@pytest.fixture
def fail(monkeypatch):
    """Makes calls end with an error before a step: fail(error, steps)."""
    run = compiled.Loop.run
    todo = []

    def flaky(self, iterator, limit, **options):
        before = int(self._counter)
        if todo and before < todo[0][1] <= before + limit:
            raise todo.pop(0)[0](None, None, "the device is away")
        return run(self, iterator, limit, **options)

    monkeypatch.setattr(compiled.Loop, "run", flaky)
    return lambda error, steps: todo.extend((error, step) for step in steps)


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between retries, which are not made."""
    made = []
    monkeypatch.setattr("trainer.run.retry.pause", made.append)
    return made


def test_an_error_that_passes_is_tried_again_in_the_process(make, said, pauses, fail):
    fail(tf.errors.UnavailableError, [5, 5, 8])
    program = make(max_steps=10)
    assert program.train() == trainer.RunResult(10, "finished", 0)
    assert float(program.w) == 55
    assert pauses == [0.1, 0.5, 0.1]
    assert "UnavailableError: the device is away; from checkpoint 3 again in 0.1 s" in said()
    assert [entry["step"] for entry in events(program.model_dir, "retry")] == [3, 3, 6]


def test_retries_without_progress_end(make, pauses, fail):
    fail(tf.errors.AbortedError, [5] * 9)
    with pytest.raises(tf.errors.AbortedError) as caught:
        make(max_steps=10).train()
    assert pauses == [0.1, 0.5, 2.5]
    assert "given up: tried 3 times from checkpoint 3" in caught.value.__notes__


def test_without_a_checkpoint_there_is_nothing_to_go_back_to(make, pauses, fail):
    fail(tf.errors.UnavailableError, [2])
    with pytest.raises(tf.errors.UnavailableError) as caught:
        make(max_steps=10).train()
    assert "not tried again: no checkpoint was written yet" in caught.value.__notes__


def test_errors_of_the_program_are_never_tried_again(make, pauses, fail):
    fail(tf.errors.InvalidArgumentError, [5])
    with pytest.raises(tf.errors.InvalidArgumentError):
        make(max_steps=10).train()

    class Hook(trainer.Hook):
        def after_step(self, ctx):
            if ctx.step == 8:
                raise tf.errors.UnavailableError(None, None, "of a hook")

    with pytest.raises(tf.errors.UnavailableError, match="of a hook"):
        make(hooks=[Hook()], max_steps=10).train()
    assert pauses == []


@pytest.mark.parametrize(
    ("error", "curable"),
    [
        (tf.errors.AbortedError(None, None, "x"), True),
        (tf.errors.InternalError(None, None, "Collective ops is aborted"), True),
        (tf.errors.InternalError(None, None, "a bug"), False),
        (tf.errors.ResourceExhaustedError(None, None, "x"), False),
        (ValueError("x"), False),
    ],
)
def test_what_passes_is_a_list(error, curable):
    assert retry.is_curable(error) is curable


def test_rollbacks_are_counted_over_the_run(make):
    """Once each process had max_rollbacks of its own."""

    class Often(Poisoned):
        bad = (4, 8)

    settings = ROLLBACK | {"max_rollbacks": 1}
    crash(make(Often, hooks=[testing.CrashAt(7)], **settings))
    again = make(Often, **settings)
    with pytest.raises(trainer.NonFiniteError, match="step 8 is nan") as caught:
        again.train()
    assert "max_rollbacks=1 are used up: steps [4] were undone" in caught.value.__notes__[0]


def test_seconds_that_were_undone_count_once(make, monkeypatch):
    """Once each way back counted the whole of the process again."""
    now = [0.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    class Second(trainer.Hook):
        def before_step(self, ctx):
            now[0] += 1.0

    program = make(Poisoned, hooks=[Second()], **ROLLBACK)
    assert program.train().step == 12
    assert float(program.state()["trainer/secs"]) == 12.0
