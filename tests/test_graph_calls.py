"""How calls into the graph are made: their length, and the ways that short steps take."""

import inspect
import pathlib
import re
import resource
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.base import digests as digests_module
from trainer.graph import compiled
from trainer.run import inside, pace

from conftest import Summing, crash
from support import programs


@pytest.fixture
def short_steps(monkeypatch):
    """Every step counts as short, from the third call on: the first tells nothing."""
    monkeypatch.setattr(pace, "_SHORT_STEP_SECS", float("inf"))
    monkeypatch.setattr(pace, "_JUDGED_SECS", 0.0)


@pytest.fixture
def calls(monkeypatch):
    """The steps of each call, and whether they counted as short."""
    made = []
    run = compiled.Loop.run

    def watched(self, iterator, limit, *, short_steps=False):
        call = run(self, iterator, limit, short_steps=short_steps)
        made.append((call.steps, short_steps))
        return call

    monkeypatch.setattr(compiled.Loop, "run", watched)
    return made


class Watch(trainer.Hook):
    """Is called after each step, or only told of it."""

    def __init__(self, every_steps=1, only_outputs=False):
        self.every_steps = every_steps
        self.only_outputs = only_outputs
        self.seen = []

    def after_step(self, ctx):
        values = {name: value.tolist() for name, value in ctx.history.items()}
        self.seen.append((ctx.step, dict(ctx.outputs), values, ctx.epoch, ctx.epoch_step))

    def get_state(self):
        return {}


@pytest.mark.parametrize("name", list(programs.PROGRAMS))
def test_every_way_gives_the_same_results(name, tmp_path, short_steps, calls, monkeypatch):
    """A call a step with and without a loop, batches drawn in turn and ahead."""
    digests = []
    for number, (per_call, short) in enumerate([(1, False), (1, True), (5, True), (None, True)]):
        monkeypatch.setattr(pace, "_SHORT_STEP_SECS", float("inf") if short else 0.0)
        calls.clear()
        config = trainer.TrainerConfig(
            str(tmp_path / str(number)), seed=7, save_every_steps=3, steps_per_call=per_call
        )
        with programs.PROGRAMS[name](config) as program:
            program.train(max_steps=12)
            digests.append(testing.state_digests(program))
            may_be_drawn_ahead = inside.of(program).parts.progress.source.ahead
        assert {ahead for _, ahead in calls[-2:]} == {short and may_be_drawn_ahead}
    for digest in digests[1:]:
        assert digests_module.first_difference(digests[0], digest) is None


def test_a_hook_that_looks_on_sees_what_one_that_ends_calls_sees(make, calls, tmp_path):
    cut, told = Watch(), Watch(only_outputs=True)
    make(hooks=[cut], model_dir=str(tmp_path / "cut"), max_steps=20, save_every_steps=20).train()
    in_turn = len(calls)
    calls.clear()
    make(hooks=[told], model_dir=str(tmp_path / "told"), max_steps=20, save_every_steps=20).train()
    assert told.seen == cut.seen
    assert [step for step, *_ in told.seen] == list(range(1, 21))
    assert in_turn == 20
    assert len(calls) < 20
    assert isinstance(told.seen[3][1]["x"], np.float32)


def test_both_kinds_are_called_in_the_order_of_steps(make):
    order = []

    class Named(Watch):
        def after_step(self, ctx):
            order.append((self.name, ctx.step))

    look, act = Named(2, only_outputs=True), Named(3)
    look.name, act.name = "look", "act"
    make(hooks=[act, look], max_steps=7, save_every_steps=100).train()
    assert order == [
        ("look", 2),
        ("act", 3),
        ("look", 4),
        ("act", 6),
        ("look", 6),
    ]


def test_a_hook_that_looks_on_sees_the_same_in_a_cut_run(make):
    first, second = Watch(4, only_outputs=True), Watch(4, only_outputs=True)
    crash(make(hooks=[first, testing.CrashAt(6)], save_every_steps=3), max_steps=12)
    make(hooks=[second], save_every_steps=3, max_steps=12).train()
    assert [(step, history["x"]) for step, _, history, *_ in second.seen] == [
        (4, [1, 2, 3, 4]),
        (8, [5, 6, 7, 8]),
        (12, [9, 10, 11, 12]),
    ]


def test_a_hook_that_looks_on_cannot_stop_a_run(make):
    class Stops(Watch):
        def after_step(self, ctx):
            ctx.request_stop("late")

    with pytest.raises(trainer.TrainerError, match="only_outputs = True.*cannot stop the run at"):
        make(hooks=[Stops(2, only_outputs=True)], max_steps=8, save_every_steps=100).train()


