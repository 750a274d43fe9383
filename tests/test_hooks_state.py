"""What hooks keep, and what is said of what they do not keep."""

import collections
import datetime
import enum
import json
import logging
import math
import random

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.hooks import state_text

from conftest import Summing


@pytest.fixture
def warned(said, caplog):
    """Returns the warnings so far, but for that of the save interval."""
    return lambda: [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


class Tuned(Summing):
    """Its sum goes by a rate that a hook may set."""

    def build(self):
        super().build()
        self.rate = tf.Variable(1.0)

    def train_step(self, x):
        self.w.assign_add(x * self.rate)
        return {"loss": self.w / 7.0}


def is_same(one, two):
    """Tells whether two values are equal with all that makes a difference to whoever uses them."""
    if type(one) is not type(two):
        same = False
    elif isinstance(one, tf.Tensor):
        same = one.dtype == two.dtype and is_same(one.numpy(), two.numpy())
    elif isinstance(one, np.ndarray):
        flags = one.flags.f_contiguous == two.flags.f_contiguous and two.flags.writeable
        same = (
            flags and (one.dtype, one.shape) == (two.dtype, two.shape) and _bits(one) == _bits(two)
        )
    elif isinstance(one, dict):
        pairs = zip(one.items(), two.items(), strict=True)
        same = len(one) == len(two) and all(is_same(a, b) for a, b in pairs)
    elif isinstance(one, list | tuple | collections.deque):
        ends = getattr(one, "maxlen", None) == getattr(two, "maxlen", None)
        same = ends and len(one) == len(two) and all(map(is_same, one, two))
    elif isinstance(one, np.generic):
        same = one.dtype == two.dtype and one.tobytes() == two.tobytes()
    else:
        same = repr(one) == repr(two) if isinstance(one, float) else one == two
    return same


def _bits(array):
    return array.tolist() if array.dtype == object else array.tobytes()


KEPT = {
    "scalars": [np.float32(1.1), np.float16(0.3), np.int8(3), np.uint64(2**63 + 5), np.bool_(True)],
    "odd scalars": [
        np.complex64(1 + 2j),
        np.str_("ä"),
        np.bytes_(b"x"),
        np.datetime64("2020-01-01"),
    ],
    "float64 is no float": [np.float64(2), 2.0, np.float32("nan"), ml_dtypes.bfloat16(1.5)],
    "arrays": [
        np.arange(5),
        np.arange(1000.0),
        np.zeros((0, 3)),
        np.array(3),
        np.array([math.nan]),
    ],
    "big-endian": [np.array(3, ">f4"), np.arange(6, dtype=">i4").reshape(2, 3)],
    "texts in arrays": [np.array(["a", "bcd"]), np.array([b"a"]), np.array([], "U")],
    "columns": [np.asfortranarray(np.arange(12.0).reshape(3, 4))],
    "small floats": [np.ones(3, ml_dtypes.bfloat16), np.ones(3, ml_dtypes.float8_e4m3fn)],
    "tensors": [tf.constant(1.5), tf.constant([1, 2]), tf.zeros([0, 3]), tf.constant(True)],
    "odd tensors": [tf.constant(["a"]), tf.constant(1j), tf.cast([1.0], tf.bfloat16)],
    "keys": {1: 2, (1, 2): 3, None: 4, 1.5: 5, b"x": 6, np.int64(7): 8, frozenset([1]): 9},
    "flags as keys": {True: 1, False: 0},
    "order": {"b": 1, "a": 2},
    "the tag as a key": {"~type": "tuple", "items": [1]},
    "sets": [set(), {1, "a", (2, 3)}, frozenset({1.5})],
    "tuples": ((), (1, [2, (3,)])),
    "bytes": [b"\0\xff", bytearray(b"q")],
    "numbers": [1 + 2j, math.nan, math.inf, -math.inf, -0.0, 2**70, -(10**6000), 5e-324],
    "texts": ["\ud800\0ü", "", None, True],
    "queues": [collections.deque([1, 2], maxlen=3), collections.OrderedDict(b=1, a=2)],
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_comes_back_equal(name):
    state = {"x": {"y": KEPT[name]}}
    assert is_same(state_text.decode(state_text.encode("Any", state)), state)


class Holder(trainer.Hook):
    """Has a state, whatever it is given."""

    def __init__(self, value=None):
        self.value = value

    def get_state(self):
        return {"value": self.value}

    def set_state(self, state):
        self.value = state["value"]


def test_types_come_back_from_a_checkpoint(make):
    given = {
        "ema": np.float32(0.1),
        "n": {0: 1, 1: (2, {3})},
        "t": tf.constant([2.0]),
        "x": math.nan,
    }
    make(hooks=[Holder(given)], max_steps=3).train()
    for steps in (6, 9):
        hook = Holder()
        program = make(hooks=[hook])
        assert is_same(hook.value, given)
        program.train(max_steps=steps)


def test_a_float32_average_goes_on_exactly(tmp_path):
    """As JSON it came back as a float, and what was computed from it had other bits."""

    class Ema(trainer.Hook):
        ema = np.float32(0)

        def after_step(self, ctx):
            self.ema = 0.9 * self.ema + 0.1 * ctx.outputs["loss"]
            ctx.trainer.rate.assign(0.1 / (1 + self.ema))

        def get_state(self):
            return {"ema": self.ema}

        def set_state(self, state):
            self.ema = state["ema"]

    def make(folder, hooks):
        config = trainer.TrainerConfig(folder, save_every_steps=5, seed=7)
        return Tuned(config, hooks=[Ema(), *hooks])

    testing.assert_resumes_exactly(make, steps=60, crashes=[11, 22, 33, 44, 55])


Pair = collections.namedtuple("Pair", "a b")
Level = enum.IntEnum("Level", "LOW HIGH")
ITSELF = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Pair(1, 2), r"state\['value'\] is a test_hooks_state.Pair"),
        ([{"y": Level.LOW}], r"state\['value'\]\[0\]\['y'\] is a test_hooks_state.Level"),
        ({Level.LOW: 1}, r"key <Level.LOW: 1> of state\['value'\] is a test_hooks_state.Level"),
        (datetime.date(2020, 1, 1), r"state\['value'\] is a datetime.date"),
        (np.array([object()]), r"state\['value'\] is a numpy.ndarray of dtype object"),
        (np.zeros(2, [("a", "i4")]), r"state\['value'\] is a numpy.ndarray of dtype void32"),
        (np.ma.array([1]), r"MaskedArray of dtype int64"),
        (collections.Counter("a"), r"state\['value'\] is a collections.Counter"),
        (collections.defaultdict(int), r"state\['value'\] is a collections.defaultdict"),
        (np.str_("a\0"), r"state\['value'\] is a numpy.str_"),
        (ITSELF, r"the state holds itself"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_the_first_step(make, value, text):
    program = make(hooks=[Holder(value)], save_every_steps=100)
    with pytest.raises(ValueError, match=f"get_state of hook Holder: .*{text}"):
        program.train(max_steps=3)
    assert (program.step, program.checkpoints) == (0, [])


def test_a_variable_in_a_state_is_told_where_to_go(make):
    with pytest.raises(ValueError, match=r"ResourceVariable.* hold a tf.Variable as an attribute"):
        make(hooks=[Holder(tf.Variable(1.0))]).train(max_steps=3)


def test_a_state_that_needs_a_step_is_asked_for_again(make):
    class Mean(trainer.Hook):
        def __init__(self):
            self.values = []

        def after_step(self, ctx):
            self.values.append(1.0)

        def get_state(self):
            return {"mean": sum(self.values) / len(self.values), "values": self.values}

    assert make(hooks=[Mean()]).train(max_steps=3).step == 3


def test_plain_states_are_plain_json():
    state = {"b": 1, "a": [1.5, None, "x", {"c": True}]}
    assert json.loads(state_text.encode("Any", state)) == state


def test_states_of_the_version_before_are_read():
    assert state_text.decode('{"n": {"1": 2}, "best": Infinity}') == {
        "n": {"1": 2},
        "best": math.inf,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": {"~type": "decimal"}}', "holds a 'decimal', which this version does not know"),
        ('{"a": {"~type": "array"}}', "damaged"),
        ('{"a": {"~type": "array", "dtype": "<f4", "shape": [3], "base64": "AAAA"}}', "damaged"),
        ("[1]", "list and no dict"),
    ],
)
def test_a_state_that_cannot_be_read_changes_nothing(make, monkeypatch, text, said):
    monkeypatch.setattr(state_text, "encode", lambda key, state: text)
    make(hooks=[Holder()], max_steps=3).train()
    with pytest.raises(
        trainer.CheckpointMismatchError, match=f"hook Holder cannot be read: .*{said}"
    ):
        make(hooks=[Holder()])


# What is drawn outside graphs.


class Draws(trainer.Hook):
    """Sets the rate by numbers from global generators."""

    def __init__(self, draw):
        self.draw = draw

    def after_step(self, ctx):
        ctx.trainer.rate.assign(float(self.draw()))

    def get_state(self):
        return {}


DRAWN = {
    "tf.random": lambda: tf.random.uniform([]),
    "keras.random": lambda: keras.random.uniform([]),
    "a layer": lambda: tf.reduce_sum(keras.layers.Dense(1)(tf.ones([1, 2]))),
    "all": lambda: (
        keras.random.normal([]) + tf.random.normal([]) + np.random.rand() + random.random()
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_outside_graphs_go_on(name):
    def make(folder, hooks):
        config = trainer.TrainerConfig(folder, save_every_steps=5, seed=7)
        return Tuned(config, hooks=[Draws(DRAWN[name]), *hooks])

    testing.assert_resumes_exactly(make, steps=30, crashes=[4, 12, 23])


def test_unused_generators_are_in_no_checkpoint(make):
    program = make(max_steps=3)
    program.train()
    assert not {"trainer/random/tensorflow", "trainer/random/keras"} & set(program.state())


# What is not kept, and said.


class Forgets(trainer.Hook):
    """Counts, and keeps nothing."""

    def __init__(self, every=3):
        self.every, self.counts, self.rng = every, {"calls": 0}, np.random.default_rng(1)
        self.name_of_file = "x"

    def after_step(self, ctx):
        self.counts["calls"] += 1
        self.rng.random()


def test_a_hook_that_forgets_is_named_with_its_attributes(make, warned):
    program = make(hooks=[Forgets()])
    program.train(max_steps=9)
    (line,) = warned()
    assert line.startswith(
        "state of hook Forgets will not be kept: counts, rng changed in training"
    )
    program.train(max_steps=12)
    assert len(warned()) == 1


def test_hooks_that_only_look_on_are_not_named(make, warned):
    class Looks(trainer.Hook):
        def __init__(self):
            self.every, self.seen = 3, print

        def begin(self, ctx):
            self.started = ctx.step

        def after_step(self, ctx):
            self.every, self.seen = 3, lambda: ctx

    hooks = [Looks(), trainer.LogProgress(2), trainer.RollbackOnSpike("loss", 1e9)]
    make(hooks=hooks).train(max_steps=9)
    make(hooks=[Looks(), trainer.LogProgress(2), trainer.RollbackOnSpike("loss", 1e9)]).train(12)
    assert warned() == []


class Best(trainer.Hook):
    """Keeps the best of one output."""

    def __init__(self, of, name=None):
        self.of, self.best, self.name = of, None, name

    def after_step(self, ctx):
        self.best = (self.of, float(ctx.outputs[self.of]))

    def get_state(self):
        return {"best": self.best}

    def set_state(self, state):
        self.best = state["best"]


def test_hooks_that_change_places_are_named(make, warned):
    make(hooks=[Best("loss"), Best("x")], max_steps=3).train()
    make(hooks=[Best("loss"), Best("x")], max_steps=6).train()
    assert warned() == []
    make(hooks=[Best("x"), Best("loss")])
    first, second = warned()
    assert "hook Best has the settings that hook Best_1 had" in first
    assert "(of='x')" in first
    assert "Give each a name" in first
    assert "hook Best_1 has the settings that hook Best had" in second


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (["loss"], ["x", "loss"], 1),  # one put before it
        (["x", "loss"], ["loss"], 1),  # one taken away before it
        (["loss"], ["loss", "x"], 0),
        (["loss", "x"], ["loss"], 0),
        (["loss", "loss"], ["loss", "loss", "loss"], 0),
        (["loss"], ["x"], 0),  # another setting of the same hook
    ],
)
def test_hooks_that_come_and_go_among_their_kind(make, warned, before, after, lines):
    make(hooks=[Best(of) for of in before], max_steps=3).train()
    make(hooks=[Best(of) for of in after])
    assert len(warned()) == lines


def test_named_hooks_may_change_places(make, warned):
    make(hooks=[Best("loss", name="a"), Best("x", name="b")], max_steps=3).train()
    hooks = [Best("x", name="b"), Best("loss", name="a")]
    make(hooks=hooks)
    assert [hook.best[0] for hook in hooks] == ["x", "loss"]
    assert warned() == []


class Begins(trainer.Hook):
    """Does something at each start."""

    def __init__(self, what):
        self.what = what

    def begin(self, ctx):
        self.what(ctx)

    def get_state(self):
        return {}


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (lambda ctx: ctx.trainer.rate.assign_add(1.0), "changes rate"),
        (lambda ctx: random.random(), "draws from Python's global generator"),
        (lambda ctx: tf.random.uniform([]), "draws from TensorFlow's global generator"),
        (lambda ctx: ctx.trainer.rate.assign(ctx.trainer.rate), None),
        (lambda ctx: np.random.default_rng(1).random(), None),
    ],
)
def test_a_begin_that_does_again_what_is_done_once(make, warned, what, text):
    make(Tuned, hooks=[Begins(what)], max_steps=3).train()
    assert warned() == []
    make(Tuned, hooks=[Begins(what)], max_steps=6).train()
    lines = warned()
    assert len(lines) == (text is not None)
    assert text is None or f"begin of hook Begins {text}, at each start" in lines[0]


