"""The commands that look at a run folder and put it in order."""

import json
import os
import pathlib
import shutil

import pytest

import trainer
from trainer.checkpoints import commit, store
from trainer.commands import cli

from conftest import run_python


@pytest.fixture
def command(folder, capsys):
    """Runs a command on the run folder: command(name, *rest) gives status and output."""

    def run(name, *rest):
        capsys.readouterr()
        status = cli.main([name, folder, *map(str, rest)])
        return status, capsys.readouterr().out

    return run


def as_json(command, *words):
    status, text = command(*words, "--json")
    return status, json.loads(text)


@pytest.fixture
def run(make):
    """A finished run with checkpoints 3, 6, 9 and 10."""
    with make(max_steps=10, max_to_keep=None) as program:
        program.train()


def spoil(folder, step):
    pathlib.Path(folder, f"ckpt-{step}", "state.index").write_bytes(b"x")


def test_list(run, command, folder):
    status, text = command("list")
    assert status == 0
    lines = text.splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "AGE", "TRAINED", "STATE"]
    assert [line.split()[0] for line in lines[1:]] == ["ckpt-3", "ckpt-6", "ckpt-9", "ckpt-10"]
    assert all(line.index("complete") == lines[0].index("STATE") for line in lines[1:])
    spoil(folder, 9)
    shutil.copytree(f"{folder}/ckpt-3", f"{folder}/ckpt-4.superseded")
    status, rows = as_json(command, "list")
    assert status == 1
    assert [(row["name"], row["state"].split(":")[0]) for row in rows] == [
        *(("ckpt-3", "complete"), ("ckpt-6", "complete"), ("ckpt-9", "damaged")),
        *(("ckpt-10", "complete"), ("ckpt-4.superseded", "set aside")),
    ]


def test_list_of_nothing(command, folder):
    os.makedirs(folder)
    assert command("list") == (0, f"no checkpoint in {folder}\n")


def test_show(run, command):
    status, text = command("show")
    assert status == 0
    assert "step      10\n" in text
    assert any(line.split() == ["w", "float32", "[]", "variable"] for line in text.splitlines())
    assert as_json(command, "show", 6)[1]["step"] == 6


def test_show_of_a_damaged_one_is_a_finding(run, command, folder):
    spoil(folder, 10)
    status, text = command("show")
    assert status == 1
    assert "ckpt-10 is damaged: state.index has 1 bytes" in text


def test_verify(run, command, folder):
    status, rows = as_json(command, "verify")
    assert status == 0
    assert [row["state"] for row in rows] == ["verified"] * 4
    data = pathlib.Path(folder, "ckpt-6", "state.data-00000-of-00001")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(bytes(content))
    status, text = command("verify")
    assert status == 1
    assert "ckpt-6" in text
    assert "damaged: state.data-00000-of-00001" in text
    assert as_json(command, "verify", 9)[0] == 0


def test_diff(run, command):
    status, rows = as_json(command, "diff", 6, 9)
    assert status == 1
    found = {row["name"]: row.get("most") for row in rows}
    assert found["w"] == 24
    assert found["trainer/step"] == 3
    assert command("diff", 6, 6) == (0, "ckpt-6 and ckpt-6 are equal\n")


def test_rollback(run, command, make, folder):
    status, answer = as_json(command, "rollback", 6)
    assert (status, answer) == (0, {"step": 6, "set_aside": [9, 10]})
    assert store.Store(folder).complete() == [3, 6]
    program = make(max_steps=10)
    assert program.restored_step == 6
    program.train()
    assert float(program.w) == 55


def test_a_rollback_to_a_damaged_one_changes_nothing(run, command, folder):
    spoil(folder, 6)
    status, text = command("rollback", 6)
    assert status == 1
    assert "is damaged" in text
    assert store.Store(folder).complete() == [3, 9, 10]


def test_commands_that_change_need_the_folder(make, folder):
    program = make(max_steps=3)
    program.train()
    for words in (["rollback", folder, "3"], ["prune", folder]):
        code = f"import sys; from trainer.commands import cli; sys.exit(cli.main({words!r}))"
        result = run_python(code, check=False)
        assert result.returncode == 1
        assert "is in use by process" in result.stdout


def test_pins_hold(run, command, make, folder):
    assert command("pin", 3) == (0, "ckpt-3 is pinned\n")
    assert "complete, pinned" in command("list")[1]
    make(max_steps=20, max_to_keep=2).train()
    assert store.Store(folder).complete() == [3, 18, 20]
    assert command("unpin", 3) == (0, "ckpt-3 is not pinned\n")
    make(max_steps=22, max_to_keep=2).train()
    assert store.Store(folder).complete() == [21, 22]


def test_prune(run, command, folder):
    shutil.copytree(f"{folder}/ckpt-3", f"{folder}/ckpt-4.damaged")
    shutil.copytree(f"{folder}/ckpt-3", f"{folder}/ckpt-5.tmp-01234567")
    pathlib.Path(folder, "notes.txt").write_text("mine")
    assert as_json(command, "prune")[1] == {"removed": ["ckpt-4.damaged"]}
    assert as_json(command, "prune", "--max_to_keep=1")[1] == {
        "removed": ["ckpt-3", "ckpt-6", "ckpt-9"]
    }
    assert command("prune") == (0, "nothing to remove\n")
    assert sorted(os.listdir(folder)) == [
        *("LOCK", "checkpoint", "ckpt-10", "heartbeat.json", "journal.jsonl", "notes.txt")
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["show", "{folder}", "7"], "there is no checkpoint 7 in"),
        (["list", "{folder}-typo"], "there is no folder"),
        (["rollback", "{folder}"], "the following arguments are required: STEP"),
        (["rollback", "{folder}", "x"], "argument STEP: invalid"),
        (["pin", "{folder}", "-3"], "STEP"),
        (["prune", "{folder}", "--max_to_keep=0"], "must be at least 1, got 0"),
        (["list", "{folder}", "--", "--x"], "list takes no flags after --"),
        (["lst", "{folder}"], "invalid choice: 'lst'"),
    ],
)
def test_bad_usage(run, folder, capsys, words, text):
    with pytest.raises(SystemExit) as caught:
        cli.main([word.replace("{folder}", folder) for word in words])
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_looking_needs_no_tensorflow(run, folder):
    code = f"""
import sys
from trainer.commands import cli
for words in (["list", {folder!r}], ["show", {folder!r}], ["pin", {folder!r}, "3"]):
    assert cli.main(words) == 0
assert "tensorflow" not in sys.modules and "numpy" not in sys.modules
"""
    run_python(code)


def test_a_pin_that_comes_while_the_checkpoint_is_removed(run, command, folder, monkeypatch):
    """The truth, whichever comes first: once it said "pinned" of a checkpoint that was gone."""
    found = store.Store(folder)
    rename = found.files.rename

    def pinned_first(source, target):
        if ".deleted-" in target:
            assert command("pin", 3) == (0, "ckpt-3 is pinned\n")
        rename(source, target)

    monkeypatch.setattr(found.files, "rename", pinned_first)
    commit.delete(found.files, folder, "ckpt-3")
    assert found.complete() == [3, 6, 9, 10]
    assert found.is_pinned(3)

    def removed_first(path, content):
        shutil.rmtree(f"{folder}/ckpt-6")

    monkeypatch.setattr(found.files, "write", removed_first)
    monkeypatch.setattr(found.files, "sync_folder", lambda path: None)
    with pytest.raises(trainer.CheckpointError, match="checkpoint 6 is not pinned: the run that"):
        found.pin(6, on=True)
