"""The loop: totals, saves, cuts, traces, history, evaluation (K04, K09, K16, K19, K20)."""

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import testing

from conftest import Summing, crash, run_process


class Ten(Summing):
    last = 10


class Trace(trainer.Hook):
    """Notes what it is given."""

    def __init__(self, every_steps=1):
        self.every_steps = every_steps
        self.before, self.after, self.history = [], [], []

    def before_step(self, ctx):
        self.before.append(ctx.step)

    def after_step(self, ctx):
        self.after.append((ctx.step, float(ctx.outputs["x"])))
        self.history.append(ctx.history["x"].tolist())

    def get_state(self):
        return {}


class Saves(trainer.Hook):
    """Notes the saved steps."""

    def __init__(self):
        self.steps = []

    def after_save(self, ctx):
        self.steps.append(ctx.saved_step)

    def get_state(self):
        return {}


def test_total_reached_again_does_nothing(make, said, folder):
    assert make(max_steps=10).train() == trainer.RunResult(10, "finished", 0)
    before = {path: path.stat().st_mtime_ns for path in tf_files(folder)}

    class Count(trainer.Hook):
        calls = ()

        def begin(self, ctx):
            self.calls += ("begin",)

        def after_step(self, ctx):
            self.calls += ("after",)

        def end(self, ctx):
            self.calls += ("end",)

    hook = Count()
    assert make(max_steps=10, hooks=[hook]).train() == trainer.RunResult(10, "already_finished", 0)
    assert hook.calls == ("begin", "end")
    assert "already at step 10 of 10" in said()
    assert {path: path.stat().st_mtime_ns for path in tf_files(folder)} == before


def tf_files(folder):
    import pathlib

    return sorted(path for path in pathlib.Path(folder).glob("ckpt-*/*"))


def test_larger_and_smaller_totals(make, said):
    make(max_steps=10).train()
    program = make(max_steps=15)
    assert program.train().step == 15
    assert float(program.w) == 120
    assert make(max_steps=8).train() == trainer.RunResult(15, "already_finished", 0)
    assert "the checkpoint is at step 15, past the target of 8" in said()


def test_two_ways_to_ask(make, said):
    program = make(save_every_steps=1)
    with pytest.raises(ValueError, match="give one of them"):
        program.train(max_steps=5, steps=5)
    with pytest.raises(ValueError, match="no end is given: set max_steps, epochs or max_secs"):
        program.train()
    program = make(hooks=[testing.CrashAt(3)], save_every_steps=1)
    crash(program, steps=5)
    program = make(save_every_steps=1)
    assert program.train(steps=5).step == 7
    assert "training 5 more steps, from step 2 to 7" in said()


@pytest.mark.parametrize(
    ("total", "every", "expected"),
    [(10, 4, [4, 8, 10]), (3, 1000, [3]), (8, 4, [4, 8]), (22, 10, [10, 20, 22])],
)
@pytest.mark.parametrize("per_call", [1, 4, 8, None])
def test_saves_fall_on_their_steps(make, total, every, expected, per_call):
    saves = Saves()
    program = make(hooks=[saves], max_steps=total, save_every_steps=every, steps_per_call=per_call)
    program.train()
    assert saves.steps == expected
    assert program.checkpoints == expected
    assert float(program.w) == total * (total + 1) / 2


def test_calls_are_cut_at_the_boundaries(make, monkeypatch):
    from trainer.graph import compiled

    calls = []
    run = compiled.Loop.run

    def watched(self, iterator, limit, **options):
        call = run(self, iterator, limit, **options)
        calls.append(call.steps)
        return call

    monkeypatch.setattr(compiled.Loop, "run", watched)
    make(max_steps=22, save_every_steps=10, steps_per_call=4).train()
    assert calls == [4, 4, 2, 4, 4, 2, 2]


def test_resumed_with_other_call_lengths(make):
    saves = Saves()
    crash(make(hooks=[testing.CrashAt(12)], save_every_steps=10, steps_per_call=4), max_steps=22)
    make(hooks=[saves], max_steps=22, save_every_steps=10, steps_per_call=8).train()
    assert saves.steps == [20, 22]


def test_stop_request_is_saved_and_kept(make, said):
    class StopAt7(trainer.Hook):
        def after_step(self, ctx):
            if ctx.step == 7:
                ctx.request_stop("seven is enough")

    program = make(hooks=[StopAt7()], max_steps=10)
    assert program.train() == trainer.RunResult(7, "stopped", 0)
    assert program.checkpoints == [3, 6, 7]
    assert make(hooks=[StopAt7()], max_steps=10).train() == trainer.RunResult(
        7, "already_finished", 0
    )
    assert "hook StopAt7 stopped this run at step 7 (seven is enough)" in said()
    assert make(max_steps=12).train() == trainer.RunResult(12, "finished", 0)


