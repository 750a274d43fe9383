"""Corners that an attack on the core found, each held by a test."""

import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.checkpoints import file_names

from conftest import Summing, crash


class Raises(trainer.Hook):
    def after_step(self, ctx):
        if ctx.step == 5:
            raise KeyError("broken")


def test_a_step_whose_hooks_did_not_all_run_is_not_saved(make):
    program = make(hooks=[Raises()], max_steps=10)
    with pytest.raises(KeyError):
        program.train()
    with pytest.raises(trainer.SaveError, match="a hook raised at step 5"):
        program.save()
    with pytest.raises(trainer.TrainerError, match="a hook raised at step 5"):
        program.train()
    assert program.checkpoints == [3]


@pytest.mark.parametrize("per_call", [1, 2, 100, None])
def test_a_stop_asked_for_before_a_step_ends_with_that_step(make, per_call):
    class Stop(trainer.Hook):
        every_steps = 5

        def before_step(self, ctx):
            ctx.request_stop("now")

    assert make(hooks=[Stop()], max_steps=99, steps_per_call=per_call).train().step == 5


def test_a_poisoned_variable_is_not_saved_though_the_outputs_are_finite(make):
    class Poisoned(Summing):
        def build(self):
            super().build()
            self.best = tf.Variable(float("inf"))  # not finite from the start: may stay so

        def train_step(self, x):
            super().train_step(x)
            self.w.assign(tf.where(x == 6, float("nan"), self.w))
            return {"x": x}

    program = make(Poisoned, max_steps=9)
    with pytest.raises(trainer.NonFiniteError, match="variable 'w' of step 6 is nan"):
        program.train()
    assert program.checkpoints == [3]
    assert float(make(Poisoned).w) == 6


def test_a_rewind_takes_a_hook_back_to_an_empty_state(make):
    class Late(trainer.Hook):
        def __init__(self):
            self.seen = {}

        def after_step(self, ctx):
            if ctx.step > 3:
                self.seen = {"step": ctx.step}

        def get_state(self):
            return self.seen

        def set_state(self, state):
            self.seen = state

    hook = Late()
    program = make(hooks=[hook], max_steps=9)
    program.train()
    program.restore(np.int64(3))
    assert hook.seen == {}


def test_no_pattern_matches_the_step(make):
    make(max_steps=6).train()
    program = make(keep_program_values=("*",), max_steps=9)
    assert int(program.state()["trainer/step"]) == program.step == 6


def test_a_pattern_that_matches_nothing_is_said(make, said):
    make(max_steps=3).train()
    make(keep_program_values=("optimiser/*",))
    assert "keep_program_values: 'optimiser/*' matches no name" in said()


def test_a_stranger_inside_a_checkpoint(make, folder, said):
    make(max_steps=6).train()
    note = pathlib.Path(folder, "ckpt-6", "notes.txt")
    note.write_text("mine")
    program = make(max_steps=12, max_to_keep=1)
    assert program.restored_step == 6
    program.train()
    assert note.read_text() == "mine"
    assert "stays: it holds ['notes.txt']" in said()


def test_a_copied_checkpoint_is_not_taken_for_another_step(make, folder, said):
    make(max_steps=6).train()
    shutil.copytree(f"{folder}/ckpt-6", f"{folder}/ckpt-100")
    program = make()
    assert program.restored_step == 6
    assert "ckpt-100 is damaged: manifest.json is that of step 6" in said()
    assert program.checkpoints == [3, 6]


@pytest.mark.parametrize("resume", ["required", "auto"])
def test_a_killed_replacement_is_undone_before_anything_is_decided(make, folder, resume):
    seed = make(seed=None, max_steps=3)
    seed.train()
    pathlib.Path(folder, "ckpt-3").rename(pathlib.Path(folder, file_names.passing("ckpt-3", "old")))
    with pytest.raises(trainer.CheckpointError, match="resume='never'"):
        make(resume="never")
    program = make(seed=None, resume=resume)
    assert (program.step, program.seed) == (3, seed.seed)


