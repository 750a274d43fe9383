"""Hooks: order, errors, state (K05, K21, invariants 2 and 10)."""

import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.run import inside

from conftest import Summing, crash


class Noted(trainer.Hook):
    """Writes its name and each event into a shared list."""

    def __init__(self, name, events, raise_at=None, raise_in_end=False):
        self.label, self.events = name, events
        self.raise_at, self.raise_in_end = raise_at, raise_in_end

    def note(self, event):
        self.events.append(f"{event} {self.label}")

    def begin(self, ctx):
        self.note("begin")

    def before_step(self, ctx):
        self.note(f"before {ctx.step}")

    def after_step(self, ctx):
        self.note(f"after {ctx.step}")
        if ctx.step == self.raise_at:
            raise KeyError(f"{self.label} broke")

    def after_save(self, ctx):
        self.note(f"saved {ctx.saved_step}")

    def end(self, ctx):
        self.note(f"end {type(ctx.error).__name__}")
        if self.raise_in_end:
            raise OSError("end broke")


class A(Noted):
    pass


class B(Noted):
    pass


class C(Noted):
    pass


def abc(events, **how):
    return [A("A", events, **how), B("B", events), C("C", events, raise_in_end=bool(how))]


def test_the_order(make):
    events = []
    make(hooks=abc(events), save_every_steps=1, max_steps=2).train()
    expected = ["begin A", "begin B", "begin C"]
    for step in (1, 2):
        for event in (f"before {step - 1}", f"after {step}", f"saved {step}"):
            expected += [f"{event} {name}" for name in "ABC"]
    expected += ["end NoneType C", "end NoneType B", "end NoneType A"]
    assert events == expected


def test_a_hook_that_raises(make, said):
    events = []
    program = make(hooks=abc(events, raise_at=5), save_every_steps=1, max_steps=10)
    with pytest.raises(KeyError, match="A broke") as caught:
        program.train()
    assert caught.value.__notes__ == ["raised by A.after_step at step 5"]
    assert events[-4:] == ["after 5 A", "end KeyError C", "end KeyError B", "end KeyError A"]
    assert "after 5 B" not in events
    assert "hook C raised in end: OSError('end broke')" in said()
    assert "run ended at step 5 by KeyError" in said()
    assert "checkpoint 4 stands" in said()
    resumed = make(max_steps=10)
    assert (resumed.step, float(resumed.w)) == (4, 10)
    resumed.train()
    assert float(resumed.w) == 55


def test_an_error_in_end_alone_is_raised(make):
    events = []
    hook = A("A", events, raise_in_end=True)
    with pytest.raises(OSError, match="end broke"):
        make(hooks=[hook, B("B", events)], max_steps=3).train()
    assert events[-2:] == ["end NoneType B", "end NoneType A"]


def test_only_begun_hooks_end(make):
    events = []

    class Broken(Noted):
        def begin(self, ctx):
            raise ValueError("not ready")

    with pytest.raises(ValueError, match="not ready"):
        make(hooks=[A("A", events), Broken("X", events), C("C", events)], max_steps=3).train()
    assert events == ["begin A", "end ValueError A"]


def test_a_step_that_raises(make):
    class Broken(Summing):
        def train_step(self, x):
            tf.debugging.assert_less(x, 5.0, message="five is too much")
            return super().train_step(x)

    events = []
    program = make(Broken, hooks=[A("A", events)], max_steps=10)
    with pytest.raises(tf.errors.InvalidArgumentError, match="five is too much") as caught:
        program.train()
    assert "raised by train_step at step 5" in caught.value.__notes__
    assert events[-2:] == ["before 4 A", "end InvalidArgumentError A"]
    with pytest.raises(trainer.SaveError, match="step 5 raised InvalidArgumentError"):
        program.save()
    with pytest.raises(trainer.TrainerError, match="the state in memory is that of no whole step"):
        program.train()
    program.restore(3)
    assert float(program.w) == 6