def test_a_hook_that_looks_on_has_no_before_step(make):
    class Before(Watch):
        def before_step(self, ctx):
            pass

    with pytest.raises(ValueError, match="Before has only_outputs = True and a before_step"):
        make(hooks=[Before(only_outputs=True)])


def test_times_within_a_call_ascend_evenly(make):
    times = []

    class Times(Watch):
        def after_step(self, ctx):
            times.append(ctx.trained_secs)

    make(hooks=[Times(only_outputs=True)], max_steps=50, save_every_steps=100).train()
    assert len(times) == 50
    assert times == sorted(times)
    assert times[0] > 0


def test_whole_numbers_keep_their_value(make):
    class Large(Summing):
        def train_step(self, batch):
            return super().train_step(batch) | {"big": tf.constant(2**40 + 1, tf.int64)}

    hook = Watch(only_outputs=True)
    make(Large, hooks=[hook], max_steps=4, save_every_steps=100).train()
    assert [outputs["big"] for _, outputs, *_ in hook.seen] == [2**40 + 1] * 4


@pytest.mark.parametrize("short", [False, True])
def test_nothing_waits_so_the_call_goes_to_the_boundary(make, short, calls, monkeypatch):
    monkeypatch.setattr(pace, "_SHORT_STEP_SECS", float("inf") if short else 0.0)
    monkeypatch.setattr(pace, "_JUDGED_SECS", 0.0)
    make(max_steps=5000, save_every_steps=2500).train()
    assert sum(steps for steps, _ in calls) == 5000
    assert [steps for steps, _ in calls] == [2500, 2500]


@pytest.mark.parametrize("settings", [{"save_every_secs": 1000}, {}], ids=["secs", "automatic"])
def test_a_clock_waits_so_calls_are_short(make, settings, calls):
    """With steps of 20 ms, ten of them fit into the 0.2 s between two turns of Python."""

    class Slow(Summing):
        def train_step(self, batch):
            slept = tf.numpy_function(lambda: time.sleep(0.02), [], [], stateful=True)
            with tf.control_dependencies([slept]):
                return super().train_step(batch)

    make(Slow, max_steps=60, save_every_steps=None, **settings).train()
    assert calls[0][0] == 1
    assert max(steps for steps, _ in calls) <= 12


def test_steps_per_call_is_a_cap(make, calls):
    make(max_steps=40, save_every_steps=20, steps_per_call=8).train()
    assert [steps for steps, _ in calls] == [8, 8, 4, 8, 8, 4]


def test_another_thread_ends_a_call(make, calls):
    class Slow(Summing):
        def train_step(self, batch):
            slept = tf.numpy_function(lambda: time.sleep(0.01), [], [], stateful=True)
            with tf.control_dependencies([slept]):
                return super().train_step(batch)

    program = make(Slow, max_steps=100, save_every_steps=100)
    loop = inside.of(program).parts.loop
    timer = threading.Timer(0.3, loop.interrupt)
    timer.start()
    program.train()
    timer.join()
    assert calls[0][0] < 60  # 100 steps take a second
    assert [steps for steps, _ in calls[1:]] == [100 - calls[0][0]]  # it was taken back


@pytest.mark.parametrize("short", [False, True])
def test_an_error_in_the_graph_names_the_line(make, short, monkeypatch):
    monkeypatch.setattr(pace, "_SHORT_STEP_SECS", float("inf") if short else 0.0)
    monkeypatch.setattr(pace, "_JUDGED_SECS", 0.0)

    class Broken(Summing):
        def train_step(self, batch):
            tf.debugging.assert_less(self.w, 30.0, message="w is large")
            return super().train_step(batch)

    with pytest.raises(tf.errors.InvalidArgumentError, match="w is large") as caught:
        make(Broken, max_steps=20, steps_per_call=1 if short else 4).train()
    line = inspect.getsourcelines(Broken.train_step)[1] + 1
    assert "Detected at node assert_less/Assert" in str(caught.value)
    assert f'test_graph_calls.py", line {line}, in train_step' in str(caught.value)
    assert "raised by train_step at step 9" in caught.value.__notes__


def test_what_xla_cannot_compile_is_named(make):
    class Texts(Summing):
        def train_step(self, batch):
            length = tf.strings.length(tf.strings.as_string(batch))
            return super().train_step(batch) | {"length": length}

    line = inspect.getsourcelines(Texts.train_step)[1] + 1
    with pytest.raises(trainer.TrainerError, match="XLA cannot compile train_step") as caught:
        make(Texts, max_steps=4, jit_compile=True).train()
    assert re.search(
        rf'AsString .*test_graph_calls.py", line {line}, in train_step', str(caught.value)
    )
    assert "set jit_compile=False" in str(caught.value)
    assert make(Texts, max_steps=4).train().step == 4


