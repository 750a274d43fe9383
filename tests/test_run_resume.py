"""What a resume restores, and what it refuses (K01, K02, K03, K10, K11, K25 to K28, K32)."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import trainer
from trainer import testing
from trainer.base import digests as digests_module

from conftest import Summing, crash, run_process
from support import programs

SGD = tf.keras.optimizers.SGD


class Ten(Summing):
    last = 10


# K01


def test_required_and_nothing_there(make, tmp_path):
    missing = tmp_path / "rnu"
    with pytest.raises(trainer.CheckpointError, match=r"no checkpoint was found in .*rnu"):
        make(model_dir=missing, resume="required")
    assert not missing.exists()


def test_nothing_there_is_said(make, said, folder):
    assert make().step == 0
    assert f"no checkpoint in {folder}: starting from nothing" in said()


class Renamed(Summing):
    def build(self):
        self.weight = tf.Variable(0.0)
        self.b = tf.Variable(0.0)

    def train_step(self, x):
        self.weight.assign_add(x + self.b)
        return {"loss": -x}


def test_names_that_do_not_match(make):
    make(max_steps=6).train()
    kept = []

    class Watched(Renamed):
        def build(self):
            super().build()
            kept.append(self)

    with pytest.raises(trainer.CheckpointMismatchError) as caught:
        make(Watched)
    assert caught.value.only_in_checkpoint == ["w"]
    assert caught.value.only_in_program == ["weight", "b"]
    assert caught.value.different == []
    assert "in the checkpoint only (1):\n    w\n" in str(caught.value)
    assert "in the program only (2):\n    weight\n    b\n" in str(caught.value)
    assert float(kept[0].weight) == float(kept[0].b) == 0


def test_a_partial_restore_is_asked_for_by_name(make, said):
    make(max_steps=6).train()
    program = make(Renamed, keep_program_values=("w", "weight", "b"))
    assert program.step == 6
    assert float(program.weight) == 0
    assert "fits in part, as keep_program_values allows" in said()
    assert "there only, not used (1):\n    w\n" in said()


def test_reading_is_restoring(make, said):
    make(max_steps=6).train()
    program = make()
    assert program.step == program.restored_step == 6
    assert float(program.w) == 21
    assert "resumed at step 6 from" in said()
    assert "ckpt-6" in said()


class Late(Summing):
    """The weight exists only after the first call."""

    def build(self):
        self.layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")

    def train_step(self, x):
        self.layer(tf.ones((1, 1)))
        self.layer.kernel.assign_add(tf.reshape(x, (1, 1)))
        return {"w": tf.reduce_sum(self.layer.kernel)}


class LateRenamed(Late):
    def build(self):
        super().build()
        self.other, self.layer = self.layer, None

    def train_step(self, x):
        self.layer = self.other
        outputs = super().train_step(x)
        self.layer = None
        return outputs


def test_weights_made_by_the_first_call(make):
    crash(make(Late, hooks=[testing.CrashAt(8)]), max_steps=10)
    program = make(Late, max_steps=10)
    program.train()
    assert float(program.layer.kernel[0, 0]) == 55
    with pytest.raises(trainer.CheckpointMismatchError, match="layer/kernel"):
        make(LateRenamed)


# K02


class Momentum(trainer.Trainer):
    """Gradient -1 at each step; a fresh Keras optimizer in each process."""

    rate = 1.0

    def build(self):
        self.w = tf.Variable(0.0)
        self.optimizer = SGD(self.rate, momentum=0.5)

    def train_dataset(self):
        return tf.data.Dataset.range(1, 1000).map(lambda x: tf.cast(x, tf.float32))

    def gradient(self, x):
        return tf.constant(-1.0)

    def train_step(self, x):
        self.optimizer.apply_gradients([(self.gradient(x), self.w)])
        return {"w": self.w}


def test_momentum_goes_on(make):
    make(Momentum, max_steps=2, save_every_steps=2).train()
    program = make(Momentum, max_steps=4)
    program.train()
    assert float(program.w) == 6.125
    assert int(program.optimizer.iterations) == 4


def test_slots_in_a_new_process(folder, tmp_path):
    run_process("Adam", folder, kill_at=8, max_steps=12)
    cut = run_process("Adam", folder, max_steps=12)
    unbroken = run_process("Adam", str(tmp_path / "unbroken"), max_steps=12)
    assert cut["restored"] == 6
    names = [name for name in cut["digests"] if name.startswith("optimizer/adam/")]
    assert "optimizer/adam/dense/kernel/momentum" in names
    assert "optimizer/adam/dense/kernel/velocity" in names
    assert digests_module.first_difference(unbroken["digests"], cut["digests"]) is None


def test_an_optimizer_left_out_is_named(make):
    class Forgotten(Momentum):
        def build(self):
            super().build()
            optimizer, self.optimizer = self.optimizer, None
            self.apply = lambda gradient: optimizer.apply_gradients([(gradient, self.w)])

        def train_step(self, x):
            self.apply(self.gradient(x))
            return {"w": self.w}

    with pytest.raises(trainer.StateCoverageError) as caught:
        make(Forgotten)
    assert len(caught.value.missing) == 3
    assert any("momentum" in name for name in caught.value.missing)
    assert "no attribute leads to it; write self.<name> = <what holds it> in build()" in str(
        caught.value
    )
    assert "(the function apply alone holds it: apply > optimizer." in str(caught.value)


# K03


def test_data_goes_on(make):
    crash(make(Ten, hooks=[testing.CrashAt(8)]), max_steps=10)
    seen = []

    class Seen(trainer.Hook):
        def after_step(self, ctx):
            seen.append(float(ctx.outputs["x"]))

    program = make(Ten, hooks=[Seen()], max_steps=10)
    program.train()
    assert seen == [7, 8, 9, 10]
    assert float(program.w) == 55


@pytest.mark.parametrize("how", ["epochs", "repeat"])
def test_the_next_epoch_is_whole(make, how):
    class Five(Summing):
        last = 5

        def train_dataset(self):
            dataset = super().train_dataset()
            return dataset.repeat(2) if how == "repeat" else dataset

    epochs = 1 if how == "repeat" else 2
    make(Five, max_steps=3, epochs=epochs, save_every_steps=1).train()
    program = make(Five, epochs=epochs)
    assert program.train() == trainer.RunResult(10, "finished", 0)
    assert float(program.w) == 30


def test_killed_in_a_process(folder):
    run_process("Summing", folder, kill_at=8, max_steps=10)
    result = run_process("Summing", folder, max_steps=10)
    assert result["restored"] == 6
    assert result["values"]["w"] == 55


# K10


class Noise(trainer.Trainer):
    def build(self):
        self.generator = tf.random.Generator.from_seed(7)
        self.drop = tf.keras.layers.Dropout(0.5, seed=7)

    def train_dataset(self):
        return tf.data.Dataset.range(1000).shuffle(1000)

    def train_step(self, x):
        mask = self.drop(tf.ones((1, 10)), training=True)
        bits = tf.cast(mask[0] > 0, tf.int32) * (2 ** tf.range(10))
        return {"noise": self.generator.normal(()), "mask": tf.reduce_sum(bits), "x": x}


class Drawn(trainer.Hook):
    def __init__(self):
        self.rows = []

    def after_step(self, ctx):
        self.rows.append(tuple(float(ctx.outputs[name]) for name in ("noise", "mask", "x")))

    def get_state(self):
        return {}


@pytest.mark.parametrize("seed", [7, None])
def test_random_numbers_go_on(make, tmp_path, seed):
    whole, first, second = Drawn(), Drawn(), Drawn()
    crash(make(Noise, hooks=[first, testing.CrashAt(8)], seed=seed), max_steps=10)
    program = make(Noise, hooks=[second], seed=seed, max_steps=10)
    program.train()
    make(Noise, hooks=[whole], seed=program.seed, model_dir=tmp_path / "whole").train(10)
    assert len(set(whole.rows)) == 10
    assert first.rows + second.rows[2:] == whole.rows
    assert second.rows == whole.rows[6:]


def test_a_drawn_seed_is_said_and_kept(make, said, caplog):
    program = make(seed=None, max_steps=3)
    program.train()
    assert f"seed {program.seed} (drawn; kept in the checkpoint)" in said()
    resumed = make(seed=None)
    assert resumed.seed == program.seed
    assert f"seed {program.seed} (from the checkpoint)" in said()
    other = program.seed ^ 1
    assert make(seed=other).seed == program.seed
    assert f"the checkpoint has {program.seed}, the program asks {other}, using" in said()
    assert "a seed has no effect once there is a checkpoint" in said()
    assert (
        f"model_dir of its own without checkpoints, and init_from={program.model_dir!r}" in said()
    )
    assert [r.levelname for r in caplog.records if "no effect" in r.message] == ["WARNING"]


def test_global_generators_go_on(make, tmp_path):
    import random

    class Global(trainer.Hook):
        def __init__(self):
            self.rows = []

        def after_step(self, ctx):
            self.rows.append((random.random(), np.random.rand()))

        def get_state(self):
            return {}

    whole, cut = Global(), Global()
    make(hooks=[whole], model_dir=tmp_path / "whole").train(10)
    crash(make(hooks=[Global(), testing.CrashAt(8)]), max_steps=10)
    make(hooks=[cut]).train(10)
    assert cut.rows == whole.rows[6:]


def test_hidden_random_state_is_named(make, said):
    class Hidden(Summing):
        def train_step(self, x):
            x = tf.nn.dropout(x, 0.5)
            for _ in tf.range(2):
                x += tf.random.uniform(())
            tf.py_function(lambda: None, [], [])
            return super().train_step(x)

    make(Hidden)
    lines = [line for line in said().splitlines() if "a resumed run will differ" in line]
    assert len(lines) == 3
    assert all(any(op in line for line in lines) for op in ("RandomUniform", "EagerPyFunc"))
    assert "test_run_resume.py" in lines[0]
    assert "tf.random.Generator held as an attribute" in said()


@pytest.mark.parametrize("branch", [False, True])
def test_an_old_keras_layer_is_told_how_to_keep_its_random_state(make, said, branch):
    class Dropping(Summing):
        def build(self):
            super().build()
            self.drop = tf_keras.layers.Dropout(0.5)

        def train_step(self, x):
            if branch and x > 1.0:
                y = tf.reduce_sum(self.drop(tf.ones((4,)), training=True))
            else:
                y = tf.reduce_sum(self.drop(tf.ones((4,)), training=not branch))
            return super().train_step(x) | {"y": y}

    cure = "tf_keras.backend.experimental.enable_tf_random_generator() before the layers are made"
    experimental = tf_keras.backend.experimental
    if branch:
        make(Dropping)
        assert f"call {cure}" in said()
        return
    experimental.enable_tf_random_generator()
    try:
        make(Dropping)
        assert "a resumed run will differ" not in said()
    finally:
        experimental.disable_tf_random_generator()
    make(Dropping)
    assert f"call {cure}" in said()


def test_a_mutable_table_is_named(make, said):
    class Table(Summing):
        def build(self):
            super().build()
            self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)

        def train_step(self, x):
            self.table.insert(tf.constant(1, tf.int64), tf.constant(1, tf.int64))
            return super().train_step(x)

    make(Table)
    assert "hold it in a tf.Variable" in said()


# K11


class Scheduled(Momentum):
    def build(self):
        super().build()
        self.optimizer = SGD(tf.keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5))


def test_schedules_go_on(make):
    make(Scheduled, max_steps=2).train()
    program = make(Scheduled, max_steps=4)
    program.train()
    assert float(program.w) == 1.875


class Slower(Momentum):
    rate = 0.1


@pytest.mark.parametrize(("keep", "rate"), [((), 1.0), (("optimizer/learning_rate",), 0.1)])
def test_a_new_rate_is_said_and_can_be_chosen(make, said, caplog, keep, rate):
    make(Momentum, max_steps=2).train()
    program = make(Slower, keep_program_values=keep)
    assert float(program.optimizer.learning_rate) == pytest.approx(rate)
    line = f"optimizer/learning_rate: the checkpoint has 1.0, program asks 0.1, using {rate}"
    assert line.replace("program", "the program") in said()
    assert [r.levelname for r in caplog.records if "the program asks" in r.message] == ["WARNING"]


def old_adam(rate, decay):
    return tf_keras.optimizers.legacy.Adam(rate, decay=decay)


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (
            lambda: keras.optimizers.Nadam(0.1),
            lambda: keras.optimizers.Nadam(0.2, beta_1=0.5),
            [
                "optimizer/learning_rate",
                "optimizer: beta_1 0.9 in the checkpoint, 0.5 in the",
                "the program is not the one that wrote checkpoint 4",
            ],
        ),
        (lambda: keras.optimizers.Nadam(0.1), lambda: keras.optimizers.Nadam(0.1), []),
        (
            lambda: keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
            lambda: keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.2)),
            ["optimizer/inner_optimizer/learning_rate"],
        ),
        (lambda: old_adam(0.1, 0.0), lambda: old_adam(0.2, 0.0), ["hyper/learning_rate"]),
    ],
)
def test_settings_are_warned_of_and_state_is_not(make, caplog, before, after, names):
    class Setting(Summing):
        optimizer_of = staticmethod(before)

        def build(self):
            self.w = tf.Variable(1.0)  # its slots are scalars too
            self.optimizer = type(self).optimizer_of()

        def train_step(self, x):
            self.optimizer.apply_gradients([(tf.constant(float("inf")), self.w)])
            return {"x": x}

    class Finite(Setting):
        def train_step(self, x):
            self.optimizer.apply_gradients([(tf.constant(0.5), self.w)])
            return {"x": x}

    scaled = "LossScale" in type(before()).__name__
    cls = Setting if scaled else Finite
    make(cls, max_steps=4).train()
    caplog.clear()
    made = make(type("After", (cls,), {"optimizer_of": staticmethod(after)}))
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == len(names)
    for name, text in zip(sorted(names), sorted(warned), strict=True):
        assert name in text
    if scaled:  # it was halved, and is not the program's
        assert float(made.optimizer.dynamic_scale) < 32768


# K25


class Matrix(Summing):
    columns = 4
    made = ()

    def build(self):
        self.first = tf.Variable(tf.zeros(2))
        self.matrix = tf.Variable(tf.ones((3, self.columns)))
        Matrix.made += (self,)

    def train_step(self, x):
        self.first.assign_add([x, x])
        self.matrix.assign_add(tf.ones_like(self.matrix))
        return {"x": x}


class Wider(Matrix):
    columns = 8


class Integers(Summing):
    def build(self):
        self.first = tf.Variable(tf.zeros(2, tf.int32))
        self.matrix = tf.Variable(tf.ones((3, 4)))

    def train_step(self, x):
        self.first.assign_add([1, 1])
        return {"x": x + tf.reduce_sum(self.matrix)}


def test_another_shape_is_named_and_changes_nothing(make):
    make(Matrix, max_steps=2).train()
    with pytest.raises(trainer.CheckpointMismatchError) as caught:
        make(Wider)
    line = "matrix: float32[3, 4] in the checkpoint, float32[3, 8] in the program"
    assert caught.value.different == [line]
    assert line in str(caught.value)
    assert "ckpt-2" in str(caught.value)
    assert np.all(Matrix.made[-1].first.numpy() == 0)
    assert np.all(Matrix.made[-1].matrix.numpy() == 1)


def test_another_dtype_is_named(make):
    make(Matrix, max_steps=2).train()
    with pytest.raises(trainer.CheckpointMismatchError, match=r"first: float32\[2\] in the check"):
        make(Integers)


def test_variables_made_after_construction_are_named(make, said):
    class Growing(Summing):
        def build(self):
            super().build()
            self.layers = [tf.Variable(1.0)]

    program = make(Growing, max_steps=3)
    program.layers.append(tf.Variable(2.0))
    program.train()
    assert "not saved, because they came after construction: layers/1" in said()


class OtherOptimizer(Momentum):
    def build(self):
        super().build()
        self.optimizer = tf.keras.optimizers.Adam(0.1)


def test_another_optimizer_only_when_asked(make, said):
    make(Momentum, max_steps=2).train()
    with pytest.raises(trainer.CheckpointMismatchError, match="optimizer/adam/w/velocity"):
        make(OtherOptimizer)
    program = make(OtherOptimizer, keep_program_values=("optimizer/*",))
    assert float(program.w) == 2.5
    assert "here only, left as the program set them" in said()
    assert "optimizer/adam/w/velocity" in said()


# K26


def test_warm_start_from_a_run(make, tmp_path, said):
    make(Momentum, model_dir=tmp_path / "source", max_steps=2).train()
    program = make(Momentum, init_from=tmp_path / "source", max_steps=3, save_every_steps=1)
    assert (program.step, float(program.w), program.restored_step) == (0, 2.5, None)
    assert int(program.optimizer.iterations) == 0
    assert "step, optimizer, metrics, random state, data position and hooks start anew" in said()
    program.train(1)
    assert float(program.w) == 3.5  # momentum started anew
    again = make(Momentum, init_from=tmp_path / "source", max_steps=3)
    assert (again.step, float(again.w)) == (1, 3.5)  # now the folder wins
    assert sorted(os.listdir(tmp_path / "source")) == [
        "LOCK",
        "checkpoint",
        "ckpt-2",
        "heartbeat.json",
        "journal.jsonl",
    ]


@pytest.mark.parametrize("kind", ["checkpoint", "tensorflow", "keras"])
def test_warm_start_from_other_kinds(make, tmp_path, kind):
    source = make(programs.Classifier, model_dir=tmp_path / "source", max_steps=2)
    source.train()
    path = tmp_path / "source" / "ckpt-2"
    if kind == "tensorflow":
        path = tmp_path / "plain"
        weights = {
            "model/dense/kernel": source.model.layers[0].kernel,
            "model/dense/bias": source.model.layers[0].bias,
            "model/dense_1/kernel": source.model.layers[2].kernel,
            "model/dense_1/bias": source.model.layers[2].bias,
        }
        tf.raw_ops.SaveV2(
            prefix=str(path),
            tensor_names=list(weights),
            shape_and_slices=[""] * 4,
            tensors=[tf.convert_to_tensor(value) for value in weights.values()],
        )
    if kind == "keras":
        path = tmp_path / "x.weights.h5"
        source.model.save_weights(path)
    program = make(programs.Classifier, init_from=path)
    assert program.step == 0
    for mine, other in zip(program.model.weights, source.model.weights, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_warm_start_refusals(make, tmp_path):
    with pytest.raises(ValueError, match=r"init_from=.*nowhere' does not exist"):
        make(init_from=tmp_path / "nowhere")
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    tf.saved_model.save(model, str(tmp_path / "saved"))
    with pytest.raises(ValueError, match="is a SavedModel"):
        make(init_from=tmp_path / "saved")
    (tmp_path / "x.h5").write_bytes(b"")
    with pytest.raises(ValueError, match="has 0 Keras models"):
        make(init_from=tmp_path / "x.h5")
    make(model_dir=tmp_path / "source", max_steps=2).train()
    with pytest.raises(trainer.CheckpointMismatchError, match="in the program only"):
        make(Renamed, init_from=tmp_path / "source")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no checkpoint that can be read"):
        make(init_from=tmp_path / "empty")


def test_a_used_folder_is_refused_when_asked(make):
    make(max_steps=6).train()
    with pytest.raises(
        trainer.CheckpointError, match=r"resume='never'.*holds checkpoints \[3, 6\]"
    ):
        make(resume="never")


def test_a_saved_model_is_no_run(make, tmp_path):
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    tf.saved_model.save(model, str(tmp_path / "saved"))
    with pytest.raises(ValueError, match="is a SavedModel, not a run"):
        make(model_dir=tmp_path / "saved")


# K27


class Average(Momentum):
    def build(self):
        self.w = tf.Variable(0.0)
        self.average = tf.Variable(0.0)
        self.updates = tf.Variable(0)

    def train_step(self, x):
        self.w.assign_add(1.0)
        self.average.assign(0.5 * self.average + 0.5 * self.w)
        self.updates.assign_add(1)
        return {"average": self.average}


def test_averages_go_on(make):
    make(Average, max_steps=2).train()
    program = make(Average, max_steps=4)
    program.train()
    assert (float(program.w), float(program.average), int(program.updates)) == (4, 3.0625, 4)


# K28


class Accumulating(Momentum):
    rate = 1.0

    def build(self):
        self.w = tf.Variable(0.0)
        self.optimizer = SGD(self.rate, gradient_accumulation_steps=4)

    def gradient(self, x):
        return -x


class AccumulatingSchedule(Accumulating):
    @property
    def rate(self):
        return tf.keras.optimizers.schedules.ExponentialDecay(1.0, 4, 0.5, staircase=True)


@pytest.mark.parametrize(("cls", "w"), [(Accumulating, 9.0), (AccumulatingSchedule, 5.75)])
def test_accumulation_goes_on_within_a_window(make, cls, w):
    make(cls, max_steps=6, save_every_steps=100).train()
    program = make(cls, max_steps=8)
    assert (program.step, float(program.w)) == (6, 2.5)
    program.train()
    assert float(program.w) == w


# K32


class Scaled(trainer.Trainer):
    def build(self):
        self.w = tf.Variable(0.0)
        self.optimizer = tf.keras.optimizers.LossScaleOptimizer(
            SGD(1.0), initial_scale=8.0, dynamic_growth_steps=2
        )

    def train_dataset(self):
        return tf.data.Dataset.range(1, 1000)

    def train_step(self, step):
        overflow = tf.where(step == 5, float("inf"), 0.0)
        scaled = self.optimizer.scale_loss(tf.constant(1.0))
        self.optimizer.apply_gradients([(-scaled + overflow, self.w)])
        return {"scale": self.optimizer.dynamic_scale}


def test_loss_scale_goes_on(make):
    make(Scaled, max_steps=3).train()
    program = make(Scaled, max_steps=4)
    assert float(program.optimizer.dynamic_scale) == 16
    assert int(program.optimizer.step_counter) == 1
    program.train()
    assert float(program.optimizer.dynamic_scale) == 32


def test_a_declined_update_counts_as_a_step(make):
    program = make(Scaled, max_steps=10)
    program.train()
    assert program.step == 10
    assert int(program.optimizer.inner_optimizer.iterations) == 9
    assert float(program.w) == 9


# The data pipeline of another program


class Batched(Ten):
    def train_dataset(self):
        return super().train_dataset().batch(1).map(lambda x: x[0])


def test_another_pipeline_is_named(make):
    make(Ten, max_steps=6).train()
    with pytest.raises(trainer.CheckpointMismatchError) as caught:
        make(Batched)
    assert "trainer/data/iterator: train_dataset() is another pipeline now" in str(caught.value)
    program = make(Batched, keep_program_values=("trainer/data/iterator",), max_steps=10)
    program.train()
    assert float(program.w) == 55


# Settings of optimizers that are no variables


class ShorterWindow(Accumulating):
    def build(self):
        self.w = tf.Variable(0.0)
        self.optimizer = SGD(self.rate, gradient_accumulation_steps=2)


def test_another_window_within_a_window_is_refused(make):
    make(Accumulating, max_steps=6, save_every_steps=100).train()
    with pytest.raises(trainer.CheckpointMismatchError) as caught:
        make(ShorterWindow)
    line = "optimizer: gradient_accumulation_steps 4 in the checkpoint, 2 in the program"
    assert line in str(caught.value)
    assert "lies within a window; train to a window's end first" in str(caught.value)


def test_another_window_at_a_windows_end_is_said(make, said):
    make(Accumulating, max_steps=4, save_every_steps=100).train()
    program = make(ShorterWindow, max_steps=6)
    assert "gradient_accumulation_steps 4 in the checkpoint, 2 in the program; using 2" in said()
    program.train()
    assert float(program.w) == 2.5 + 5.5


def test_a_schedule_that_ends_before_the_run(make, said):
    class Decaying(Momentum):
        def build(self):
            self.w = tf.Variable(0.0)
            decay = tf.keras.optimizers.schedules.PolynomialDecay(1.0, 4, end_learning_rate=0.0)
            self.optimizer = SGD(decay)

    make(Decaying, max_steps=4).train()
    assert "its schedule" not in said()
    make(Decaying, max_steps=8).train()
    assert "optimizer: its schedule PolynomialDecay ends at step 4 and the run goes to step 8" in (
        said()
    )
    assert "the rate stays at 0 from there" in said()


def test_program_values_are_kept_once(make, said):
    """The checkpoint remembers the patterns: once each later start reset the optimizer again."""
    settings = {"save_every_steps": 3, "max_steps": 12}
    first = make(programs.Classifier, hooks=[testing.CrashAt(5)], **settings)
    crash(first)
    kept = {"keep_program_values": ("optimizer/*",)}
    second = make(programs.Classifier, hooks=[testing.CrashAt(8)], **settings, **kept)
    assert int(second.state()["optimizer/iterations"]) == 0
    assert "the checkpoint's are dropped, of optimizer/iterations" in said()
    crash(second)
    dropped = said().count("are dropped")
    third = make(programs.Classifier, **settings, **kept)
    assert third.restored_step == 6
    assert int(third.state()["optimizer/iterations"]) == 3
    assert said().count("are dropped") == dropped
    other = make(programs.Classifier, keep_program_values=("optimizer/iter*",), **settings)
    assert int(other.state()["optimizer/iterations"]) == 0


def test_an_output_that_is_new_does_not_stop_the_saves(make):
    """A hook's call spans the resume, and the steps before it did not have that output."""

    class More(Summing):
        def train_step(self, x):
            outputs = super().train_step(x)
            return outputs | {"more": outputs["x"] + 1.0}

    class See(trainer.Hook):
        every_steps = 10

        def after_step(self, ctx):
            self.seen = ctx.history["more"].tolist()

    make(hooks=[See()], max_steps=5).train()
    hook = See()
    assert make(More, hooks=[hook], max_steps=10).train().step == 10
    assert hook.seen[5:] == [7, 8, 9, 10, 11]
    assert np.isnan(hook.seen[:5]).all()