def test_a_change_in_end_is_not_saved(make):
    class Hundred(trainer.Hook):
        def end(self, ctx):
            ctx.trainer.w.assign(100.0)

    program = make(hooks=[Hundred()], max_steps=4)
    program.train()
    assert float(program.w) == 100
    assert float(make().w) == 10


def test_a_stop_request_lets_the_step_finish(make):
    events = []

    class Stop(Noted):
        def after_step(self, ctx):
            super().after_step(ctx)
            if ctx.step == 5:
                ctx.request_stop("enough")

    hooks = [Stop("S", events), B("B", events)]
    assert make(hooks=hooks, max_steps=10).train() == trainer.RunResult(5, "stopped")
    assert events[-6:] == [
        "after 5 S",
        "after 5 B",
        "saved 5 S",
        "saved 5 B",
        "end NoneType B",
        "end NoneType S",
    ]


def test_non_finite_stops_before_the_hooks_and_the_save(make, said):
    class Poisoned(Summing):
        def train_dataset(self):
            return super().train_dataset().map(lambda x: tf.where(x == 8, float("nan"), x))

    events = []
    program = make(Poisoned, hooks=[A("A", events)], max_steps=12, max_to_keep=2)
    with pytest.raises(trainer.NonFiniteError, match="output 'loss' of step 8 is nan") as caught:
        program.train()
    assert (caught.value.step, caught.value.output) == (8, "loss")
    assert "checkpoint 6 stands" in str(caught.value)
    assert program.checkpoints == [3, 6]
    assert events[-2:] == ["before 7 A", "end NonFiniteError A"]
    with pytest.raises(trainer.SaveError, match="step 8 returned an output that is not finite"):
        program.save()
    assert float(make(Poisoned).w) == 21


def test_save_inside_a_step_hook_is_refused(make):
    class Saving(trainer.Hook):
        def after_step(self, ctx):
            ctx.trainer.save()

    with pytest.raises(trainer.TrainerError, match="would miss the hooks that still have to run"):
        make(hooks=[Saving()], max_steps=3).train()


# K05: state of hooks


class Patience(trainer.Hook):
    """Stops after ten checks without a better value."""

    def __init__(self):
        self.best, self.wait = float("inf"), 0

    def after_step(self, ctx):
        value = max(0.0, 70.0 - ctx.step)
        if value < self.best:
            self.best, self.wait = value, 0
        else:
            self.wait += 1
            if self.wait >= 10:
                ctx.request_stop("no better value")

    def get_state(self):
        return {"best": self.best, "wait": self.wait}

    def set_state(self, state):
        self.best, self.wait = state["best"], state["wait"]


@pytest.mark.parametrize(("every", "resumes_at"), [(10, 70), (1, 78)])
def test_patience_goes_on(make, every, resumes_at):
    crash(make(hooks=[Patience(), testing.CrashAt(79)], save_every_steps=every), max_steps=200)
    program = make(hooks=[Patience()], save_every_steps=every, max_steps=200)
    assert program.step == resumes_at
    assert program.train() == trainer.RunResult(80, "stopped")


class Counting(trainer.Hook):
    """Counts its calls, and averages w in a variable of its own."""

    def __init__(self):
        self.count = 0
        self.average = tf.Variable(0.0)

    def after_step(self, ctx):
        self.count += 1
        self.average.assign(0.5 * self.average + 0.5 * ctx.trainer.w)

    def get_state(self):
        return {"count": self.count}

    def set_state(self, state):
        self.count = state["count"]


def test_states_and_variables_of_hooks_go_on(make, tmp_path):
    whole = Counting()
    make(hooks=[whole], model_dir=tmp_path / "whole", max_steps=10).train()
    crash(make(hooks=[Counting(), Counting(), testing.CrashAt(8)]), max_steps=10)
    hooks = [Counting(), Counting()]
    program = make(hooks=hooks, max_steps=10)
    assert [hook.count for hook in hooks] == [6, 6]
    assert "trainer/hooks/Counting_1/average" in program.state()
    program.train()
    assert [hook.count for hook in hooks] == [10, 10]
    assert [float(hook.average) for hook in hooks] == [float(whole.average)] * 2


