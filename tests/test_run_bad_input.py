"""Bad input gets a message with what was seen, the value and what to do, and loses nothing."""

import collections
import functools
import os
import pathlib

import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.graph import specs, way

from conftest import Summing, run_python


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1 or None, got 0"),
        ({"max_steps": -3}, "max_steps must be a whole number of at least 1 or None, got -3"),
        ({"max_steps": 2.5}, "max_steps must be a whole number"),
        ({"max_steps": True}, "max_steps must be a whole number"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1 or None, got 0"),
        ({"save_every_steps": 0}, "save_every_steps must be a whole number"),
        ({"save_every_secs": 0}, "save_every_secs must be a number above 0 or None, got 0"),
        ({"save_every_secs": float("nan")}, "save_every_secs must be a number above 0"),
        ({"save_overhead": 1}, "save_overhead must be above 0 and below 1, got 1"),
        ({"max_to_keep": 0}, "max_to_keep must be a whole number of at least 1 or None, got 0"),
        ({"max_to_keep": -1}, "max_to_keep must be a whole number"),
        ({"keep_every_n_hours": -1}, "keep_every_n_hours must be a number above 0"),
        ({"steps_per_call": 0}, "steps_per_call must be a whole number"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 2**31}, "seed must be a whole number from 0"),
        ({"resume": "yes"}, "resume must be one of 'auto', 'required', 'never', got 'yes'"),
        ({"on_save_error": "ignore"}, "on_save_error must be one of 'warn', 'raise', got 'ignore'"),
        (
            {"on_nonfinite": "skip"},
            "on_nonfinite must be one of 'raise', 'rollback', 'ignore', got 'skip'",
        ),
        ({"max_rollbacks": 0}, "max_rollbacks must be a whole number of at least 1"),
        ({"max_secs": 0}, "max_secs must be a number above 0 or None, got 0"),
        ({"grace_secs": None}, "grace_secs must be a number of at least 0, got None"),
        ({"grace_secs": -1}, "grace_secs must be a number of at least 0, got -1"),
        ({"keep_program_values": "w"}, "keep_program_values must be a sequence of patterns"),
    ],
)
def test_settings(settings, text):
    with pytest.raises(ValueError) as caught:
        trainer.TrainerConfig("folder", **settings)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_step", "Did you mean 'max_steps'?"),
        ("steps", "Did you mean 'max_steps' or 'save_every_steps' or 'steps_per_call'?"),
        ("save_steps", "Did you mean 'save_every_steps'"),
        ("modeldir", "Did you mean 'model_dir'?"),
        ("lr", "There are model_dir, max_steps, epochs,"),
    ],
)
def test_settings_that_are_not_there(name, meant):
    with pytest.raises(TypeError) as caught:
        trainer.TrainerConfig("folder", **{name: 3})
    text = f"TrainerConfig() got an unexpected keyword argument {name!r}. {meant}"
    assert str(caught.value).startswith(text)


def test_a_float_that_is_whole_is_told_how_to_write_it():
    with pytest.raises(ValueError, match="got 1000000.0: write 1000000"):
        trainer.TrainerConfig("folder", max_steps=1e6)


@pytest.mark.parametrize("folder", [None, "", "  ", 3])
def test_folders_that_are_none(folder):
    with pytest.raises(ValueError, match="model_dir must"):
        trainer.TrainerConfig(folder)


def test_settings_do_not_change():
    config = trainer.TrainerConfig("folder")
    with pytest.raises(AttributeError):
        config.max_steps = 3
    assert config.model_dir == os.path.abspath("folder")


def outputs(value):
    class Returning(Summing):
        def train_step(self, x):
            self.w.assign_add(x)
            return value(x)

    return Returning


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda x: x, "train_step returned float32 of shape (); return a dict of scalars"),
        (lambda x: None, "train_step returned None; return a dict of scalars"),
        (lambda x: [x], "train_step returned list; return a dict"),
        (lambda x: {"x": [x, x]}, "output 'x' of train_step is list; return a scalar"),
        (lambda x: {"x": tf.stack([x, x])}, "output 'x' of train_step is float32 of shape (2,)"),
        (lambda x: {"x": tf.constant("a")}, "output 'x' of train_step is string of shape ()"),
        (lambda x: {3: x}, "train_step returned the key 3; name its outputs with texts"),
    ],
)
def test_outputs_of_the_step(make, folder, value, text):
    make(max_steps=3).train()
    with pytest.raises(ValueError) as caught:
        make(outputs(value))
    assert text in str(caught.value)
    assert make().restored_step == 3


