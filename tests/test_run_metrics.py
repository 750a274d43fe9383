"""Metrics as outputs of both steps: exact values, whatever is cut, reset or averaged."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import trainer
from trainer.run import inside

from conftest import HERE, Summing, crash, run_python
from support.judged import METRICS, Evaluate, Judged, OldJudged, fresh

PASS = 5


class Means(Summing):
    """The mean of what was drawn: of each pass, and of all."""

    def build(self):
        super().build()
        self.of_pass = trainer.Metric(tf.keras.metrics.Mean(), reset="epoch")
        self.of_all = tf_keras.metrics.Mean()

    def train_dataset(self):
        return trainer.data.Indexed(np.arange(PASS, dtype="float32"), batch_size=1, shuffle=False)

    def train_step(self, x):
        outputs = super().train_step(tf.reshape(x, []))
        self.of_pass.update_state(x)
        self.of_all.update_state(x)
        return {**outputs, "of_pass": self.of_pass, "of_all": self.of_all}


class InGraph(Means):
    """Passes that repeat in the graph."""

    def train_dataset(self):
        return tf.data.Dataset.range(PASS).map(lambda x: tf.cast(x, tf.float32))


class PassByPass(Means):
    """Passes of a length that only their end tells."""

    def train_dataset(self):
        numbers = tf.data.Dataset.range(PASS + 3).filter(lambda x: x < PASS)
        return numbers.map(lambda x: tf.cast(x, tf.float32)).shuffle(1, seed=1).batch(1)


def mean_after(step):
    """Returns the mean of the pass and of all after so many steps."""
    drawn = [number % PASS for number in range(step)]
    return np.mean(drawn[(step - 1) // PASS * PASS :]), np.mean(drawn)


def last(program):
    """Returns what a hook would read of the last step."""
    return inside.of(program).parts.progress.history.last_outputs(program.step, program.step)


class See(trainer.Hook):
    """Keeps what it saw of metrics, by step."""

    def __init__(self, every_steps=1, *, only_outputs=False):
        self.every_steps, self.only_outputs = every_steps, only_outputs
        self.seen = {}

    def after_step(self, ctx):
        assert {"loss", "of_pass", "of_all"} <= set(ctx.outputs)
        self.seen[str(ctx.step)] = [float(ctx.outputs[name]) for name in ("of_pass", "of_all")]

    def get_state(self):
        return {"seen": self.seen}

    def set_state(self, state):
        self.seen = state["seen"]

    def check(self, steps):
        for step in steps:
            assert self.seen[str(step)] == pytest.approx(mean_after(step))
        assert len(self.seen) == len(steps)


@pytest.mark.parametrize("cls", [Judged, OldJudged])
def test_an_evaluation_gives_the_results_over_all_batches(make, cls, said):
    program = make(cls, max_steps=4)
    program.train()
    assert sum(program.state()["auc/true_positives"].numpy()) > 0  # of training
    before = trainer.testing.state_digests(program)
    found = program.evaluate()
    assert found == program.evaluate()
    assert program.evaluate(steps=2) != found
    assert trainer.testing.state_digests(program) == before
    for name in METRICS:
        whole = fresh(cls.keras, name)
        for batch in program.eval_dataset().dataset(0):
            program.update(name, whole, batch)
        assert found[name] == float(whole.result()), name
    program.save()
    assert "eval_step: output" not in said()
    assert "came after construction" not in said()  # those of F1Score, made by the evaluation
    program.register_hook(See())
    assert not any("f1" in name for name in program.state())


@pytest.mark.parametrize("source", [Means, InGraph, PassByPass])
@pytest.mark.parametrize("settings", [{}, {"steps_per_call": 1}, {"steps_per_call": 3}], ids=str)
def test_values_do_not_depend_on_where_calls_end(make, source, settings):
    see = See(4, only_outputs=True)
    hooks = [see, trainer.LogProgress(every_steps=3), trainer.LogProgress(every_secs=60)]
    make(source, hooks=hooks, max_steps=13, save_every_steps=100, **settings).train()
    see.check([4, 8, 12])


@pytest.mark.parametrize("source", [Means, InGraph, PassByPass])
def test_a_metric_of_a_pass_over_kills_anywhere_in_it(tmp_path, source):
    hooks = []

    def make_trainer(model_dir, others):
        hooks.append(See())
        config = trainer.TrainerConfig(model_dir, save_every_steps=1, seed=7)
        return source(config, hooks=[hooks[-1], *others])

    # In the middle of a pass, right after its end, after its first step, after the end of another.
    trainer.testing.assert_resumes_exactly(make_trainer, steps=13, crashes=[3, 6, 7, 11])
    hooks[-1].check(range(1, 14))
    assert len(hooks) >= 5


def test_the_end_of_the_data_leaves_the_last_pass(make, tmp_path):
    """The reset belongs to a first step, and there is none."""
    for source in (Means, InGraph, PassByPass):
        program = make(source, epochs=2, model_dir=str(tmp_path / source.__name__))
        assert program.train().step == 10
        assert float(program.of_pass.result()) == 2.0
        assert last(program)["of_pass"] == 2.0


def test_a_value_is_that_of_its_step_whatever_hooks_do(make):
    """One hook resets the metric and evaluates before another reads it."""

    class Evaluating(Means):
        def eval_dataset(self):
            return tf.data.Dataset.range(3)

        def eval_step(self, x):
            self.of_all.update_state(x)
            return {"mean": self.of_all, "of_pass": self.of_pass}

    class Disturb(trainer.Hook):
        every_steps = 4

        def after_step(self, ctx):
            assert ctx.trainer.evaluate() == {"mean": 1.0, "of_pass": 0.0}
            ctx.trainer.of_all.reset_state()

    see = See(4)
    program = make(Evaluating, hooks=[Disturb(), see], max_steps=4)
    program.train()
    see.check([4])
    assert float(program.of_all.result()) == 0.0
    assert last(program)["of_all"] == pytest.approx(mean_after(4)[1])


def test_right_after_a_resume_a_hook_sees_the_last_values(make):
    class Begin(trainer.Hook):
        def begin(self, ctx):
            self.seen = [float(ctx.outputs[name]) for name in ("of_pass", "of_all")]

    make(Means, max_steps=7).train()
    begin = Begin()
    make(Means, hooks=[begin], max_steps=7).train()
    assert begin.seen == pytest.approx(mean_after(7))


def test_a_metric_has_no_history(make):
    class Reads(trainer.Hook):
        def after_step(self, ctx):
            assert list(ctx.history) == ["loss", "x"]
            ctx.history["of_all"]

    with pytest.raises(KeyError, match=r"'of_all' is a metric, which has no value of each step; "):
        make(Means, hooks=[Reads()], max_steps=2).train()


def test_a_line_of_progress_shows_metrics(make, said):
    make(Means, hooks=[trainer.LogProgress(every_steps=4)], max_steps=4).train()
    assert "of_pass 1.5  of_all 1.5" in said()


def test_a_left_out_first_step_begins_a_pass(make):
    class Spoilt(Means):
        def train_step(self, x):
            outputs = super().train_step(x)
            spoilt = self.step == 5  # the first of the second pass
            return {**outputs, "bad": tf.where(spoilt, float("nan"), 0.0)}

    program = make(Spoilt, max_steps=8, save_every_steps=3, on_nonfinite="rollback")
    program.train()
    assert float(program.of_pass.result()) == 1.5  # of 1 and 2


def test_metrics_alone(make):
    class Alone(Means):
        def train_step(self, x):
            outputs = super().train_step(x)
            return {name: outputs[name] for name in ("of_pass", "of_all")}

    program = make(Alone, max_steps=7)
    assert program.train().step == 7
    assert [last(program)[name] for name in ("of_pass", "of_all")] == pytest.approx(mean_after(7))


def test_nothing_of_a_metric_that_is_returned_is_in_the_graph(make, tmp_path):
    class Kept(Means):
        def train_step(self, x):
            outputs = super().train_step(x)
            return {name: outputs[name] for name in ("loss", "x")}

    sizes = []
    for cls in (Means, Kept):
        graph = make(cls, model_dir=str(tmp_path / cls.__name__)).compiled_step.graph
        sizes.append(len(graph.get_operations()))
    assert sizes[0] == sizes[1]


LIFE = """
import json, sys
sys.path.insert(0, {here!r})
import trainer
from support import judged
folder, kill_step, kill_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
judged.OldJudged.kill_at = kill_at or None
hooks = [judged.Evaluate(4)] + ([trainer.testing.KillAt(kill_step)] if kill_step else [])
config = trainer.TrainerConfig(folder, max_steps=16, save_every_steps=3, seed=7)
program = judged.OldJudged(config, hooks=hooks)
program.train()
print(json.dumps([hooks[0].seen, trainer.testing.state_digests(program)]))
"""


def test_real_kills_in_a_pass_and_in_an_evaluation(make, tmp_path):
    def live(kill_step=0, kill_at=0):
        code = LIFE.format(here=str(HERE))
        result = run_python(code, tmp_path / "cut", kill_step, kill_at, check=False)
        killed = bool(kill_step or kill_at)
        assert result.returncode == (-9 if killed else 0), result.stderr
        return None if killed else json.loads(result.stdout.splitlines()[-1])

    live(kill_at=8)  # the third batch of the second evaluation, at step 8
    live(kill_step=11)
    hook = Evaluate(4)
    program = make(OldJudged, [hook], max_steps=16)
    program.train()
    assert set(hook.seen) == {"4", "8", "12", "16"}
    assert live() == [hook.seen, trainer.testing.state_digests(program)]


@pytest.mark.parametrize(
    ("metric", "reset", "words"),
    [
        (3, "never", r"trainer.Metric\(3\): give it a metric: an object with result\(\) and"),
        (tf.keras.metrics.Mean, "never", "give it a metric"),
        (tf_keras.metrics.Mean(), "pass", "reset must be 'never' or 'epoch', got 'pass'"),
    ],
)
def test_no_metric(metric, reset, words):
    with pytest.raises(ValueError, match=words):
        trainer.Metric(metric, reset=reset)


def test_a_pass_that_does_not_show(make):
    class Endless(Means):
        def train_dataset(self):
            return tf.data.Dataset.counter().map(lambda x: tf.cast(x, tf.float32))

    with pytest.raises(ValueError, match="needs data that know where a pass ends.*assert_card"):
        make(Endless)


class Several:
    """No Keras metric, and more than one result."""

    def __init__(self, result):
        self.total = tf.Variable([0.0, 0.0])
        self._result = result

    def update_state(self, x):
        self.total.assign_add([1.0, x])

    def reset_state(self):
        self.total.assign([0.0, 0.0])

    def result(self):
        return self._result(self.total)


class JudgedBy(Summing):
    """Evaluates 0, 1, 2, 3 by what a test gives it."""

    def eval_dataset(self):
        return tf.data.Dataset.range(4).map(lambda x: tf.cast(x, tf.float32))


def test_a_result_of_several_numbers(make, tmp_path):
    class Named(JudgedBy):
        def build(self):
            super().build()
            self.several = Several(lambda total: {"count": total[0], "sum": total[1]})

        def eval_step(self, x):
            self.several.update_state(x)
            return {"all": self.several, "x": x}

    program = make(Named)
    assert program.evaluate() == {"all/count": 4.0, "all/sum": 6.0, "x": 1.5}
    assert program.several.total.numpy().tolist() == [0.0, 0.0]

    program = make(Named, model_dir=str(tmp_path / "other"))
    program.several = Several(lambda total: total)
    with pytest.raises(
        ValueError, match=r"output 'all' of eval_step is a metric whose result\(\) "
    ):
        program.evaluate()
    assert program.several.total.numpy().tolist() == [0.0, 0.0]

    class Trained(Means):
        def build(self):
            super().build()
            self.of_all = tf.keras.metrics.F1Score()

        def train_step(self, x):
            self.of_all.update_state([[1.0, 0.0]], [[0.2, 0.8]])
            return {"f1": self.of_all}

    with pytest.raises(ValueError, match=r"'f1' of train_step .* of shape \(2,\); return one"):
        make(Trained, model_dir=str(tmp_path / "trained"))


class RunningKeras(JudgedBy):
    def build(self):
        super().build()
        self.mean = tf.keras.metrics.Mean()

    def eval_step(self, x):
        self.mean.update_state(x)
        return {"x": x, "mean": self.mean.result()}


class RunningOld(RunningKeras):
    def build(self):
        super().build()
        self.mean = tf_keras.metrics.Mean()


class RunningInside(RunningKeras):
    """The update is in a function of its own."""

    def build(self):
        super().build()
        self.update = tf.function(lambda x: self.mean.update_state(x))

    def eval_step(self, x):
        self.update(x)
        return {"x": x, "mean": self.mean.result()}


class RunningVariable(JudgedBy):
    def build(self):
        super().build()
        self.mean = tf.Variable(0.0)

    def eval_step(self, x):
        return {"x": x, "mean": self.mean.assign_add(x / 4.0) * 1.0}


@pytest.mark.parametrize("cls", [RunningKeras, RunningOld, RunningInside, RunningVariable])
def test_running_results_are_told(make, said, cls):
    program = make(cls)
    program.evaluate()
    program.evaluate()
    assert said().count("eval_step: output") == 1
    assert "eval_step: output 'mean' is computed from what the step wrote before (mean" in said()
    assert "return the metric itself: {'mean': self.<metric>} instead of its result()" in said()


class Counting(JudgedBy):
    def build(self):
        super().build()
        self.batches, self.mean = tf.Variable(0), tf_keras.metrics.Mean()

    def eval_step(self, x):
        self.batches.assign_add(1)
        self.mean.update_state(x)
        return {"x": x, "mean": self.mean}


class Layers(JudgedBy):
    """Seeds that are drawn from twice, moving averages, and a state from batch to batch."""

    def build(self):
        super().build()
        self.drop = tf.keras.layers.Dropout(0.5)
        self.norm = tf.keras.layers.BatchNormalization()
        self.lstm = tf.keras.layers.LSTM(2, stateful=True)
        self.noise = tf.random.Generator.from_seed(3)

    def eval_step(self, x):
        rows = tf.reshape(x, [1, 1, 1]) + self.noise.normal([1, 1, 1]) + self.noise.normal([])
        rows = self.drop(self.drop(self.norm(rows, training=True), training=True), training=True)
        return {"x": x, "mean": tf.reduce_mean(self.lstm(rows))}


@pytest.mark.parametrize("cls", [Counting, Layers])
def test_no_false_alarm(make, said, cls):
    make(cls).evaluate()
    assert "eval_step" not in said()


def test_crashes_with_metrics_of_keras(make, tmp_path):
    """Simulated crashes at every kind of step, of all metrics, their evaluations included."""

    def seen(folder, crashes):
        for at in crashes:
            hooks = [Evaluate(4), trainer.testing.CrashAt(at)]
            with make(Judged, hooks, model_dir=str(tmp_path / folder), max_steps=16) as program:
                crash(program)
        hook = Evaluate(4)
        with make(Judged, [hook], model_dir=str(tmp_path / folder), max_steps=16) as program:
            program.train()
            return hook.seen, trainer.testing.state_digests(program)

    assert seen("cut", [5, 11]) == seen("unbroken", [])
