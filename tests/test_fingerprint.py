"""The program is another one at a restart: told in the user's words, and nothing if it is not."""

import json
import os
import pathlib
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

import trainer
from trainer.checkpoints import manifest, store
from trainer.commands import cli
from trainer.fingerprint import compare, settings, step, threads

from conftest import HERE, RUN, Summing, run_python
from support import programs

CAMPAIGN = bool(os.environ.get("CAMPAIGN"))
CHANGED = "the program is not the one that wrote checkpoint"


class Stepping(trainer.Trainer):
    """A step of one's own: `compute` takes the program and the batch, returns the loss."""

    compute = None
    prepare = None

    def build(self):
        self.w = tf.Variable(tf.ones((4, 4)))
        if type(self).prepare:
            type(self).prepare(self)

    def train_dataset(self):
        return trainer.data.Indexed(np.ones((32, 4), "float32"), batch_size=4, seed=1)

    def train_step(self, batch):
        with tf.GradientTape() as tape:
            loss = type(self).compute(self, batch)
        gradient = tape.gradient(loss, self.w)
        self.w.assign_sub(0.01 * gradient)
        return {"loss": loss}


def stepping(compute, prepare=None):
    return type("Stepping", (Stepping,), {"compute": compute, "prepare": prepare})


def plain(self, x):
    return tf.reduce_mean((x @ self.w - 1.0) ** 2)


def other_constant(self, x):
    return tf.reduce_mean((x @ self.w - 5.0) ** 2)


def another_operation(self, x):
    return tf.reduce_mean(tf.tanh(x @ self.w - 1.0) ** 2)


def one_way(self, x):
    return tf.reduce_mean(x @ self.w) + tf.reduce_mean(tf.exp(x) - tf.sin(x))


def other_way_round(self, x):
    return tf.reduce_mean(x @ self.w) + tf.reduce_mean(tf.sin(x) - tf.exp(x))


def looped(self, x):
    for _ in tf.range(3):
        x = 0.1 * x @ self.w
    return tf.reduce_mean((x - 1.0) ** 2)


def looped_with_more(self, x):
    for _ in tf.range(3):
        x = tf.sin(0.1 * x @ self.w)
    return tf.reduce_mean((x - 1.0) ** 2)


def line_of(function):
    return f'(File "{__file__}", line {function.__code__.co_firstlineno + 1})'


def projected(self, x):
    return tf.reduce_mean((x @ self.p @ self.w) ** 2)


def random_projection(program):
    program.p = tf.constant(np.random.default_rng().normal(size=(4, 4)), tf.float32)


def large_projection(program):
    values = np.random.default_rng().normal(size=(4, 400)).astype("float32")
    program.p = tf.matmul(values, values, transpose_b=True)[:, :4]
    program.all = tf.constant(np.tile(values, (1, 100)))


def projected_large(self, x):
    return tf.reduce_mean((x @ self.p @ self.w) ** 2) + tf.reduce_mean(self.all)