def test_a_hook_registered_late_has_its_state(make):
    crash(make(hooks=[Counting(), testing.CrashAt(8)]), max_steps=10)
    program, hook = make(max_steps=10), Counting()
    program.register_hook(hook)
    assert hook.count == 6
    assert float(hook.average) != 0
    program.train()
    assert hook.count == 10


def test_hooks_may_come_and_go(make, said):
    make(hooks=[Counting()], max_steps=3).train()
    make(max_steps=6).train()
    assert "hook Counting: only the checkpoint has it; its variables are not used" in said()
    hook = Counting()
    make(hooks=[hook], max_steps=9).train()
    assert "hook Counting: only the program has it; its variables start anew" in said()
    assert hook.count == 3


def test_hooks_without_state_are_named_once(make, said):
    class Forgetful(trainer.Hook):
        def after_step(self, ctx):
            self.seen = ctx.step

    make(hooks=[Forgetful(), Counting()], max_steps=9).train()
    assert said().count("state of hook Forgetful will not be kept") == 1


def test_best_file_survives(make, tmp_path):
    best_file = tmp_path / "best.txt"
    losses = {3: 0.7, 6: 0.5, 9: 0.6, 12: 0.45}

    class Best(trainer.Hook):
        every_steps = 3

        def __init__(self):
            self.best = float("inf")

        def after_step(self, ctx):
            if losses[ctx.step] < self.best:
                self.best = losses[ctx.step]
                best_file.write_text(str(float(ctx.trainer.w)))

        def get_state(self):
            return {"best": self.best}

        def set_state(self, state):
            self.best = state["best"]

    crash(make(hooks=[Best(), testing.CrashAt(8)]), max_steps=12)
    hook = Best()
    program = make(hooks=[hook])
    program.train(max_steps=9)
    assert (hook.best, best_file.read_text()) == (0.5, "21.0")
    program.train(max_steps=12)
    assert (hook.best, best_file.read_text()) == (0.45, "78.0")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ([1], r"get_state of hook Bad returned \[1\]; return a dict"),
        ({"f": print}, r"get_state of hook Bad: state\['f'\] is a builtin_function_or_method"),
    ],
)
def test_a_state_that_cannot_be_kept(make, state, text):
    class Bad(trainer.Hook):
        def get_state(self):
            return state

    with pytest.raises(ValueError, match=text):
        make(hooks=[Bad()], max_steps=3).train()


def test_errors_of_states_name_the_hook(make, tmp_path):
    class Broken(Counting):
        broken = ""

        def get_state(self):
            return {"count": 1 / int(self.broken != "get")}

        def set_state(self, state):
            raise KeyError("seen")

    hook = Broken()
    hook.broken = "get"
    program = make(hooks=[hook], max_steps=3, model_dir=tmp_path / "other")
    with pytest.raises(ZeroDivisionError) as caught:
        program.train()
    assert "raised by Broken.get_state" in caught.value.__notes__
    make(hooks=[Broken()], max_steps=3).train()
    with pytest.raises(KeyError) as caught:
        make(hooks=[Broken()])
    assert caught.value.__notes__ == ["raised by Broken.set_state, given {'count': 1.0}"]
    with pytest.raises(KeyError) as caught:
        make().register_hook(Broken())
    assert caught.value.__notes__ == ["raised by Broken.set_state, given {'count': 1.0}"]


def test_a_hook_that_has_nothing_to_keep_is_not_asked_for_a_state(make, said):
    class Plain(trainer.Hook):
        def after_step(self, ctx):
            pass

    class Set(Plain):
        def __init__(self):
            self.every_steps, self.name = 2, "set"

    class Holding(Plain):
        def __init__(self):
            self.best = tf.Variable(0.0)

    make(hooks=[Plain(), Set(), Holding()], max_steps=3).train()
    assert "will not be kept" not in said()