def resident_mb():
    """Returns the megabytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


class Judged(Summing):
    """Counts to any number, over and over, and has something to evaluate."""

    def train_dataset(self):
        return tf.data.Dataset.range(1, 11).map(lambda x: tf.cast(x, tf.float32)).repeat()

    def eval_dataset(self):
        return tf.data.Dataset.range(3)

    def eval_step(self, batch):
        return {"mean": tf.cast(batch, tf.float32) + 0 * self.w}


def test_memory_is_flat_over_a_hundred_thousand_steps(make, said):
    class Evaluate(Watch):
        def after_step(self, ctx):
            assert ctx.trainer.evaluate() == {"mean": 1.0}
            sizes.append(resident_mb())

    sizes = []
    hooks = [trainer.LogProgress(every_steps=1000), Evaluate(2000)]
    Judged.traces = 0
    make(Judged, hooks=hooks, max_steps=100_000, save_every_steps=5000).train()
    assert len(sizes) == 50
    assert sizes[-1] - sizes[9] < 50
    assert Judged.traces == 1
    assert "step 100000/100000" in said()


COME_AND_GO = """
import sys
sys.path.insert(0, {tests!r})
import trainer
from trainer.run import inside
from test_graph_calls import Judged, resident_mb

def once(name):
    with Judged(trainer.TrainerConfig({folder!r} + name, save_every_steps=50)) as program:
        program.train(max_steps=100)

for number in range(5):
    once(f"first{{number}}")
before = resident_mb()
for number in range(20):
    once(f"again{{number}}")
print("grown by", resident_mb() - before)
"""


def test_trainers_that_come_and_go_leave_nothing(folder):
    """In a process of its own: this one keeps iterators alive (see conftest)."""
    tests = str(pathlib.Path(__file__).parent)
    out = subprocess.run(
        [sys.executable, "-c", COME_AND_GO.format(tests=tests, folder=folder)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert float(out.split("grown by")[1]) < 50


def test_a_hook_that_looks_on_sees_the_steps_before_a_bad_one(make):
    class Poisoned(Summing):
        def train_step(self, x):
            return super().train_step(tf.where(x == 8.0, float("nan"), x))

    hook = Watch(3, only_outputs=True)
    with pytest.raises(trainer.NonFiniteError, match="of step 8 is nan"):
        make(Poisoned, hooks=[hook], save_every_steps=100, max_steps=20).train()
    assert [step for step, *_ in hook.seen] == [3, 6]


def test_a_large_float64_is_finite(make):
    class Large(Summing):
        def train_step(self, x):
            return super().train_step(x) | {"large": tf.cast(x, tf.float64) * 1e300}

    hook = Watch()
    assert make(Large, hooks=[hook], max_steps=6).train().reason == "finished"
    assert hook.seen[-1][1]["large"] == 6e300


def test_an_output_of_unknown_rank_is_told_how_to_say_so(make):
    class Unknown(Summing):
        def train_step(self, x):
            value = tf.numpy_function(lambda: 1.0, [], tf.float64)
            return super().train_step(x) | {"value": value}

    with pytest.raises(ValueError, match=r"output 'value' .*tf.ensure_shape\(value, \[\]\)"):
        make(Unknown)


class Looking:
    """An iterator that looks at a variable for each batch, as one does that lets a model act."""

    def __init__(self, variable):
        self.variable, self.drawn = variable, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.drawn += 1
        return self.variable.numpy()

    def get_state(self):
        return self.drawn

    def set_state(self, state):
        self.drawn = state


class LookedAt(trainer.Trainer):
    """Counts its steps in a variable at the end of each, after some milliseconds of work."""

    def build(self):
        self.w = tf.Variable(0.0)
        self.work = tf.Variable(tf.eye(300))

    def train_dataset(self):
        return Looking(self.w)

    def train_step(self, seen):
        late = seen - self.w
        work = self.work.read_value()
        for _ in range(8):
            work = tf.matmul(work, work)
        self.w.assign_add(work[0, 0])
        return {"late": late}


def test_data_that_look_at_a_variable_see_it_after_the_step_before(make, short_steps, calls):
    """Drawn while that step runs, they would now and then see it as it was before."""
    program = make(
        LookedAt, [last := Watch(every_steps=10)], steps_per_call=10, save_every_steps=99
    )
    program.train(max_steps=40)
    late = np.concatenate([values["late"] for _, _, values, _, _ in last.seen])
    assert late.tolist() == [0.0] * 40
    assert max(steps for steps, _ in calls) == 10
