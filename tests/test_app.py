"""The command lines: flags, exit status, `python -m trainer` (K16, and unknown flags)."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from absl import flags

import trainer
from trainer import app
from trainer.commands import cli

from conftest import HERE, run_python

PROGRAM = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from absl import flags
import trainer
from conftest import Summing
EXTRA = flags.DEFINE_integer("extra", 1, "A flag of the program's own.")
class Report(trainer.Hook):
    def end(self, ctx):
        print("w", float(ctx.trainer.w), "extra", EXTRA.value)
    def after_step(self, ctx):
        if ctx.step == EXTRA.value:
            raise RuntimeError("extra is reached") if EXTRA.value > 1 else KeyboardInterrupt
if __name__ == "__main__":
    trainer.app.run(Summing, hooks=lambda: [Report()], save_every_steps=3, seed=7)
"""


@pytest.fixture
def program(tmp_path):
    """Runs a program with flags: program(*flags) gives what came of it."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, str(path), *arguments],
            cwd=tmp_path,
            env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_run_and_its_own_flag(program):
    result = program("--model_dir=run", "--max_steps=10", "--extra=99")
    assert result.returncode == 0, result.stderr
    assert "w 55.0 extra 99" in result.stdout
    assert "no checkpoint in" in result.stderr  # seen at the default level
    again = program("--model_dir=run", "--max_steps=10", "--extra=99")
    assert again.returncode == 0
    assert "already at step 10 of 10" in again.stderr


def test_an_error_and_ctrl_c(program):
    broken = program("--model_dir=run", "--max_steps=10", "--extra=5")
    assert broken.returncode == 1
    assert "RuntimeError: extra is reached" in broken.stderr
    assert "checkpoint 3 stands" in broken.stderr
    interrupted = program("--model_dir=other", "--max_steps=10", "--extra=1")
    assert interrupted.returncode == 130


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--max_step=10", "Did you mean: max_steps"),
        ("--max_steps=ten", "flag --max_steps=ten"),
        ("--max_steps=0", "max_steps must be a whole number of at least 1 or None, got 0"),
        ("--resume=yes", "resume must be one of 'auto', 'required', 'never', got 'yes'"),
        ("resume", "what is 'resume'? Every argument must be a --flag=value"),
    ],
)
def test_bad_flags_end_with_2(flag, text):
    values = flags.FlagValues()
    app.define_flags(values)
    with pytest.raises(flags.Error) as caught:
        app.parse(["program", "--model_dir=run", flag], values)
    assert text in str(caught.value)


def test_bad_flags_in_a_process(program):
    result = program("--model_dir=run", "--max_step=10")
    assert result.returncode == 2
    assert "Unknown command line flag 'max_step'. Did you mean: max_steps" in result.stderr
    assert "Try --help" in result.stderr
    missing = program("--max_steps=10")
    assert missing.returncode == 2
    assert "model_dir must name the folder of the run, got None" in missing.stderr


def test_flags_are_the_configs_fields():
    """The list is public: a flag that goes or changes its default breaks a user's script."""
    values = flags.FlagValues()
    app.define_flags(values)
    assert {name: values[name].default for name in values} == {
        "model_dir": None,
        "max_steps": None,
        "epochs": None,
        "save_every_steps": None,
        "save_every_secs": None,
        "save_overhead": 0.01,
        "max_to_keep": 5,
        "keep_every_n_hours": None,
        "keep_program_values": [],
        "init_from": None,
        "resume": "auto",
        "steps_per_call": None,
        "jit_compile": False,
        "seed": None,
        "data_position": "auto",
        "async_save": True,
        "on_save_error": "warn",
        "on_nonfinite": "raise",
        "max_rollbacks": 3,
        "max_secs": None,
        "max_process_secs": None,
        "grace_secs": 30.0,
        "intra_op_threads": None,
        "private_flags": [],
    }


def test_flags_make_a_config():
    values = flags.FlagValues()
    app.define_flags(values)
    app.parse(
        [
            "program",
            "--model_dir=/tmp/run",
            "--max_to_keep=none",
            "--save_every_secs=2.5",
            "--jit_compile",
            "--keep_program_values=a/*,b",
            "--seed=3",
        ],
        values,
    )
    assert app.config_from_flags(values) == trainer.TrainerConfig(
        "/tmp/run",
        max_to_keep=None,
        save_every_secs=2.5,
        jit_compile=True,
        keep_program_values=("a/*", "b"),
        seed=3,
    )


