"""Several trainers in one process."""

import gc
import random
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.run import inside

from conftest import Summing


class Drawing(Summing):
    """Adds to each step what a hook has drawn."""

    def build(self):
        self.w = tf.Variable(np.float32(np.random.rand()))
        self.rate = tf.Variable(1.0)

    def train_step(self, x):
        self.w.assign_add(x * self.rate)
        return {"w": self.w}


class Draws(trainer.Hook):
    """Draws from every global generator."""

    def after_step(self, ctx):
        drawn = random.random() + np.random.rand()
        drawn += float(tf.random.uniform([])) + float(keras.random.uniform([]))
        ctx.trainer.rate.assign(drawn)

    def get_state(self):
        return {}


@pytest.fixture
def drawing(make, tmp_path):
    return lambda name, seed: make(Drawing, [Draws()], model_dir=tmp_path / name, seed=seed)


def test_two_in_turns_do_not_draw_from_each_other(drawing):
    alone = [drawing(name, seed) for name, seed in (("a", 5), ("b", 9))]
    for program in alone:
        program.train(max_steps=12)
    one, other = drawing("c", 5), drawing("d", 9)
    for steps in (3, 7, 12):
        one.train(max_steps=steps)
        np.random.rand(3), random.random(), tf.random.uniform([])
        other.train(max_steps=steps)
    ends = [[testing.state_digest(program) for program in pair] for pair in (alone, (one, other))]
    assert ends[0] == ends[1]
    assert ends[0][0] != ends[0][1]


def test_one_inside_a_hook_of_another_gives_the_generators_back(drawing):
    class Nests(trainer.Hook):
        def after_step(self, ctx):
            if ctx.step == 4:
                drawing("inner", 3).train(max_steps=2)

        def get_state(self):
            return {}

    alone = drawing("alone", 5)
    alone.train(max_steps=9)
    outer = drawing("outer", 5)
    outer.register_hook(Nests())
    outer.train(max_steps=9)
    assert testing.state_digest(outer) == testing.state_digest(alone)


def test_a_save_between_two_turns_is_of_the_last_turn(drawing):
    program = drawing("a", 5)
    program.train(max_steps=4)
    before = testing.state_digest(program)
    random.random(), np.random.rand(), tf.random.uniform([])
    assert testing.state_digest(program) == before


def test_two_at_once_in_threads_are_told(drawing, said):
    one, other = drawing("a", 5), drawing("b", 9)
    met = threading.Barrier(2, timeout=60)

    class Meet(trainer.Hook):
        def begin(self, ctx):
            met.wait()

        def get_state(self):
            return {}

    for program in (one, other):
        program.register_hook(Meet())
    threads = [threading.Thread(target=p.train, args=(5,)) for p in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (one.step, other.step) == (5, 5)
    assert said().count("two trainers of this process are at work at the same time") == 1
    assert one.model_dir in said()


def test_one_after_the_other_in_threads_is_nothing_to_tell(drawing, said):
    alone = drawing("alone", 5)
    alone.train(max_steps=6)
    program = drawing("a", 5)
    for steps in (3, 6):
        thread = threading.Thread(target=program.train, args=(steps,))
        thread.start()
        thread.join(60)
    assert testing.state_digest(program) == testing.state_digest(alone)
    assert "at the same time" not in said()


SHARED = {}


class Sharing(Summing):
    """Trains a variable that was made outside."""

    def build(self):
        self.model = [SHARED.setdefault("w", tf.Variable(0.0))]
        self.w = self.model[0]


def test_a_variable_of_two_trainers_is_refused(make, tmp_path):
    SHARED.clear()
    first = make(Sharing, model_dir=tmp_path / "a")
    first.train(max_steps=3)
    with pytest.raises(trainer.TrainerError, match=r"'model/0' belongs to another trainer.*/a:"):
        make(Sharing, model_dir=tmp_path / "b")
    assert float(first.w) == 6
    first.close()
    assert make(Sharing, model_dir=tmp_path / "b").step == 0


def test_the_same_folder_again_is_no_other_trainer(make):
    SHARED.clear()
    make(Sharing, max_steps=3).train()
    assert make(Sharing).step == 3


def test_a_trainer_that_nobody_has_does_not_count(tmp_path):
    SHARED.clear()

    def forgotten():
        program = Sharing(trainer.TrainerConfig(tmp_path / "a", save_every_steps=3))
        program.train(max_steps=3)

    gc.disable()
    try:
        forgotten()
        with Sharing(trainer.TrainerConfig(tmp_path / "b", save_every_steps=3)) as program:
            assert inside.of(program).parts.progress.step == 0
    finally:
        gc.enable()
