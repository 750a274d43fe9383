"""The journal: one line an event, a torn line harms nothing (K12)."""

import errno
import pathlib

import pytest

import trainer
from trainer import testing
from trainer.checkpoints import files
from trainer.journal import journal

from conftest import crash


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