def test_more_steps_go_on_after_a_stop(make):
    class StopAt4(trainer.Hook):
        def after_step(self, ctx):
            if ctx.step == 4:
                ctx.request_stop("four")

    make(hooks=[StopAt4()], max_steps=10).train()
    program = make(max_steps=10)
    assert program.train(steps=3).step == 7
    assert float(program.w) == 28


def test_data_that_ends_early(make, said):
    class Seven(Summing):
        last = 7

    program = make(Seven, max_steps=10, epochs=1)
    assert program.train() == trainer.RunResult(7, "out_of_data", 0)
    assert program.checkpoints == [3, 6, 7]
    assert "the data ended early, after step 7 of 10" in said()
    assert make(Seven, max_steps=10, epochs=1).train() == trainer.RunResult(7, "out_of_data", 0)


def test_epochs_end_a_run(make):
    class Five(Summing):
        last = 5

    program = make(Five, epochs=2)
    assert program.train() == trainer.RunResult(10, "finished", 0)
    assert float(program.w) == 30
    assert make(Five, epochs=2).train() == trainer.RunResult(10, "already_finished", 0)


def test_without_an_interval_it_is_chosen_and_the_end_is_saved(make, said, caplog):
    program = make(max_steps=5, save_every_steps=None)
    program.train()
    assert "no save interval is given" in said()
    assert {record.levelname for record in caplog.records} == {"INFO"}  # it is the best choice
    assert program.checkpoints == [5]


@pytest.mark.parametrize("per_call", [1, 3, None])
def test_hooks_see_their_steps(make, per_call):
    every, third = Trace(1), Trace(3)
    make(hooks=[every, third], max_steps=10, steps_per_call=per_call).train()
    assert every.before == list(range(10))
    assert every.after == [(step, float(step)) for step in range(1, 11)]
    assert third.before == [2, 5, 8]
    assert third.after == [(3, 3.0), (6, 6.0), (9, 9.0)]
    assert third.history == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_a_hook_sees_the_same_series_in_a_cut_run(make):
    """Invariant 10: values not yet shown to a hook travel in the checkpoint."""
    crash(make(hooks=[Trace(10), testing.CrashAt(8)], save_every_steps=3), max_steps=20)
    hook = Trace(10)
    make(hooks=[hook], save_every_steps=3, max_steps=20).train()
    assert hook.history == [list(range(1, 11)), list(range(11, 21))]


def test_history_and_outputs_types(make):
    class Types(trainer.Hook):
        def after_step(self, ctx):
            self.output = ctx.outputs["loss"]
            self.history = ctx.history["loss"]

    hook = Types()
    make(hooks=[hook], max_steps=1).train()
    assert isinstance(hook.output, np.float32)
    assert hook.history.dtype == np.float32
    assert hook.history.shape == (1,)


class Uneven(trainer.Trainer):
    """Ten examples in batches of 4, 4 and 2."""

    traces = 0

    def build(self):
        self.w = tf.Variable(0.0)

    def train_dataset(self):
        return tf.data.Dataset.range(10).batch(4)

    def train_step(self, batch):
        type(self).traces += 1
        self.w.assign_add(tf.reduce_sum(tf.cast(batch, tf.float32)))
        return {"w": self.w}


def test_one_trace_over_a_thousand_uneven_steps(make):
    Uneven.traces = 0

    class Log(trainer.Hook):
        every_steps = 7

        def after_step(self, ctx):
            float(ctx.outputs["w"])

    program = make(Uneven, hooks=[Log()], max_steps=1000, save_every_steps=100)
    program.train()
    assert Uneven.traces == 1
    assert float(program.w) == 333 * 45 + 6  # 333 passes and the first batch of the next


def test_one_trace_after_a_resume_in_a_new_process(folder):
    run_process("Summing", folder, kill_at=8, max_steps=10)
    result = run_process("Counted", folder, max_steps=10)
    assert result["restored"] == 6
    assert result["values"]["w"] == 55
    assert result["traces"] == 1


def test_a_hook_changes_a_value_without_a_new_trace(make):
    class Scaled(Summing):
        traces = 0

        def build(self):
            super().build()
            self.scale = tf.Variable(1.0)

        def train_step(self, x):
            return super().train_step(x * self.scale)

    class Raise(trainer.Hook):
        def after_step(self, ctx):
            ctx.trainer.scale.assign(float(ctx.step + 1))

    program = make(Scaled, hooks=[Raise()], max_steps=4)
    program.train()
    assert Scaled.traces == 1
    assert float(program.w) == 1 + 4 + 9 + 16


