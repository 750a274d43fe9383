"""The journal: one line an event, a torn line harms nothing (K12)."""

import errno
import pathlib
import signal

import pytest

import trainer
from trainer import testing
from trainer.checkpoints import files
from trainer.journal import goodput, heartbeat, journal

from conftest import HERE, crash, run_python


def events(folder):
    return journal.read(files.LocalFiles(), folder)


def test_a_life(make, folder):
    crash(make(hooks=[testing.CrashAt(8)]), max_steps=10)
    program = make(max_steps=10)
    program.train()
    program.restore(6)
    told = [(event["event"], event.get("step")) for event in events(folder)]
    assert told == [
        *(("start", None), ("train", 0), ("save", 3), ("save", 6), ("stop", 8)),
        *(("start", None), ("restore", 6), ("train", 6), ("save", 9), ("save", 10), ("stop", 10)),
        ("rewind", 6),
    ]
    assert events(folder)[4]["error"] == "SimulatedCrash: crash at step 8"
    assert events(folder)[3]["bytes"] > 0
    assert events(folder)[-1]["set_aside"] == [9, 10]


def test_lost_steps_are_told(make, folder):
    make(max_steps=9).train()
    pathlib.Path(folder, "ckpt-9", "state.index").unlink()
    make()
    assert events(folder)[-1]["event"] == "restore"
    assert (events(folder)[-1]["step"], events(folder)[-1]["steps_lost"]) == (6, 3)


@pytest.mark.parametrize("torn", [b'{"time": 1, "ev', b"\x00\xff", b"[]\n", b"\n\n"])
def test_a_torn_line(make, folder, torn):
    make(max_steps=3).train()
    path = pathlib.Path(folder, "journal.jsonl")
    before = len(events(folder))
    path.write_bytes(path.read_bytes() + torn)
    make(max_steps=6).train()
    assert [event["event"] for event in events(folder)[before:]] == [
        *("start", "restore", "train", "save", "stop")
    ]


def test_a_journal_that_cannot_be_written_stops_nothing(make, said, monkeypatch):
    def full(self, path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.LocalFiles, "append", full)
    assert make(max_steps=6).train() == trainer.RunResult(6, "finished")
    assert said().count("could not write") == 1


def test_hours_in_which_nothing_ran_are_idle():
    """`rollback` ten hours after a kill, or after the end: once those hours counted as lost."""
    run = [
        {"time": 0.0, "event": "start", "process_secs": 1.0},
        {"time": 1.0, "event": "train", "step": 0},
        {"time": 11.0, "event": "save", "step": 100, "write_secs": 0.0, "stall_secs": 0.0},
    ]
    rewind = {"time": 36011.0, "event": "rewind", "step": 100, "set_aside": []}
    assert goodput.report([*run, rewind]) == goodput.report(run)
    done = [*run, {"time": 12.0, "event": "stop", "reason": "finished", "step": 110}]
    assert goodput.report([*done, rewind]) == goodput.report(done)
    again = [
        {"time": 1012.0, "event": "train", "step": 110},
        {"time": 1020.0, "event": "stop", "reason": "finished", "step": 190},
    ]
    report = goodput.report([*done, *again])
    assert (report["secs"]["stepping"], report["secs"]["idle"]) == (19.0, 1000.0)
    assert sum(report["secs"].values()) == report["wall_secs"] == 1021.0


def test_a_clock_that_is_set_back_within_a_run():
    run = [
        {"time": 5000.0, "clock": 10.0, "event": "start", "process_secs": 1.0},
        {"time": 5001.0, "clock": 11.0, "event": "train", "step": 0},
        {"time": 1400.0, "clock": 20.0, "event": "save", "step": 90, "stall_secs": 1.0},
        {"time": 1411.0, "clock": 31.0, "event": "stop", "reason": "finished", "step": 200},
    ]
    secs = goodput.report(run)["secs"]
    assert (secs["starting"], secs["saving"], secs["stepping"]) == (2.0, 1.0, 19.0)


SLOW = """
import sys, time
sys.path.insert(0, {tests!r})
import trainer
from conftest import Summing

class Sleep(trainer.Hook):
    def after_step(self, ctx):
        time.sleep(0.02)

config = trainer.TrainerConfig(sys.argv[1], max_steps=130, save_every_steps=50, seed=7)
hooks = [Sleep(), trainer.testing.KillAt(120)] if len(sys.argv) > 2 else []
Summing(config, hooks=hooks).train()
"""


def test_what_a_kill_undid_is_known_without_a_supervisor(folder):
    """The heartbeat tells: once it was "steps_lost": 0."""
    program = SLOW.format(tests=str(HERE))
    killed = run_python(program, folder, "kill", check=False)
    assert killed.returncode == -signal.SIGKILL
    beat = heartbeat.read(files.LocalFiles(), folder)
    assert beat["newest"] in (50, 100)
    assert 50 <= beat["step"] <= 120
    found = goodput.report(journal.read(files.LocalFiles(), folder), beat=beat)
    assert found["steps_lost"] == [max(0, beat["step"] - 100)]
    run_python(program, folder)
    (restore,) = [event for event in events(folder) if event["event"] == "restore"]
    assert (restore["step"], restore["steps_lost"]) == (100, max(0, beat["step"] - 100))
    later = goodput.report(journal.read(files.LocalFiles(), folder))
    assert later["steps_lost"] == found["steps_lost"]
    assert heartbeat.read(files.LocalFiles(), folder)["step"] == 130


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"time": 1}', b'{"time": 1, "step": NaN}', b"[" * 5000, b"x" * 20000],
)
def test_a_heartbeat_that_somebody_spoilt(make, folder, content):
    pathlib.Path(folder).mkdir()
    (pathlib.Path(folder) / "heartbeat.json").write_bytes(content)
    assert heartbeat.read(files.LocalFiles(), folder) is None
    assert make(max_steps=3).train().step == 3


@pytest.mark.parametrize("number", ["Infinity", "NaN", "1" + "0" * 400])
def test_a_number_that_somebody_spoilt_is_no_reason_to_fail(make, folder, number):
    make(max_steps=3).train()
    path = pathlib.Path(folder, "journal.jsonl")
    line = f'{{"time": {number}, "event": "save", "step": {number}, "write_secs": {number}}}\n'
    path.write_text(path.read_text() + line)
    assert make(save_every_steps=None, max_steps=6).train().step == 6
    assert goodput.report(journal.read(files.LocalFiles(), folder))["attempts"] == 2