def test_an_empty_dict_is_fine(make):
    program = make(outputs(lambda x: {}), max_steps=4)
    assert program.train().step == 4


def dataset(value):
    class Data(Summing):
        def train_dataset(self):
            return value()

    return Data


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda: [1, 2], "train_dataset() returned list; return a tf.data.Dataset"),
        (lambda: None, "train_dataset() returned NoneType; return a tf.data.Dataset"),
        (lambda: tf.data.Dataset.range(0), "train_dataset() returned an empty dataset"),
        (lambda: tf.data.Dataset.range(3).batch(5, drop_remainder=True), "an empty dataset"),
    ],
)
def test_datasets(make, value, text):
    with pytest.raises(ValueError) as caught:
        make(dataset(value))
    assert text in str(caught.value)


def test_a_dataset_that_turns_out_empty(make, folder):
    nothing = tf.data.Dataset.range(5).map(lambda x: tf.cast(x, tf.float32)).filter(lambda x: x > 9)
    program = make(dataset(lambda: nothing), max_steps=3)
    with pytest.raises(ValueError, match="gave no batch"):
        program.train()
    assert program.checkpoints == []


@pytest.mark.parametrize("value", [0, -1, 2.0, True])
def test_limits_of_train(make, value):
    program = make()
    for name in ("max_steps", "steps"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
            program.train(**{name: value})
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1"):
        program.evaluate(steps=value)


def test_model_dir_is_a_file(make, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ValueError, match="is a file, or lies below one; name a folder"):
        make(model_dir=path)
    with pytest.raises(ValueError, match="is a file, or lies below one; name a folder"):
        make(model_dir=path / "below")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("below", ["", "run", "a/b"])
def test_model_dir_is_a_link_that_leads_nowhere(make, tmp_path, below):
    link, disk = tmp_path / "link", tmp_path / "disk"
    link.symlink_to(disk)
    text = f"{link} is a link to {disk}, which is not there; mount the disk that it is on"
    with pytest.raises(ValueError, match=text) as caught:
        make(model_dir=link / below)
    assert "is a file" not in str(caught.value)
    assert not disk.exists()
    disk.mkdir()
    make(model_dir=link / below, max_steps=3).train()


def test_model_dir_is_a_link_to_itself(make, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "link")
    with pytest.raises(ValueError, match="leads nowhere: .* is a link to "):
        make(model_dir=tmp_path / "link")


def test_model_dir_is_not_writable(make):
    with pytest.raises(ValueError, match="is not writable .*name a folder that this user may"):
        make(model_dir="/proc/self/fdinfo/run")


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (print, "a hook must be an instance of trainer.Hook, got <built-in function print>"),
        (trainer.LogProgress, "(a class: write its parentheses)"),
        (trainer.LogProgress(0), "every_steps of LogProgress must be a whole number"),
        (trainer.LogProgress(2.5), "every_steps of LogProgress must be a whole number"),
    ],
)
def test_hooks(make, hook, text):
    with pytest.raises(ValueError) as caught:
        make(hooks=[hook])
    assert text in str(caught.value)
    program = make()
    with pytest.raises(ValueError) as caught:
        program.register_hook(hook)
    assert text in str(caught.value)


def test_hooks_that_are_no_list(make):
    with pytest.raises(ValueError, match="hooks must be a list of hooks"):
        make(hooks=trainer.LogProgress())


def test_two_hooks_of_one_name(make):
    first, second = trainer.LogProgress(), trainer.LogProgress()
    first.name = second.name = "progress"
    with pytest.raises(ValueError, match="two hooks have the name 'progress'"):
        make(hooks=[first, second])


class Box:
    def __init__(self, value):
        self.value_inside = value


@pytest.mark.parametrize("container", [Box, lambda variable: {variable.ref()}])
def test_variables_out_of_reach(make, container):
    class Hidden(Summing):
        def build(self):
            self.box = container(tf.Variable(0.0, name="hidden"))

        def train_step(self, x):
            inside = (
                next(iter(self.box)).deref()
                if isinstance(self.box, set)
                else (self.box.value_inside)
            )
            inside.assign_add(x)
            return {"x": x}

    with pytest.raises(trainer.StateCoverageError) as caught:
        make(Hidden)
    assert caught.value.missing == ["hidden:0"]
    if container is Box:
        assert "hidden:0: in attribute box (Box), which cannot be looked into" in str(caught.value)
        assert "make it a tf.Module, list or dict" in str(caught.value)


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