@pytest.mark.parametrize("name", ["ckpt-12", "checkpoint"])
def test_odd_things_under_our_names(make, folder, name):
    make(max_steps=6).train()
    path = pathlib.Path(folder, name)
    if path.is_file():
        path.unlink()
        path.mkdir()
    else:
        path.write_text("mine")
    program = make(max_steps=9)
    program.train()
    assert program.checkpoints == [3, 6, 9]


def test_a_folder_that_is_moved_away_during_a_run(make, folder):
    program = make(max_steps=3)
    program.train()
    shutil.move(folder, folder + "-moved")
    with pytest.raises(trainer.ModelDirInUseError, match="was moved, removed or taken over"):
        program.train(max_steps=6)
    assert not pathlib.Path(folder).exists()


def test_numpy_integers(make):
    program = make(seed=np.int64(7), max_steps=np.int64(10), save_every_steps=np.int32(3))
    assert program.train().step == 10
    assert program.train(max_steps=np.int64(12)).step == 12


def test_two_attributes_that_differ_in_an_underscore(make):
    class Two(Summing):
        def build(self):
            super().build()
            self._w = tf.Variable(0.0)

        def train_step(self, x):
            self._w.assign_sub(x)
            return super().train_step(x)

    crash(make(Two, hooks=[testing.CrashAt(8)]), max_steps=10)
    program = make(Two, max_steps=10)
    program.train()
    assert (float(program.w), float(program._w)) == (55, -55)


def test_an_attribute_that_hides_a_method(make):
    class Hiding(Summing):
        def build(self):
            super().build()
            self.state = tf.Variable(0.0)

    with pytest.raises(ValueError, match="the attribute 'state' of Hiding hides Trainer.state"):
        make(Hiding)


def test_a_second_iterator_is_named(make, said):
    class Second(Summing):
        def build(self):
            super().build()
            self.extra = iter(tf.data.Dataset.range(1000))

        def train_step(self, x):
            return super().train_step(x + tf.cast(next(self.extra), tf.float32))

    make(Second)
    assert "its position is in no checkpoint; zip that data into train_dataset()" in said()


def test_string_variables(tmp_path):
    class Strings(Summing):
        def build(self):
            super().build()
            self.words = tf.Variable(["a", "b"])

    def build(folder, hooks):
        config = trainer.TrainerConfig(folder, save_every_steps=3, seed=7)
        return Strings(config, hooks=hooks)

    testing.assert_resumes_exactly(build, steps=6, crashes=[4])


@pytest.mark.parametrize(
    ("first", "then", "steps"),
    [
        ({"epochs": 2}, {"epochs": 3}, 15),
        ({"epochs": 2}, {"max_steps": 12}, 12),
        ({"max_steps": 7}, {"epochs": 2}, 10),
    ],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_another_number_of_passes(make, first, then, steps, shuffle):
    class Five(Summing):
        last = 5

        def train_dataset(self):
            dataset = super().train_dataset()
            return dataset.shuffle(5, seed=1).batch(1).map(lambda x: x[0]) if shuffle else dataset

    make(Five, **first).train()
    program = make(Five, **then)
    assert program.train().step == steps
    assert float(program.w) == sum((step - 1) % 5 + 1 for step in range(1, steps + 1)) or shuffle


def test_ragged_batches_are_weighted_by_rows(make):
    class Ragged(Summing):
        def eval_dataset(self):
            rows = tf.ragged.constant([[1.0, 1.0, 1.0], [1.0], [5.0]])
            return tf.data.Dataset.from_tensor_slices(rows).batch(2)

        def eval_step(self, batch):
            return {"mean": tf.reduce_mean(tf.reduce_mean(batch, axis=1))}

    assert make(Ragged).evaluate() == {"mean": pytest.approx(7 / 3)}


def test_a_rewind_to_before_a_stop_needs_no_new_save(make):
    class Stop(trainer.Hook):
        def after_step(self, ctx):
            if ctx.step == 5:
                ctx.request_stop("five")

    program = make(hooks=[Stop()], max_steps=9)
    program.train()
    program.restore(3)
    assert program.train(max_steps=3) == trainer.RunResult(3, "already_finished")
    assert program.checkpoints == [3]
