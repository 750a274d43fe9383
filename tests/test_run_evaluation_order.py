"""An evaluation that decides something gives the same after a resume (K30)."""

import random

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.state import seeds

from conftest import Summing


class Decided(Summing):
    """A hook adds to the weight what an evaluation of the first two of nine numbers finds."""

    def eval_dataset(self):
        numbers = tf.data.Dataset.range(9).map(lambda x: tf.cast(x, tf.float32))
        return numbers.shuffle(9).batch(1)

    def eval_step(self, batch):
        return {"mean": batch[0]}


class Decide(trainer.Hook):
    every_steps = 1

    def __init__(self):
        self.found = []

    def after_step(self, ctx):
        self.found.append(ctx.trainer.evaluate(steps=2)["mean"])
        ctx.trainer.w.assign_add(self.found[-1])

    def get_state(self):
        return {"found": self.found}

    def set_state(self, state):
        self.found = state["found"]


def test_an_unseeded_shuffle_decides_the_same_after_a_resume():
    def make(folder, hooks):
        config = trainer.TrainerConfig(folder, seed=3, save_every_steps=2)
        return Decided(config, hooks=[Decide(), *hooks])

    testing.assert_resumes_exactly(make, steps=9, crashes=(3, 6))


def test_tensorflows_seed_is_given_back():
    def draw():
        return [float(tf.random.uniform([])), float(tf.random.uniform([], seed=5))]

    tf.random.set_seed(4)
    draw()
    expected = [draw(), draw()]
    tf.random.set_seed(4)
    draw()
    first = draw()
    with seeds.lent(9):
        shuffled = tf.data.Dataset.range(99).shuffle(99)
        assert shuffled._seed.numpy() == 9
        lent = int(shuffled._seed2)
    assert [first, draw()] == expected
    with seeds.lent(9):
        assert int(tf.data.Dataset.range(99).shuffle(99)._seed2) == lent


def test_a_process_without_a_seed_has_none_afterwards():
    from tensorflow.python.eager import context

    before = vars(context.context()).copy()
    try:
        vars(context.context()).pop("_rng", None)
        vars(context.context())["_seed"] = None
        with seeds.lent(9):
            pass
        assert context.context()._seed is None
        assert "_rng" not in vars(context.context())
    finally:
        vars(context.context()).update(before)


@pytest.mark.parametrize("generator", [random.random, np.random.rand])
def test_the_other_generators_are_given_back(generator):
    seeds.plant(3)
    expected = [generator() for _ in range(2)][1]
    seeds.plant(3)
    generator()
    with seeds.lent(9):
        generator()
    assert generator() == expected


class Doubtful(Decided):
    def eval_dataset(self):
        return (
            super()
            .eval_dataset()
            .map(lambda x: x + 0 * tf.cast(tf.timestamp(), tf.float32), 2, deterministic=False)
        )

    def eval_step(self, batch):
        return {"mean": batch[0] + tf.random.uniform([])}


def test_what_makes_an_evaluation_differ_is_named_once(make, said):
    program = make(Doubtful)
    assert "evaluate()" not in said()
    program.evaluate()
    program.evaluate()
    lines = [line for line in said().splitlines() if "evaluate() may give other values" in line]
    assert len(lines) == 3
    assert "eval_step" in lines[2] or "eval_step" in lines[0]
    for what in ("RandomUniform (", "Timestamp (", "map(deterministic=False)"):
        assert any(what in line for line in lines), what


def test_an_exact_evaluation_is_not_named(make, said):
    make(Decided).evaluate()
    assert "may give other values" not in said()


def test_indexed_may_be_evaluated(make):
    class Numbered(Decided):
        def eval_dataset(self):
            return trainer.data.Indexed(np.arange(9, dtype=np.float32), batch_size=1, shuffle=False)

    assert make(Numbered).evaluate() == {"mean": 4.0}