STEPS = {
    "constant": (
        (plain,),
        (other_constant,),
        f"train_step: constant 1.0 -> 5.0 {line_of(other_constant)}",
    ),
    "operation": (
        (plain,),
        (another_operation,),
        f"train_step: one more operation: Tanh {line_of(another_operation)}",
    ),
    "fewer": ((another_operation,), (plain,), "train_step: one fewer operation: Tanh"),
    "otherwise": (
        (one_way,),
        (other_way_round,),
        f"the same operations, put together otherwise, first Sub {line_of(other_way_round)}",
    ),
    "in a loop": ((looped,), (looped_with_more,), "one more operation: Sin"),
    "array": (
        (projected, random_projection),
        (projected, random_projection),
        "constant float32[4, 4] has other values",
    ),
    "large array": (
        (projected_large, large_projection),
        (projected_large, large_projection),
        "constant float32[4, 40000] has other values",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_another_step_is_told_with_its_line(name, make, said):
    before, now, text = STEPS[name]
    program = make(stepping(*before))
    program.train(steps=3)
    program.close()
    make(stepping(*now))
    assert text in said()
    assert said().count(CHANGED) == 1


def test_a_set_gone_through_in_another_order_is_told(folder):
    code = f"""
import numpy as np, tensorflow as tf, trainer
NAMES = {{"price", "age", "income", "height"}}
class P(trainer.Trainer):
    def build(self): self.names, self.w = list(NAMES), [tf.Variable([[1.0]]) for _ in NAMES]
    def train_dataset(self): return trainer.data.Indexed(np.ones((8, 4), "float32"), batch_size=8)
    def train_step(self, b):
        x = dict(zip(sorted(NAMES), tf.split(b, 4, 1)))
        loss = tf.reduce_mean(tf.add_n([x[n] @ w for n, w in zip(self.names, self.w)]))
        for w in self.w: w.assign_sub([[0.1]])
        return {{"loss": loss}}
with P(trainer.TrainerConfig({folder!r}, seed=7)) as p: p.train(steps=1)
print(p.names)
"""
    orders = []
    for seed in ("1", "1", "2"):
        result = run_python(code, env={"PYTHONHASHSEED": seed})
        orders.append((result.stdout, CHANGED in result.stderr))
        if seed == "2":
            assert "put together otherwise, first MatMul" in result.stderr
            assert "use sorted()" in result.stderr
    assert orders[0][0] == orders[1][0] != orders[2][0]  # else nothing was tried
    assert [told for _, told in orders] == [False, False, True]


def test_nothing_is_said_in_one_process(make, said):
    """Names that Keras numbers, and functions that TensorFlow numbers, are no difference."""
    for name in ("Adam", "Metric", "Subclassed", "Interleaved"):
        for _ in range(3):
            folder = f"{pathlib.Path(make.__closure__[0].cell_contents)}-{name}"
            with make(programs.PROGRAMS[name], model_dir=folder) as program:
                program.train(steps=2)
    assert CHANGED not in said()
    assert "changed since" not in said()


QUICK = ("Adam", "Interleaved")


@pytest.mark.parametrize("name", [n for n in programs.PROGRAMS if CAMPAIGN or n in QUICK])
def test_nothing_is_said_in_other_processes(name, folder, tmp_path):
    """Another hash seed, folder, number of processors, host name; the same program."""
    for start in range(4 if CAMPAIGN else 3):
        now = f"{folder}-{start}"
        if start:
            shutil.move(f"{folder}-{start - 1}", now)
        job = {"program": name, "folder": now, "kill_at": None, "settings": {"max_steps": 9}}
        code = f"import socket; socket.gethostname = lambda: 'host{start}'\n"
        if start % 2:
            code += "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        cwd = tmp_path / str(start)
        cwd.mkdir()
        env = {"PYTHONHASHSEED": str(start)}
        result = run_python(
            code + RUN.format(here=str(HERE)), json.dumps(job), env=env, cwd=str(cwd)
        )
        assert CHANGED not in result.stderr
        assert "changed since" not in result.stderr
        assert json.loads(result.stdout.splitlines()[-1])["restored"] == (9 if start else None)


def test_a_checkpoint_without_a_fingerprint_loads_without_a_word(tmp_path, said):
    for name in ("Adam", "OldKeras"):
        shutil.copytree(HERE / "golden" / name, tmp_path / name)
        assert store.Store(str(tmp_path / name)).manifest(4).fingerprint is None
        config = trainer.TrainerConfig(tmp_path / name, seed=7)
        with programs.PROGRAMS[name](config) as program:
            assert program.step == 4
    assert CHANGED not in said()
    assert "changed since" not in said()


def test_a_manifest_without_a_fingerprint_is_written_as_before():
    found = manifest.Manifest(3, 1.0, 7, {}, {}, [], 2.0, {})
    assert "fingerprint" not in json.loads(manifest.encode(found))
    assert manifest.decode(manifest.encode(found)) == found


CONFIGS = [
    ({"jit_compile": True}, "jit_compile False -> True", True),
    ({"on_nonfinite": "ignore"}, "on_nonfinite raise -> ignore", True),
    ({"save_every_steps": 2}, "changed since checkpoint 3: save_every_steps 3 -> 2", False),
    ({"max_steps": 50}, "", False),
]


@pytest.mark.parametrize(("now", "text", "warned"), CONFIGS)
def test_another_config_is_told(now, text, warned, make, said):
    program = make(Summing)
    program.train(steps=3)
    program.close()
    make(Summing, **now)
    assert (CHANGED in said()) is warned
    assert text in said()
    assert text or "changed since" not in said()


def own_flags(**values):
    holder = flags.FlagValues()
    for name, value in values.items():
        flags.DEFINE_string(name, value, "One of the program's.", flag_values=holder)
    flags.DEFINE_string("v", "x", "A library's.", flag_values=holder, module_name="absl.logging")
    holder(["program"])
    return holder


def test_flags_of_the_program_are_kept_and_secrets_are_not():
    found = own_flags(learning_rate="0.1", api_key="x", db_password="y", hf_token="z", job="7")
    config = trainer.TrainerConfig("x", private_flags=("jo?",))
    part = settings.read(config, found)
    assert part["flags"] == {"learning_rate": "0.1"}
    assert "model_dir" not in part["config"]
    assert part["config"]["save_overhead"] == 0.01
    later = settings.read(config, own_flags(learning_rate="0.01"))
    [told] = compare.differences({"settings": part}, {"settings": later})
    assert told == compare.Difference(compare.WARNING, "flag --learning_rate 0.1 -> 0.01")


def test_flags_of_a_program_that_is_restarted(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "import trainer\nfrom absl import flags\nfrom conftest import Summing\n"
        "flags.DEFINE_float('rate', 0.1, 'A rate.')\nflags.DEFINE_string('token', '', 'Secret.')\n"
        "trainer.app.run(Summing)\n"
    )
    code = (
        f"import runpy, sys; sys.argv[0] = {str(path)!r}\n"
        f"runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    run = f"--model_dir={tmp_path}/run"
    run_python(code, HERE, run, "--max_steps=2", "--token=a")
    same = run_python(code, HERE, run, "--max_steps=3", "--token=b")
    other = run_python(code, HERE, run, "--max_steps=4", "--rate=0.01")
    assert CHANGED not in same.stderr
    assert "flag --rate 0.1 -> 0.01" in other.stderr


MACHINE = {"TensorFlow": "2.21", "Python": "3.11", threads.KEY: 2, "instruction set": "x avx2"}


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("TensorFlow", "2.22", compare.WARNING),
        (threads.KEY, 4, compare.WARNING),
        ("instruction set", "x avx512f", compare.WARNING),
        ("TF_ENABLE_ONEDNN_OPTS", "0", compare.WARNING),
        ("Python", "3.12", compare.INFO),
    ],
)
def test_another_machine_is_told(name, value, level):
    [found] = compare.differences({"machine": MACHINE}, {"machine": {**MACHINE, name: value}})
    assert found == compare.Difference(level, f"{name} {MACHINE.get(name, 'unset')} -> {value}")


def test_show_and_diff_tell_it(make, folder, capsys):
    program = make(stepping(plain))
    program.train(steps=3)
    program.close()
    program = make(stepping(other_constant), save_every_steps=2)
    program.train(steps=3)
    program.close()
    assert cli.main(["show", folder, "3"]) == 0
    shown = capsys.readouterr().out
    for text in ("MADE OF", "Indexed(batch_size=4", "intra-op threads", "jit_compile"):
        assert text in shown
    assert cli.main(["diff", folder, "3", "6"]) == 1
    told = capsys.readouterr().out
    assert "train_step: constant 1.0 -> 5.0" in told
    assert "save_every_steps 3 -> 2" in told


# Threads.


def test_the_number_of_threads_is_taken_as_tensorflow_takes_it(monkeypatch):
    assert threads.used() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "5")
    assert threads.used() == 5


