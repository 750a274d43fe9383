"""The faults that users put their own programs through do what they say."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import trainer
from trainer import testing

from conftest import Summing


def test_signal_at(make):
    program = make(hooks=[testing.SignalAt(7)], save_every_steps=5, max_steps=10)
    assert program.train() == trainer.RunResult(7, "preempted", 75)
    program = make(hooks=[testing.SignalAt(8, signal.SIGINT)], save_every_steps=5, max_steps=10)
    assert program.train() == trainer.RunResult(8, "interrupted", 130)


def test_non_finite_at(make):
    program = make(hooks=[testing.NonFiniteAt(4)], max_steps=10)
    with pytest.raises(trainer.NonFiniteError, match="output 'loss' of step 5 is nan"):
        program.train()
    assert program.checkpoints == [3]


def test_non_finite_at_names_what_there_is(make):
    program = make(hooks=[testing.NonFiniteAt(4, "v")], max_steps=10)
    with pytest.raises(ValueError, match=r"no variable 'v' that can be NaN; there are \['w'\]"):
        program.train()


def test_full_disk(make, said):
    hook = testing.FullDisk(first=4, last=7)
    program = make(hooks=[hook], save_every_steps=3, max_steps=10)
    assert program.train().reason == "finished"
    assert program.checkpoints == [3, 9, 10]
    assert "1 of 4 saves failed" in said()
    program.save()


def test_slow_disk(make):
    program = make(hooks=[testing.SlowDisk(0.2)], save_every_steps=5, max_steps=5)
    program.train()
    text = (pathlib.Path(program.model_dir) / "journal.jsonl").read_text()
    assert '"event": "save", "step": 5' in text
    written = float(text.split('"write_secs": ')[1].split(",")[0])
    assert written > 0.2


@pytest.mark.parametrize("part", ["data", "index", "manifest"])
@pytest.mark.parametrize("how", ["flip", "truncate", "zero", "empty", "remove"])
def test_corrupt(make, folder, part, how):
    make(max_steps=6).train()
    path = testing.corrupt(os.path.join(folder, "ckpt-6"), how, part)
    assert path.startswith(folder)
    assert make(max_steps=9).restored_step == 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(("melt",), "how of"), (("flip", "name"), "part must be"), (("flip", "index"), "no index")],
)
def test_corrupt_checks_its_arguments(tmp_path, arguments, text):
    with pytest.raises(ValueError, match=text):
        testing.corrupt(str(tmp_path), *arguments)


def test_crashes_still_count(tmp_path):
    def make(folder, hooks):
        return Summing(trainer.TrainerConfig(folder, save_every_steps=2, seed=7), hooks=hooks)

    testing.assert_resumes_exactly(make, steps=9, crashes=[3, 8])


@pytest.mark.timeout(280)
def test_signals_and_kills_at_random_moments(cases):
    """A small part of `make chaos`; times are judged there, on a quiet machine."""
    here = pathlib.Path(__file__).parent
    said = subprocess.run(
        [sys.executable, "-m", "support.chaos", "6", "1"],
        cwd=here,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
        stdout=subprocess.PIPE,
        text=True,
        check=False,  # what it exits with depends on times
    ).stdout
    rows = [line.split("|")[1:3] for line in said.splitlines() if line.startswith("|")]
    seen = {name.strip(): value.strip() for name, value in rows}
    counts = {name.split(" ", 1)[1]: int(name.split()[0]) for name in seen if name[0].isdigit()}
    assert counts["SIGTERMs: steps lost"] >= 6
    assert counts["SIGKILLs: state unlike the unbroken run's"] >= 6
    for name in ("steps lost", "state unlike the unbroken run's"):
        assert {seen[key] for key in seen if key.endswith(name)} == {"0"}
    cases("stop signals at a random moment", 6)
    cases("kills at a random moment", 6)