def test_an_after_save_that_comes_too_late(make, warned):
    class Late(trainer.Hook):
        def after_save(self, ctx):
            if ctx.saved_step == 6:
                ctx.trainer.rate.assign_add(1.0)

    program = make(Tuned, hooks=[Late()])
    program.train(max_steps=4)
    assert warned() == []
    program.train(max_steps=12)
    (line,) = warned()
    assert "after_save of hook Late changes rate; the checkpoint that was just written" in line


class Plain:
    """Of a class that nobody knows."""

    def __init__(self):
        self.inner = {"shadow": tf.Variable(0.0)}


@pytest.mark.parametrize("place", ["hook", "program", "set"])
def test_a_variable_out_of_reach_is_named_when_it_changes(make, warned, place):
    class Shadows(trainer.Hook):
        def __init__(self):
            self.plain, self.frozen = Plain(), Plain()
            self.held = {tf.Variable(0.0).ref()} if place == "set" else None

        def after_step(self, ctx):
            plain = ctx.trainer.plain if place == "program" else self.plain
            plain.inner["shadow"].assign_add(1.0)

        def get_state(self):
            return {}

    class Program(Summing):
        def build(self):
            super().build()
            self.plain = Plain()

    make(Program, hooks=[Shadows()]).train(max_steps=9)
    (line,) = warned()
    owner = "plain" if place == "program" else "Shadows.plain"
    assert f"the variable {owner}.inner['shadow'] is in no checkpoint" in line