def test_the_kept_number_is_read_from_the_newest_manifest_that_can_be_read(make, folder):
    assert threads.kept(folder) is None
    program = make(Summing)
    program.train(steps=6)
    program.close()
    assert threads.kept(folder) == threads.used()
    (pathlib.Path(folder) / "ckpt-6" / "manifest.json").unlink()
    begun = time.perf_counter()
    assert threads.kept(folder) == threads.used()
    assert time.perf_counter() - begun < 0.005


def test_another_number_than_tensorflow_runs_with_is_told(make, said, monkeypatch):
    program = make(Summing)
    monkeypatch.setattr(threads, "_processors", lambda: 7)
    program.train(steps=3)
    program.close()
    make(Summing, intra_op_threads=3)
    assert "intra_op_threads=3 cannot be had, TensorFlow runs with 7" in said()
    assert "TF_NUM_INTRAOP_THREADS=3" in said()


CONVOLUTION = """
import os, sys
if sys.argv[4] != "all": os.sched_setaffinity(0, {int(sys.argv[4])})
import numpy as np, tensorflow as tf, trainer
images, labels = np.random.RandomState(1).rand(64, 16, 16, 3).astype("float32"), np.arange(64) % 10
class P(trainer.Trainer):
    def build(self):
        k = tf.keras.layers
        self.model = tf.keras.Sequential([tf.keras.Input((16, 16, 3)), k.Conv2D(16, 3),
            k.BatchNormalization(), k.Conv2D(16, 3), k.Flatten(), k.Dense(10)])
        self.optimizer = tf.keras.optimizers.Adam(1e-3)
    def train_dataset(self): return trainer.data.Indexed((images, labels), batch_size=32, seed=3)
    def train_step(self, batch):
        with tf.GradientTape() as tape:
            logits = self.model(batch[0], training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], logits))
        v = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, v), v))
        return {"loss": loss}
hooks = [trainer.testing.KillAt(int(sys.argv[3]))] if sys.argv[3] != "0" else []
config = trainer.TrainerConfig(sys.argv[1], max_steps=int(sys.argv[2]), save_every_steps=5, seed=7)
if sys.argv[5] == "early": tf.constant(1)
with P(config, hooks=hooks) as program:
    program.train()
    print(trainer.testing.state_digest(program))
"""