@pytest.mark.parametrize(
    ("hold", "where", "path"),
    [
        (lambda v: collections.deque([v]), "box (deque)", "box[0]"),
        (lambda v: [collections.deque([v])], "box[0] (deque)", "box[0][0]"),
        (lambda v: {("a", 1): v}, "box (dict with a tuple as key)", "box[('a', 1)]"),
        (lambda v: {"a": {2.5: v}}, "box['a'] (dict with a float as key)", "box['a'][2.5]"),
        (lambda v: Box(Box([v])), "box (Box)", "box.value_inside.value_inside[0]"),
        (Slotted, "box (Slotted)", "box.held"),
        (lambda v: functools.partial(print, v), "box (partial)", "box.args[0]"),
        (lambda v: lambda: v, "box (function)", "box > v"),
        (lambda v: Box(v).__init__, "box (method)", "box.__self__.value_inside"),
        (lambda v: {v.ref()}, "box (set)", "box{...}._wrapped"),
    ],
)
def test_what_hides_a_variable_is_named(hold, where, path):
    variable = tf.Variable(0.0)
    found = way.way_to(id(variable.handle), {"other": [1, "a"], "box": hold(variable)})
    assert (f"{found.holder} ({found.kind})", found.path) == (where, path)
    assert way.way_to(id(tf.Variable(0.0).handle), {"box": hold(variable)}) is None


def test_an_average_hides_its_variables(make):
    class Averaging(Summing):
        def build(self):
            super().build()
            self.average = tf.train.ExponentialMovingAverage(0.9)
            self.average.apply([self.w])

        def train_step(self, x):
            self.average.apply([self.w])
            return super().train_step(x)

    with pytest.raises(trainer.StateCoverageError) as caught:
        make(Averaging)
    assert "in attribute average (ExponentialMovingAverage), which cannot be" in str(caught.value)
    assert "through an ExponentialMovingAverage; make it a tf.Module, list or" in str(caught.value)
    assert "no attribute leads to it" not in str(caught.value)


COUNT = tf.Variable(0.0, name="count")


def test_where_else_a_variable_is(make):
    class Shared(Summing):
        shared = tf.Variable(0.0, name="shared")
        around = tf.Variable(0.0, name="around")

    around = Shared.around
    del Shared.around

    class Forgetful(Shared):
        def train_step(self, x):
            for variable in (COUNT, self.shared, around):
                variable.assign_add(1.0)
            return super().train_step(x)

    with pytest.raises(trainer.StateCoverageError) as caught:
        make(Forgetful)
    for text in (
        "count:0: it is the global COUNT, no attribute; write self.<name> = ",
        "shared:0: it is the class attribute Shared.shared, no attribute; write",
        "around:0: it is around of the function around it, no attribute; write",
    ):
        assert text in str(caught.value)


def test_a_constructor_that_forgets_its_base(folder):
    class Forgetful(Summing):
        def __init__(self, config):
            self.rate = 1.0

    program = Forgetful(trainer.TrainerConfig(folder))
    for use in (lambda: program.train(), lambda: program.step, lambda: program.save()):
        with pytest.raises(trainer.TrainerError) as caught:
            use()
        assert "Forgetful is not constructed" in str(caught.value)
        assert "super().__init__(config, hooks=hooks, strategy=strategy)" in str(caught.value)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = program.nonsense


def test_methods_that_are_missing(make):
    class Nothing(trainer.Trainer):
        pass

    with pytest.raises(NotImplementedError, match="Nothing must define train_dataset"):
        make(Nothing)
    with pytest.raises(NotImplementedError, match="Summing must define eval_dataset"):
        make().evaluate()


def test_config_and_strategy(make, folder):
    with pytest.raises(ValueError, match="config must be a trainer.TrainerConfig, got 'folder'"):
        Summing("folder")
    with pytest.raises(ValueError, match="strategy MirroredStrategy is not available"):
        Summing(trainer.TrainerConfig(folder), strategy=tf.distribute.MirroredStrategy(["CPU:0"]))
    device = tf.distribute.OneDeviceStrategy("CPU:0")
    with Summing(trainer.TrainerConfig(folder, max_steps=4), strategy=device) as program:
        assert program.train().step == 4
        assert float(program.w) == 10


def test_a_failed_construction_gives_the_folder_back(make, folder):
    with pytest.raises(ValueError, match="train_step returned"):
        make(outputs(lambda x: None))
    code = f"""
import fcntl
fcntl.flock(open({folder!r} + "/LOCK"), fcntl.LOCK_EX | fcntl.LOCK_NB)
print("free")
"""
    assert "free" in run_python(code).stdout


