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
from trainer.base import shadow
from trainer.commands import cli

from conftest import HERE, Summing, run_python

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

    def run(*arguments, cwd=tmp_path):
        return subprocess.run(
            [sys.executable, str(path), *arguments],
            cwd=cwd,
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
    assert "Traceback" in broken.stderr  # an error of the program's own
    assert "RuntimeError: extra is reached" in broken.stderr
    assert "checkpoint 3 stands" in broken.stderr
    interrupted = program("--model_dir=other", "--max_steps=10", "--extra=1")
    assert interrupted.returncode == 130


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--max_step=10", "Did you mean: max_steps"),
        ("--steps=10", "Did you mean: max_steps"),
        ("--train_steps=10", "Did you mean: max_steps"),
        ("--max-step=10", "Did you mean: max_steps"),
        ("--checkpoint=x", "Unknown command line flag 'checkpoint'"),
        ("--max_steps=ten", "flag --max_steps=ten: it must be a whole number, such as 1000000"),
        ("--max_steps=1.5", "flag --max_steps=1.5: it must be a whole number, such as 1 or 2"),
        ("--seed=1e-3", "flag --seed=1e-3: it must be a whole number, such as 0 or 1"),
        ("--max_steps=nan", "flag --max_steps=nan: it must be a whole number"),
        ("--max_steps=1e999999999", "it is too large for a whole number"),
        ("--max_secs=long", "flag --max_secs=long: it must be a number, such as 0.5, 1_000_000"),
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
    shown = program("--help")
    assert shown.returncode == 0
    assert "Traceback" not in shown.stderr
    for text in ("--max_steps: Train steps in total", "(default: '3')", "--extra: A flag of the"):
        assert text in shown.stdout
    assert "alsologtostderr" not in shown.stdout
    assert "--helpfull shows the flags of every module." in shown.stdout
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
        "stop_signals": ["SIGTERM", "SIGINT", "SIGHUP"],
        "intra_op_threads": None,
        "private_flags": [],
        "deterministic": None,
    }


@pytest.mark.parametrize(
    ("text", "steps"),
    [("1e6", 1_000_000), ("1_000_000", 1_000_000), ("2.5e3", 2500), ("7.0", 7), ("0x10", 16)],
)
def test_numbers_as_people_write_them(text, steps):
    values = flags.FlagValues()
    app.define_flags(values)
    app.parse(["program", "--model_dir=x", f"--max_steps={text}", "--max_secs=1_0e1"], values)
    made = app.config_from_flags(values)
    assert (made.max_steps, made.max_secs) == (steps, 100.0)
    assert isinstance(made.max_steps, int)


def test_help_of_all_modules():
    values = flags.FlagValues()
    app.define_flags(values)
    flags.DEFINE_integer("deep", 1, "Of a library.", flag_values=values, module_name="absl.deep")
    assert "--deep" not in app.help_text("train.py", values)
    assert "--deep" in app.help_text("train.py", values, full=True)
    assert app.help_text("train.py", values).startswith("usage: train.py --model_dir=FOLDER")


def test_a_refusal_is_words_alone_and_a_file_of_our_name_is_named(program, tmp_path):
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    (cwd / "trainer.py").write_text("import trainer\n")
    result = program("--model_dir=run", "--max_steps=3", "--resume=required", cwd=cwd)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "resume='required' and no checkpoint was found in" in result.stderr
    assert f"{cwd / 'trainer.py'} has the name of this package" in result.stderr
    assert "rename it (the command `unbroken` works everywhere)" in result.stderr


class Own(Summing):
    def __init__(self, config, hooks=()):
        super().__init__(config, hooks=hooks)


class Calling(trainer.Hook):
    def after_step(self, ctx):
        ctx.trainer.save()


class Raising(trainer.Hook):
    def after_step(self, ctx):
        raise ValueError("of the program's own")


@pytest.mark.parametrize(
    ("run", "refusal"),
    [
        (lambda folder: Summing(trainer.TrainerConfig(folder)).train(), True),
        (lambda folder: trainer.Trainer(trainer.TrainerConfig(folder, max_steps=1)), True),
        (lambda folder: Own(trainer.TrainerConfig(folder, resume="required")), True),
        (lambda folder: Own(trainer.TrainerConfig(folder), [Calling()]).train(3), False),
        (lambda folder: Own(trainer.TrainerConfig(folder), [Raising()]).train(3), False),
    ],
)
def test_what_is_a_refusal(folder, run, refusal):
    with pytest.raises((trainer.TrainerError, ValueError, NotImplementedError)) as caught:
        run(folder)
    error = caught.value
    while error.__traceback__.tb_frame.f_code.co_filename == __file__ and (
        error.__traceback__.tb_frame.f_code.co_name in ("<lambda>", "test_what_is_a_refusal")
    ):
        error = error.with_traceback(error.__traceback__.tb_next)  # what is above app.run's main
    assert app._is_refusal(error) == refusal


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
    with pytest.raises(ValueError, match="there is no flag 'max_step' to set a default of. Did"):
        app._set_defaults({"max_step": 3})
    with pytest.raises(ValueError, match="Did you mean 'hooks'"):
        app._set_defaults({"hook": []})


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


@pytest.mark.parametrize("place", ["trainer.py", "trainer/__init__.py"])
def test_a_file_of_our_name_beside_a_program_that_is_to_be_proved(tmp_path, capsys, place):
    program, hiding = tmp_path / "program.py", tmp_path / place
    hiding.parent.mkdir(exist_ok=True)
    for path in (program, hiding):
        path.write_text(DIGITS)
    with pytest.raises(SystemExit):
        cli.main(["prove", f"{program}:Small", "--steps=1e1"])
    assert f"{hiding} has the name of this package" in capsys.readouterr().err


def test_our_own_folder_is_no_file_of_our_name():
    assert shadow.found(str(pathlib.Path(trainer.__file__).parent.parent)) is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["prove", "nowhere.py:Small", "--steps=3"], "is not FILE.py:CLASS with an existing file"),
        (["prove", __file__, "--steps=3"], "is not FILE.py:CLASS"),
        (["prove", f"{__file__}:X", "--steps=0"], "must be at least 1, got 0"),
        (["prove", f"{__file__}:X", "--steps=1.5"], "1.5: it must be a whole number"),
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