def test_attributes_of_the_trainer_that_change(make, warned):
    class Counts(trainer.Hook):
        def after_step(self, ctx):
            ctx.trainer.calls += 1
            ctx.trainer.rows.append(ctx.step)

        def get_state(self):
            return {}

    class Program(Summing):
        def build(self):
            super().build()
            self.calls, self.rows, self.traced, self.built = 0, [], 0, False

        def train_step(self, x):
            self.traced += 1
            self.built = True
            return super().train_step(x)

    program = make(Program, hooks=[Counts()])
    (traced,) = warned()
    assert "train_step changes the attribute traced in Python" in traced
    program.train(max_steps=6)
    program.calls = 100  # the program's own matter, between two runs
    program.save()
    assert len(warned()) == 2
    assert "the trainer's attribute calls, rows changed in training" in warned()[1]


def test_the_looks_cost_nothing_between_saves(make, monkeypatch):
    from trainer.state import plain

    looks = []
    summaries = plain.summaries
    monkeypatch.setattr(plain, "summaries", lambda found: looks.append(1) or summaries(found))
    program = make(hooks=[Forgets()], save_every_steps=50)
    before = len(looks)
    program.train(max_steps=100)
    assert len(looks) - before == 2 * 3  # the hook and the program: at the beginning and two saves