def test_a_crash_that_does_not_happen_fails_the_check(tmp_path):
    def make_one(folder, hooks):
        return Summing(trainer.TrainerConfig(folder, save_every_steps=3, seed=7), hooks=hooks)

    with pytest.raises(AssertionError, match="the crash at step 12 did not happen"):
        testing.assert_resumes_exactly(make_one, steps=10, crashes=[12])
    testing.assert_resumes_exactly(make_one, steps=10, crashes=2)


def test_an_inexact_program_fails_the_check(tmp_path):
    made = []

    class Cheating(Summing):
        def build(self):
            super().build()
            made.append(self)
            self.offset = float(len(made))

        def train_step(self, x):
            return super().train_step(x + self.offset)

    def make_one(folder, hooks):
        return Cheating(trainer.TrainerConfig(folder, save_every_steps=3, seed=7), hooks=hooks)

    with pytest.raises(AssertionError, match="'w' differs from the unbroken run's at step 10"):
        testing.assert_resumes_exactly(make_one, steps=10, crashes=[4])


def test_nothing_on_the_disk_is_lost(make, folder):
    make(max_steps=6).train()
    before = sorted(map(str, pathlib.Path(folder).rglob("*")))
    for bad in (outputs(lambda x: None), dataset(lambda: None)):
        with pytest.raises(ValueError):
            make(bad)
    assert sorted(map(str, pathlib.Path(folder).rglob("*"))) == before


# While the step is traced


IMAGES = {"image": tf.zeros((100, 64)), "label": tf.zeros((100,), tf.int64)}


class Traced(trainer.Trainer):
    def build(self):
        self.w = tf.Variable(0.0)

    def train_dataset(self):
        return tf.data.Dataset.from_tensor_slices(IMAGES).batch(50, drop_remainder=True)

    eval_dataset = train_dataset

    def train_step(self, batch):
        return {"w": self.w.assign_add(1.0)}


def variable(self, batch):
    return {"w": tf.Variable(1.0) + self.w}


def layer(self, batch):
    self.dense = tf.keras.layers.Dense(3)
    return {"w": tf.reduce_mean(self.dense(batch["image"]))}


def metric(self, batch):
    return {"w": tf.keras.metrics.Mean()(self.w)}


def optimizer(self, batch):
    tf.keras.optimizers.Adam().apply_gradients([(self.w, self.w)])
    return {"w": self.w.read_value()}


def generator(self, batch):
    return {"w": tf.random.Generator.from_seed(1).normal(())}


@pytest.mark.parametrize("step", [variable, layer, metric, optimizer, generator])
def test_variables_made_in_a_step(make, step):
    with pytest.raises(ValueError) as caught:
        make(type("Making", (Traced,), {"train_step": step}))
    assert caught.value.__notes__ == [
        'raised while train_step was traced with batch: {"image": float32[50, 64], '
        '"label": int64[50]}',
        "train_step is compiled once: make variables, layers and metrics in build()",
    ]


@pytest.mark.parametrize("name", ["train_step", "eval_step"])
def test_an_error_while_tracing_names_the_batch(make, name):
    with pytest.raises(KeyError) as caught:
        make(type("Typing", (Traced,), {name: lambda self, b: {"x": b["imag"]}})).evaluate()
    (note,) = caught.value.__notes__
    assert note.startswith(f"raised while {name} was traced with batch: {{")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (tf.TensorSpec(()), "float32[]"),
        (tf.TensorSpec(None, tf.string), "string[...]"),
        ((tf.TensorSpec((None, 3)),), "(float32[None, 3],)"),
        ([tf.TensorSpec((2,)), {"a": tf.TensorSpec((), tf.bool)}], '[float32[2], {"a": bool[]}]'),
        (tf.RaggedTensorSpec((2, None), tf.int32), "RaggedTensor(int32[2, None])"),
        (tf.SparseTensorSpec((2, 3), tf.int32), "SparseTensor(int32[2, 3])"),
    ],
)
def test_types_in_words(spec, text):
    assert specs.written(spec) == text


# Names of a program's own