class HundredAnEpoch(trainer.Trainer):
    """The guide's numbers: 100 steps an epoch."""

    def build(self):
        self.w = tf.Variable(0.0)
        self.updates = tf.Variable(0, dtype=tf.int64)

    def train_dataset(self):
        return tf.data.Dataset.range(1, 101)

    def train_step(self, x):
        self.updates.assign_add(1)
        self.w.assign_add(tf.cast(x, tf.float32))
        return {"x": x}


@pytest.mark.parametrize(("crash_at", "resumes_at"), [(140, 120), (301, 300)])
def test_the_guides_numbers(make, crash_at, resumes_at):
    hook = Trace()
    crash(
        make(HundredAnEpoch, hooks=[testing.CrashAt(crash_at)], save_every_steps=30), max_steps=1000
    )
    program = make(HundredAnEpoch, hooks=[hook], save_every_steps=30, max_steps=1000)
    assert program.step == resumes_at
    program.train()
    step, batch = hook.after[0]
    assert (step, batch) == (resumes_at + 1, resumes_at % 100 + 1)
    assert len(hook.after) == 1000 - resumes_at
    assert int(program.updates) == 1000
    assert float(program.w) == 10 * 5050


class Evaluated(Ten):
    def build(self):
        super().build()
        self.noise = tf.random.Generator.from_seed(3)

    def train_step(self, x):
        return {**super().train_step(x), "noise": self.noise.normal(())}

    def eval_dataset(self):
        return tf.data.Dataset.range(5).batch(3)

    def eval_step(self, batch):
        self.w.assign_add(1000.0)  # what an evaluation changes does not stay
        self.noise.normal(())
        return {"mean": tf.reduce_mean(tf.cast(batch, tf.float32))}


def test_evaluation_is_weighted_and_changes_nothing(make, tmp_path):
    class Evaluate(trainer.Hook):
        every_steps = 5
        seen = ()

        def after_step(self, ctx):
            self.seen += (ctx.trainer.evaluate()["mean"],)

        def get_state(self):
            return {}

    digests = []
    for name, hooks in (("with", [Evaluate()]), ("without", [])):
        program = make(Evaluated, hooks=hooks, model_dir=tmp_path / name, max_steps=10)
        program.train()
        assert program.evaluate() == {"mean": 2.0}
        assert program.evaluate(steps=1) == {"mean": 1.0}
        digests.append(testing.state_digest(program))
    assert digests[0] == digests[1]


def test_xla_is_exact_against_itself(tmp_path):
    def build(folder, hooks):
        config = trainer.TrainerConfig(folder, save_every_steps=3, seed=7, jit_compile=True)
        return Summing(config, hooks=hooks)

    testing.assert_resumes_exactly(build, steps=10, crashes=[4, 8])


def test_log_progress(make, said, monkeypatch):
    from trainer.base import clock

    now = [100.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    class Tick(trainer.Hook):
        def after_step(self, ctx):
            now[0] += 0.5

    crash(make(hooks=[testing.CrashAt(8)]), max_steps=10)
    make(hooks=[Tick(), trainer.LogProgress(every_steps=1)], max_steps=10).train()
    lines = said().splitlines()
    assert "step 6/10" in lines
    assert "step 8/10  loss -224  x 8  2.0 steps/s  1.0 s left" in lines


class Remember(trainer.Hook):
    def __init__(self, every_steps=1):
        self.every_steps = every_steps
        self.seen = []

    def before_step(self, ctx):
        history = {name: values.tolist() for name, values in ctx.history.items()}
        outputs = {name: (value.dtype.name, value.item()) for name, value in ctx.outputs.items()}
        self.seen.append((ctx.step, outputs, history))


@pytest.mark.parametrize("every_steps", [1, 3])
def test_before_step_sees_the_last_outputs_right_after_a_resume(make, tmp_path, every_steps):
    """Type and all, and the values since the hook's last call: once there was nothing."""

    class Typed(Summing):
        def train_step(self, x):
            outputs = super().train_step(x)
            return outputs | {"half": tf.cast(x, tf.float16), "big": tf.constant(2**40 + 1)}

    unbroken, cut = Remember(every_steps), Remember(every_steps)
    make(Typed, hooks=[unbroken], model_dir=str(tmp_path / "unbroken"), max_steps=10).train()
    crash(make(Typed, hooks=[Remember(every_steps), testing.CrashAt(6)], max_steps=10))
    make(Typed, hooks=[cut], max_steps=10).train()
    assert cut.seen == [call for call in unbroken.seen if call[0] >= cut.seen[0][0]]
    assert cut.seen[0][1]["half"] == ("float16", float(cut.seen[0][0]))
    assert cut.seen[0][1]["big"] == ("int64", 2**40 + 1)
