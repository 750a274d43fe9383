"""What the tests share: the summing program, runs of it, and what a user sees of them."""

import collections
import ctypes
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest
import tensorflow as tf

import trainer

HERE = pathlib.Path(__file__).parent


class Summing(trainer.Trainer):
    """One weight w from 0; each step adds the next of 1, 2, 3, … to it: w is n(n+1)/2 after n."""

    traces = 0
    last = 1000

    def build(self):
        self.w = tf.Variable(0.0)

    def train_dataset(self):
        return tf.data.Dataset.range(1, self.last + 1).map(lambda x: tf.cast(x, tf.float32))

    def train_step(self, x):
        type(self).traces += 1
        loss = -self.w * x
        self.w.assign_add(x)  # the gradient of -w * x is -x, the rate is 1
        return {"loss": loss, "x": x}


@pytest.fixture(autouse=True, scope="session")
def _iterators_stay():
    """Keeps iterators from being destroyed: TensorFlow 2.21 may wait a minute for that.

    Its destructor waits for the autotuner's thread, which now and then misses the call to end and
    sleeps on (seen in tensorflow::data::model::Model::OptimizeLoop).
    """
    make_iterator = tf.data.Dataset.__iter__

    def keep(dataset):
        iterator = make_iterator(dataset)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(iterator))
        return iterator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.data.Dataset, "__iter__", keep)
        yield


@pytest.fixture
def cases(record_property):
    """Reports how many crashes or damages a test went through: cases(kind, count)."""
    return lambda kind, count: record_property("cases", (kind, count))


def pytest_terminal_summary(terminalreporter):
    """Prints the sums at the end, so that a campaign that ran no case shows."""
    sums = collections.Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == "cases":
                sums[value[0]] += value[1]
    for kind, count in sorted(sums.items()):
        terminalreporter.write_line(f"{count:>7,} {kind}, 0 lost")


@pytest.fixture
def folder(tmp_path):
    """A folder for one run."""
    return str(tmp_path / "run")


@pytest.fixture
def make(folder):
    """Makes a trainer in `folder`: make(Class, hooks, **settings)."""
    made = []

    def construct(cls=Summing, hooks=(), **settings):
        settings.setdefault("model_dir", folder)
        settings.setdefault("save_every_steps", 3)
        settings.setdefault("seed", 7)
        made.append(cls(trainer.TrainerConfig(**settings), hooks=hooks))
        return made[-1]

    yield construct
    for program in made:
        program.close()


@pytest.fixture
def said(caplog):
    """Returns all that was logged so far, at the default level."""
    caplog.set_level(logging.INFO, logger="trainer")
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


def crash(program, **how):
    """Trains until the simulated crash, which must happen."""
    with pytest.raises(trainer.testing.SimulatedCrash):
        program.train(**how)


def run_python(code, *arguments, cwd=None, env=None, check=True):
    """Runs Python code in a process of its own and returns what came of it."""
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", **(env or {}))
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd or tempfile.gettempdir(),  # never the source folder: what is installed is tested
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if check and result.returncode != 0:
        raise AssertionError(f"status {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result


RUN = """
import json, sys
sys.path.insert(0, {here!r})
import trainer
from support import programs
job = json.loads(sys.argv[1])
hooks = [trainer.testing.KillAt(job["kill_at"])] if job["kill_at"] else []
hooks += programs.HOOKS[job["program"]]() if job["program"] in programs.HOOKS else []
settings = dict(save_every_steps=3, seed=7)
settings.update(job["settings"])
program_class = programs.PROGRAMS_OF_TESTS[job["program"]]
program = program_class(trainer.TrainerConfig(job["folder"], **settings), hooks=hooks)
restored = program.restored_step
result = program.train()
print(json.dumps(dict(step=result.step, reason=result.reason, restored=restored,
                      values=programs.values(program), traces=type(program).traces,
                      digests=trainer.testing.state_digests(program))))
"""


def run_process(program, folder, *, kill_at=None, **settings):
    """Trains a program of `programs.py` in a process of its own; with `kill_at`, it must die there.

    Returns what the run reports, with its log under "log"; None after a kill.
    """
    job = {"program": program, "folder": folder, "kill_at": kill_at, "settings": settings}
    result = run_python(RUN.format(here=str(HERE)), json.dumps(job), check=False)
    if kill_at is not None:
        assert result.returncode == -signal.SIGKILL, result.stderr
        return None
    assert result.returncode == 0, result.stderr
    return {**json.loads(result.stdout.splitlines()[-1]), "log": result.stderr}