@pytest.mark.parametrize("place", ["build", "train_dataset", "train_step"])
def test_attributes_that_come_after_the_constructor_of_the_base(folder, place):
    class Late(Summing):
        def __init__(self, config):
            super().__init__(config)
            self.width = 10

    def use(self, *batch):
        return getattr(super(Late, self), place)(*batch, *[][: self.width])

    setattr(Late, place, use)
    with pytest.raises(AttributeError, match="'Late' object has no attribute 'width'") as caught:
        Late(trainer.TrainerConfig(folder))
    assert (
        "super().__init__() calls build(), train_dataset() and train_step(), so set what they use "
        "in the lines before it, or in build()"
    ) in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["step", "config", "seed", "model_dir", "checkpoints", "save", "train", "close", "state"],
)
def test_reserved_names(make, folder, name):
    text = rf"hides Trainer\.{name}, a name that is reserved.*; give it another name, such as self"

    class Early(Summing):
        def __init__(self, config):
            setattr(self, name, 3)
            super().__init__(config)

    class Building(Summing):
        def build(self):
            super().build()
            setattr(self, name, 3)

    with pytest.raises(ValueError, match=text):
        Early(trainer.TrainerConfig(folder))
    with pytest.raises(ValueError, match=text):
        make(Building)
    for value in (3, lambda self: 3, property(lambda self: 3)):
        with pytest.raises(ValueError, match=rf"Own\.{name} overrides Trainer\.{name}, a name"):
            make(type("Own", (Summing,), {name: value}))
    assert not os.path.exists(os.path.join(folder, "journal.jsonl"))


def test_what_is_there_already_need_not_be_set(folder):
    class Usual(Summing):
        def __init__(self, config):
            self.config = config
            super().__init__(config)

    with pytest.raises(ValueError, match=r"reserved; self\.config is there without it; give"):
        Usual(trainer.TrainerConfig(folder))


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("training_step", "the trainer calls train_step; rename it"),
        ("trian_step", "the trainer calls train_step; rename it"),
        ("validation_step", "the trainer calls eval_step; rename it"),
        ("test_step", "the trainer calls eval_step; rename it"),
        ("train_dataloader", "the trainer calls train_dataset; rename it"),
        ("val_dataset", "the trainer calls eval_dataset; rename it"),
        ("configure_optimizers", "the trainer calls build; rename it"),
        ("on_epoch_end", "is after_step of a trainer.Hook, which looks at ctx.epoch_ended"),
        ("on_train_begin", "what does that here is begin of a trainer.Hook"),
        ("on_fit_end", "what does that here is end of a trainer.Hook"),
        ("on_train_batch_start", "what does that here is before_step of a trainer.Hook"),
        ("after_step", "after_step is a method of trainer.Hook, not of the trainer"),
    ],
)
def test_methods_that_nothing_calls(make, said, caplog, name, advice):
    make(type("Own", (Summing,), {name: lambda self, *_: None}))
    assert f"nothing calls Own.{name}: " in said()
    assert advice in said()
    assert [r.levelname for r in caplog.records if "nothing calls" in r.message] == ["WARNING"]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("on_epoch_end", "is after_step of a trainer.Hook, which looks at ctx.epoch_ended"),
        ("on_step_end", "what does that here is after_step of a trainer.Hook"),
        ("after_steps", "hooks are called by after_step; rename it"),
        ("before_run", "what does that here is begin of a trainer.Hook"),
        ("on_save_checkpoint", "what does that here is after_save of a trainer.Hook"),
    ],
)
def test_methods_of_hooks_that_nothing_calls(make, said, name, advice):
    hook = type("Watching", (trainer.Hook,), {name: lambda self, *_: None})
    make(hooks=[hook()])
    make().register_hook(hook())
    assert said().count(f"nothing calls Watching.{name}: ") == 2
    assert advice in said()


def by_a_function(program):
    program.test_step()


def test_helpers_of_a_programs_own_are_left_alone(make, said):
    class Own(Summing):
        def train_step(self, x):
            return self.compute_loss(self.training_step(x))

        def training_step(self, x):
            return super().train_step(x)

        def compute_loss(self, outputs):
            later = lambda: self.on_epoch_end(outputs)  # noqa: E731
            return later()

        def on_epoch_end(self, outputs):
            return outputs

        def validation_step(self, x):
            return x

        def loss(self, x):
            return x

        def build_model(self):
            return None

        @property
        def learning_rate(self):
            return 1.0

        def test_step(self):
            return None

    class Watching(trainer.Hook):
        def after_step(self, ctx):
            self.on_improvement(ctx.trainer.validation_step(1))
            by_a_function(ctx.trainer)

        def on_improvement(self, value):
            return value

    make(Own, hooks=[Watching(), trainer.LogProgress()], max_steps=3).train()
    assert "nothing calls" not in said()