# By time


class Lines(trainer.LogProgress):
    """Notes the steps and the length of the history of each call."""

    def __init__(self, **how):
        super().__init__(**how)
        self.lines = []

    def after_step(self, ctx):
        super().after_step(ctx)
        self.lines.append((ctx.step, len(ctx.history["x"]), float(ctx.history["x"][0])))


def test_progress_by_time(make, monkeypatch, said):
    now = [0.0]
    monkeypatch.setattr("trainer.base.clock.now", lambda: now[0])
    hook, calls = Lines(every_secs=0.12), []
    program = make(hooks=[hook], max_steps=200, save_every_steps=1000, steps_per_call=10)
    run = inside.of(program).parts.loop.run

    def slow(*arguments, **how):
        call = run(*arguments, **how)
        calls.append(call.steps)
        now[0] += 0.05
        return call

    monkeypatch.setattr(inside.of(program).parts.loop, "run", slow)
    program.train()
    assert max(calls) == 10  # no call ends for it
    assert 1 < len(hook.lines) <= len(calls) // 2
    before = 0
    for step, length, first in hook.lines:  # each line is about the steps since the last one
        assert (length, first) == (step - before, before + 1)
        before = step
    assert f"step {hook.lines[1][0]}/200  loss" in said()
    assert "steps/s" in said()


def test_a_hook_by_time_leaves_no_history_in_a_checkpoint(make, monkeypatch):
    program = make(hooks=[trainer.LogProgress(every_secs=1000)], max_steps=7)
    program.train()
    assert [name for name in program.state() if "history" in name] == []
    assert len(inside.of(program).parts.progress.history.between(1, 7)["x"]) == 7


@pytest.mark.parametrize("secs", [0, -1, "1", True, float("nan"), float("inf")])
def test_times_that_are_none(make, secs):
    with pytest.raises(ValueError, match="every_secs of LogProgress must be a number above 0"):
        make(hooks=[trainer.LogProgress(every_secs=secs)])


def test_one_cadence_at_most(make):
    with pytest.raises(ValueError, match=r"every_steps=5, every_secs=3\): give one of them"):
        trainer.LogProgress(5, every_secs=3)
    hook = Counting()
    hook.every_secs = 3.0
    with pytest.raises(ValueError, match="only a hook with only_outputs = True may go by time"):
        make(hooks=[hook])


# Passes over the data


class Passing(trainer.Hook):
    only_outputs = True

    def __init__(self):
        self.seen = []

    def begin(self, ctx):
        assert not ctx.epoch_ended

    def after_step(self, ctx):
        self.seen.append((ctx.step, ctx.epoch_steps, ctx.epoch_ended))


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (lambda: tf.data.Dataset.range(3), 3),
        (lambda: tf.data.Dataset.range(5).shuffle(5).batch(2), 3),
        (lambda: tf.data.Dataset.range(3).repeat(), 3),
        (lambda: trainer.data.Indexed(tf.range(6), batch_size=2), 3),
        (lambda: tf.data.Dataset.range(4).filter(lambda x: x < 3), None),
        (lambda: tf.data.Dataset.from_tensors(1).repeat(), 1),
    ],
)
@pytest.mark.parametrize("per_call", [1, None])
def test_the_end_of_a_pass(make, data, length, per_call):
    class Any(Summing):
        def train_dataset(self):
            return data()

        def train_step(self, x):
            return super().train_step(tf.reduce_sum(tf.cast(x, tf.float32)))

    hook = Passing()
    make(Any, hooks=[hook], max_steps=7, steps_per_call=per_call).train()
    ended = [None if length is None else step % length == 0 for step in range(1, 8)]
    assert hook.seen == [(step, length, ended[step - 1]) for step in range(1, 8)]