def test_a_programs_flag_of_the_same_name_is_used():
    values = flags.FlagValues()
    flags.DEFINE_integer("max_steps", 77, "The program's own.", flag_values=values)
    app.define_flags(values)
    app.parse(["program", "--model_dir=/tmp/run"], values)
    assert app.config_from_flags(values).max_steps == 77


def test_a_default_for_no_flag():
    with pytest.raises(ValueError, match="there is no flag 'max_step' to set a default of"):
        app._set_defaults({"max_step": 3})


# python -m trainer


DIGITS = """
import tensorflow as tf
import trainer

class Small(trainer.Trainer):
    def build(self):
        self.w = tf.Variable(0.0)
        self.noise = tf.random.Generator.from_seed(3)
    def train_dataset(self):
        return tf.data.Dataset.range(1, 50).shuffle(20).batch(4)
    def train_step(self, batch):
        value = self.w + tf.reduce_sum(tf.cast(batch, tf.float32)) + self.noise.normal(())
        self.w.assign({value})
        return {"w": self.w}

class Forgetful(Small):
    def build(self):
        super().build()
        global COUNT
        COUNT = tf.Variable(0.0, name="count")
    def train_step(self, batch):
        COUNT.assign_add(1.0)
        return super().train_step(batch)
"""


def prove(tmp_path, capsys, value, name, *more):
    path = tmp_path / "program.py"
    path.write_text(DIGITS.replace("{value}", value))
    status = cli.main(["prove", f"{path}:{name}", "--steps=20", "--kills=2", *more])
    return status, capsys.readouterr().out


def test_proof_of_an_exact_program(tmp_path, capsys):
    status, text = prove(tmp_path, capsys, "value", "Small", "--", "--save_every_steps=4")
    assert status == 0, text
    assert "exact: " in text
    assert "names equal after 2 kills" in text
    assert "kill 2: armed at step" in text


def test_proof_fails_on_hidden_randomness(tmp_path, capsys):
    status, text = prove(tmp_path, capsys, "tf.nn.dropout(value, 0.5)", "Small", "--json")
    report = json.loads(text)
    assert status == 1
    assert report["exact"] is False
    assert any("RandomUniform" in line and "program.py:13" in line for line in report["report"])


def test_proof_of_a_forgotten_variable(tmp_path, capsys):
    status, text = prove(tmp_path, capsys, "value", "Forgetful")
    assert status == 1
    assert "not proved" in text
    assert "StateCoverageError" in text
    assert "count:0" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["prove", "nowhere.py:Small", "--steps=3"], "is not FILE.py:CLASS with an existing file"),
        (["prove", __file__, "--steps=3"], "is not FILE.py:CLASS"),
        (["prove", f"{__file__}:X", "--steps=0"], "must be at least 1, got 0"),
        (["prove", f"{__file__}:X", "--steps=3", "--kills=4"], "needs at least as many --steps"),
        (["proof"], "invalid choice: 'proof'"),
        ([], "COMMAND"),
    ],
)
def test_bad_usage(arguments, text, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_importing_has_no_effects_and_the_command_line_needs_no_tensorflow():
    code = """
import sys, logging
import trainer, trainer.commands.cli, trainer.checkpoints.store, trainer.config
import trainer.testing.pytest_plugin
assert "tensorflow" not in sys.modules and "absl" not in sys.modules
assert not logging.getLogger("trainer").handlers
import trainer.app, signal
from absl import flags
assert "max_steps" not in flags.FLAGS
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
print(trainer.Trainer.__name__, trainer.LogProgress.__name__, trainer.__version__)
"""
    assert run_python(code).stdout.startswith("Trainer LogProgress 0.")


def test_public_names():
    for name in trainer.__all__:
        assert getattr(trainer, name) is not None
    assert set(trainer.__all__) <= set(dir(trainer))
    with pytest.raises(AttributeError, match="module 'trainer' has no attribute 'nonsense'"):
        _ = trainer.nonsense
    assert pathlib.Path(trainer.__file__).with_name("py.typed").exists()