def convolution(folder, *, to=20, kill_at=0, processors="all", early=""):
    result = run_python(CONVOLUTION, folder, to, kill_at, processors, early, check=not kill_at)
    if kill_at:
        assert result.returncode == -9
    return result


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_a_run_goes_on_with_its_threads_on_a_machine_of_another_size(tmp_path):
    one = str(min(os.sched_getaffinity(0)))
    whole = convolution(tmp_path / "whole").stdout
    cut = tmp_path / "cut"
    convolution(cut, kill_at=7)
    convolution(cut, kill_at=13, processors=one)
    last = convolution(cut)
    assert last.stdout == whole
    small = convolution(tmp_path / "small", processors=one).stdout
    assert small != whole  # else the number decides nothing here
    late = convolution(cut, to=21, processors=one, early="early")
    assert "intra-op threads 2 -> 1" in late.stderr
    assert "TF_NUM_INTRAOP_THREADS=2" in late.stderr
    assert CHANGED not in last.stderr


def test_many_operations_are_read_quickly():
    """Ten thousand variables, as many updates: well below what tracing them takes."""

    variables = [tf.Variable(float(n)) for n in range(500)]

    def update(x):
        for variable in variables:
            variable.assign_sub(0.1 * x * variable)
        return {"x": x}

    begun = time.perf_counter()
    function = tf.function(update, autograph=False).get_concrete_function(tf.TensorSpec(()))
    traced = time.perf_counter() - begun
    begun = time.perf_counter()
    form = step.StepForm(function, {})
    assert time.perf_counter() - begun < 0.3 * traced
    assert form.saved["operations"]["AssignSubVariableOp"] == 500
    assert len(json.dumps(form.saved)) < 40_000
