"""The checkpoint store: commit, recovery, retention, foreign files (K06, K07, K08, K17, K31)."""

import errno
import json
import os
import pathlib
import re
import shutil
import signal
import sys

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer import testing
from trainer.checkpoints import file_names, files, manifest, store
from trainer.run import inside

from conftest import HERE, Summing, crash, run_python
from support import faults

DIARIES = ("heartbeat.json", "journal.jsonl")
PARTS = {"manifest.json", "state.data-00000-of-00001", "state.index"}


def names(folder):
    """Returns what lies in a run folder, but for what is there to be read by people."""
    return sorted(name for name in os.listdir(folder) if name not in DIARIES)


def lay_anew(folder, before):
    """Makes a run folder again what it was."""
    shutil.rmtree(folder)
    shutil.copytree(before, folder)


def three(make):
    """Leaves checkpoints 3, 6 and 9 as a killed run of 10 does."""
    crash(make(hooks=[testing.CrashAt(10)]), max_steps=10)


def finish(make, **settings):
    """Resumes and trains to 10, where w must be 55."""
    program = make(max_steps=10, **settings)
    restored = program.restored_step
    program.train()
    assert float(program.w) == 55
    return restored


# What lies on the disk


def test_the_folder(make, folder):
    make(max_steps=6).train()
    assert names(folder) == ["LOCK", "checkpoint", "ckpt-3", "ckpt-6"]
    assert sorted(os.listdir(folder))[-1] == "journal.jsonl"
    assert set(os.listdir(f"{folder}/ckpt-6")) == PARTS
    content = json.loads(pathlib.Path(folder, "ckpt-6", "manifest.json").read_text())
    assert content["format"] == manifest.FORMAT
    assert content["step"] == 6
    assert content["tensors"]["w"] == ["float32", []]
    assert content["variables"] == ["trainer/step", "w"]


def test_tensorflows_own_tools_read_it(make, folder):
    make(max_steps=6).train()
    latest = tf.train.latest_checkpoint(folder)
    assert latest == f"{folder}/ckpt-6/state"
    listed = dict(tf.train.list_variables(latest))
    assert listed["w"] == []
    assert "trainer/step" in listed
    reader = tf.train.load_checkpoint(latest)
    assert reader.get_tensor("w") == 21
    assert reader.get_tensor("trainer/step") == 6


def test_a_manifest_that_was_changed_is_refused():
    good = manifest.Manifest(3, 1.0, 7, {"state.index": {"bytes": 1}}, {}, [], 0.0, {})
    content = manifest.encode(good)
    assert manifest.decode(content) == good
    with pytest.raises(ValueError, match="does not have the digest that it names"):
        manifest.decode(content.replace(b'"step": 3', b'"step": 4'))
    for length in range(len(content) - 1):
        with pytest.raises(ValueError, match=r"no JSON|no digest|digest that it names"):
            manifest.decode(content[:length])


def test_a_later_format_is_not_damage(make, folder):
    make(max_steps=6).train()
    path = pathlib.Path(folder, "ckpt-6", "manifest.json")
    content = json.loads(path.read_text())
    del content["digest"]
    content["format"] = 2
    content["digest"] = manifest._digest(content)
    path.write_text(json.dumps(content))
    with pytest.raises(trainer.CheckpointError, match="format 2 and this version reads format 1"):
        make()
    assert names(folder) == ["LOCK", "checkpoint", "ckpt-3", "ckpt-6"]


# K06: damage


def _cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


DAMAGE = {
    "data cut to half": ("state.data-00000-of-00001", _cut, "were written"),
    "data flipped": ("state.data-00000-of-00001", _flip, "state.data-00000-of-00001: "),
    "data missing": ("state.data-00000-of-00001", pathlib.Path.unlink, "is missing"),
    "index empty": ("state.index", lambda path: path.write_bytes(b""), "has 0 bytes"),
    "index flipped": ("state.index", _flip, "is not the one it was saved with"),
    "index missing": ("state.index", pathlib.Path.unlink, "state.index is missing"),
    "manifest flipped": ("manifest.json", _flip, "manifest.json"),
    "manifest cut": ("manifest.json", _cut, "manifest.json is no JSON"),
    "manifest missing": ("manifest.json", pathlib.Path.unlink, "manifest.json is missing"),
    "manifest a folder": (
        "manifest.json",
        lambda path: (path.unlink(), path.mkdir()),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("kind", list(DAMAGE))
def test_falls_back_from_a_damaged_checkpoint(make, said, folder, kind):
    three(make)
    name, damage, reason = DAMAGE[kind]
    damage(pathlib.Path(folder, "ckpt-9", name))
    program = make(max_steps=10)
    assert (program.restored_step, float(program.w)) == (6, 21)
    assert f"{folder}/ckpt-9 is damaged: " in said()
    assert reason in said()
    assert "falling back to checkpoint 6, 3 steps lost" in said()
    assert names(folder) == ["LOCK", "checkpoint", "ckpt-3", "ckpt-6", "ckpt-9.damaged"]
    program.train()
    assert float(program.w) == 55
    assert names(folder) == [
        *("LOCK", "checkpoint", "ckpt-10", "ckpt-3", "ckpt-6", "ckpt-9", "ckpt-9.damaged")
    ]


def test_every_flipped_bit_of_the_data_is_found(make, folder):
    """A changed bit that alters no value (in padding) may pass; a wrong value must not."""
    make(max_steps=3).train()
    path = pathlib.Path(folder, "ckpt-3", "state.data-00000-of-00001")
    reference = {k: np.asarray(v) for k, v in store.Store(folder).read(3)[1].items() if k == "w"}
    whole = path.read_bytes()
    for position in range(0, len(whole), max(1, len(whole) // 40)):
        content = bytearray(whole)
        content[position] ^= 1 << (position % 8)
        path.write_bytes(bytes(content))
        try:
            _, tensors = store.Store(folder).read(3)
        except trainer.DamagedCheckpointError:
            continue
        assert np.asarray(tensors["w"]) == reference["w"]


def test_files_of_two_checkpoints_swapped(make, folder):
    three(make)
    for name in ("state.data-00000-of-00001", "state.index"):
        old, new = pathlib.Path(folder, "ckpt-6", name), pathlib.Path(folder, "ckpt-9", name)
        shutil.copy(old, new)
    assert finish(make) == 6


def test_whole_checkpoint_gone_though_the_state_file_names_it(make, said, folder):
    three(make)
    shutil.rmtree(f"{folder}/ckpt-9")
    assert finish(make) == 6
    assert "does not fit the folder" in said()


def test_all_damaged(make, folder):
    three(make)
    for step in (3, 6, 9):
        _flip(pathlib.Path(folder, f"ckpt-{step}", "state.index"))
    before = names(folder)
    with pytest.raises(trainer.NoReadableCheckpointError) as caught:
        make()
    for step in (3, 6, 9):
        assert f"{folder}/ckpt-{step} is damaged: state.index is not the one" in str(caught.value)
    assert "training does not start over by itself" in str(caught.value)
    assert names(folder) == before


def test_leftovers_are_swept(make, folder):
    three(make)
    for name in ("ckpt-9.tmp-0123abcd", "ckpt-2.deleted-0123abcd"):
        shutil.copytree(f"{folder}/ckpt-6", f"{folder}/{name}")
    pathlib.Path(folder, "checkpoint.tmp-0123abcd").write_text("x")
    make()
    assert names(folder) == ["LOCK", "checkpoint", "ckpt-3", "ckpt-6", "ckpt-9"]


def test_permission_is_not_damage(make, folder, monkeypatch):
    three(make)
    read = files.LocalFiles.read

    def denied(self, path):
        if path.endswith("ckpt-9/state.index"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return read(self, path)

    monkeypatch.setattr(files.LocalFiles, "read", denied)
    with pytest.raises(PermissionError, match=r"ckpt-9/state\.index"):
        make()
    assert names(folder) == ["LOCK", "checkpoint", "ckpt-3", "ckpt-6", "ckpt-9"]


# Crashes at every file operation


def _operations(make, monkeypatch, **how):
    watched = faults.Files(**how)
    monkeypatch.setattr(files, "for_path", lambda path: watched)
    return watched


def test_death_at_every_operation_of_a_save(make, folder, monkeypatch, tmp_path):
    """Invariant 5: after the first save a whole checkpoint exists at every instant."""
    crash(make(hooks=[testing.CrashAt(6)], max_to_keep=1), max_steps=10)  # leaves checkpoint 3
    shutil.copytree(folder, tmp_path / "before")
    at, deaths = 0, 0
    while True:
        at += 1
        lay_anew(folder, tmp_path / "before")
        program = make(max_to_keep=1)
        inside.of(program).parts.store.files = faults.Files(at=at)
        try:
            program.train(max_steps=6)
            break
        except faults.Dead:
            deaths += 1
        monkeypatch.undo()
        assert finish(make, max_to_keep=1) in (3, 6)
        assert names(folder) == ["LOCK", "checkpoint", "ckpt-10"]
    assert deaths >= 12


def test_death_at_every_operation_of_a_recovery(make, folder, monkeypatch, tmp_path):
    three(make)
    _flip(pathlib.Path(folder, "ckpt-9", "state.index"))
    shutil.copytree(f"{folder}/ckpt-6", f"{folder}/ckpt-9.tmp-0123abcd")
    shutil.copytree(folder, tmp_path / "before")
    at, deaths = 0, 0
    while True:
        at += 1
        lay_anew(folder, tmp_path / "before")
        with monkeypatch.context() as patch:
            _operations(make, patch, at=at)
            try:
                make()
                break
            except faults.Dead:
                deaths += 1
        assert finish(make) == 6
    assert deaths >= 5


def test_replacing_a_checkpoint_of_the_same_step(make, folder, tmp_path):
    """An explicit save at a step saved before writes again; a death between leaves one of both."""
    make(max_steps=3).train()
    shutil.copytree(folder, tmp_path / "before")
    at = 0
    while True:
        at += 1
        lay_anew(folder, tmp_path / "before")
        program = make()
        program.w.assign(100.0)
        inside.of(program).parts.store.files = faults.Files(at=at)
        try:
            program.save()
            break
        except faults.Dead:
            pass
        again = make()
        assert again.restored_step == 3
        assert float(again.w) in (6, 100)
        assert names(folder) == ["LOCK", "checkpoint", "ckpt-3"]
    assert at > 8
    assert float(make().w) == 100


@pytest.mark.parametrize("at", [2, 9, 13])
def test_killed_for_real_inside_a_save(make, folder, at):
    """The simulated deaths above stand for this: a SIGKILL between two file operations."""
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(HERE)!r})
import trainer
from trainer.run import inside
from support import faults
from conftest import Summing
program = Summing(trainer.TrainerConfig({folder!r}, save_every_steps=3, seed=7, max_to_keep=1))
program.train(max_steps=5)
class Kill:
    def __call__(self): os.kill(os.getpid(), signal.SIGKILL)
watched = faults.Files(watch=lambda name, arguments: None)
log = watched.log
class Deadly(list):
    def append(self, item):
        super().append(item)
        if len(self) == {at}: os.kill(os.getpid(), signal.SIGKILL)
watched.log = Deadly()
inside.of(program).parts.store.files = watched
program.train(max_steps=6)
"""
    assert run_python(code, check=False).returncode == -signal.SIGKILL
    assert finish(make, max_to_keep=1) in (5, 6)
    assert names(folder) == ["LOCK", "checkpoint", "ckpt-10"]


# K07: retention and rewinds


def test_limit_holds_across_restarts_and_one_is_always_there(make, folder, monkeypatch):
    def look(name, arguments):
        steps = store.Store(folder).complete()
        assert len(steps) <= 3
        if look.seen:
            assert steps
        look.seen = look.seen or bool(steps)

    look.seen = False
    monkeypatch.setattr(files, "for_path", lambda path: faults.Files(watch=look))
    make(max_to_keep=2, save_every_steps=2, max_steps=6).train()
    assert store.Store(folder).complete() == [4, 6]
    make(max_to_keep=2, save_every_steps=2, max_steps=10).train()
    assert store.Store(folder).complete() == [8, 10]


@pytest.mark.parametrize("restart", [False, True])
def test_hourly_rule_adds_to_the_limit(make, monkeypatch, restart):
    from trainer.base import clock

    now = [0.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    class HalfHour(trainer.Hook):
        def after_step(self, ctx):
            now[0] += 1800

    def run(steps):
        program = make(hooks=[HalfHour()], save_every_steps=1, max_to_keep=2, keep_every_n_hours=1)
        program.train(max_steps=steps)
        return program.checkpoints

    if restart:
        run(4)
        now[0] = 7.0
    assert run(6) == [2, 4, 5, 6]


def test_rewind(make, said, folder):
    make(max_steps=9).train()
    program = make(max_steps=6)
    program.restore(3)
    assert (program.step, float(program.w), program.checkpoints) == (3, 6, [3])
    assert names(folder) == [
        "LOCK",
        "checkpoint",
        "ckpt-3",
        "ckpt-6.superseded",
        "ckpt-9.superseded",
    ]
    assert "went back to checkpoint 3; set aside: [6, 9]" in said()
    program.train()
    assert program.checkpoints == [3, 6]
    resumed = make(max_steps=10)
    assert resumed.restored_step == 6
    resumed.train()
    assert float(resumed.w) == 55
    with pytest.raises(ValueError, match=r"there is no checkpoint 5 in .*; choose one of \[3, 6"):
        resumed.restore(5)


def test_rewind_to_a_damaged_one_changes_nothing(make, folder):
    make(max_steps=9).train()
    _flip(pathlib.Path(folder, "ckpt-3", "state.index"))
    program = make()
    before = names(folder)
    with pytest.raises(trainer.DamagedCheckpointError):
        program.restore(3)
    assert (program.step, float(program.w)) == (9, 45)
    assert names(folder) == before


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_someone_elses_checkpoint_stays(make, folder, kind):
    os.makedirs(folder)
    if kind == "file":
        other = [f"{folder}/ckpt-1.index", f"{folder}/ckpt-1.data-00000-of-00001"]
        tf.train.Checkpoint(v=tf.Variable(1.0)).write(f"{folder}/ckpt-1")
    else:
        other = [f"{folder}/ckpt-1/weights.bin"]
        os.makedirs(f"{folder}/ckpt-1")
        pathlib.Path(other[0]).write_text("mine")
    make(max_steps=9, max_to_keep=1).train()
    assert store.Store(folder).complete() == [9]
    assert all(os.path.exists(path) for path in other)


# K08: state file, moved folders, odd names


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "checkpoint is missing"),
        (b"", "checkpoint is empty"),
        (bytes(range(56, 256)), "checkpoint is not text"),
        (b'model_checkpoint_path: "ckpt-99/state"\n', "ckpt-99"),
    ],
)
def test_a_bad_state_file(make, said, folder, content, what):
    make(max_steps=6).train()
    path = pathlib.Path(folder, "checkpoint")
    good = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    assert make().restored_step == 6
    assert what in said()
    assert "rebuilt the list from the folder: [3, 6]" in said()
    assert path.read_bytes() == good


def test_a_moved_folder(make, folder, tmp_path):
    make(max_steps=6).train()
    os.rename(folder, tmp_path / "elsewhere")
    program = make(model_dir=tmp_path / "elsewhere", max_steps=10)
    assert program.restored_step == 6
    program.train()
    assert program.checkpoints == [3, 6, 9, 10]
    assert not os.path.exists(folder)
    latest = tf.train.latest_checkpoint(str(tmp_path / "elsewhere"))
    assert latest == f"{tmp_path}/elsewhere/ckpt-10/state"


@pytest.mark.parametrize(
    "name",
    ["run[1]", "with blank", "a*b", "what?", "{x}", "back\\slash", "ünïcode", "a'b\"c", "%d"],
)
def test_odd_folder_names(make, tmp_path, name):
    odd = tmp_path / name
    crash(make(model_dir=odd, hooks=[testing.CrashAt(8)]), max_steps=10)
    assert finish(make, model_dir=odd) == 6


@pytest.mark.parametrize("form", ["slash", "path", "relative", "link"])
def test_the_same_folder_in_other_words(make, folder, form, monkeypatch, tmp_path):
    make(max_steps=6).train()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    words = {
        "slash": folder + "/",
        "path": pathlib.Path(folder),
        "relative": "run",
        "link": str(tmp_path / "link"),
    }
    assert finish(make, model_dir=words[form]) == 6


# K17, the part that needs no background save


def _full(at):
    return faults.Files(at=at, fault=OSError(errno.ENOSPC, "No space left on device"))


def test_no_space_is_said_and_costs_nothing(make, said, folder):
    program = make(on_save_error="raise")
    program.train(max_steps=3)
    inside.of(program).parts.store.files = _full(2)
    with pytest.raises(trainer.SaveError, match="No space left on device") as caught:
        program.train(max_steps=10)
    assert "could not save checkpoint 6" in str(caught.value)
    assert re.search(r"about 1\d,\d{3} bytes are needed, [\d,]+ are free", str(caught.value))
    assert "checkpoints [3] are untouched" in str(caught.value)
    assert store.Store(folder).complete() == [3]
    assert finish(make) == 3
    assert names(folder) == ["LOCK", "checkpoint", "ckpt-10", "ckpt-3", "ckpt-6", "ckpt-9"]


def test_warn_and_go_on(make, said):
    program = make(max_steps=9)
    once = faults.Files(at=2, fault=OSError(errno.ENOSPC, "No space left"), persistent=False)
    inside.of(program).parts.store.files = once
    program.train()
    assert program.checkpoints == [6, 9]
    assert "could not save checkpoint 3" in said()
    assert "1 of 3 saves failed" in said()


def test_three_failures_in_a_row_raise(make):
    program = make(max_steps=100)
    inside.of(program).parts.store.files = _full(1)
    with pytest.raises(trainer.SaveError, match="could not save checkpoint 9"):
        program.train()


def test_a_failed_last_save_raises(make):
    program = make(max_steps=4)
    program.train(max_steps=3)
    inside.of(program).parts.store.files = _full(1)
    with pytest.raises(trainer.SaveError, match="could not save checkpoint 4"):
        program.train()


def test_a_really_full_disk(make, tmp_path):
    """A small volume of its own, filled up by the run itself."""
    volume = tmp_path / "volume"
    volume.mkdir()
    if os.system(f"mount -t tmpfs -o size=300k tmpfs {volume} 2>/dev/null") != 0:
        pytest.skip("needs the right to mount")
    try:

        class Big(Summing):
            def build(self):
                super().build()
                self.more = tf.Variable(tf.zeros(20_000))

        program = make(Big, model_dir=volume / "run", max_steps=20, max_to_keep=None)
        with pytest.raises(trainer.SaveError, match=r"No space left|RESOURCE_EXHAUSTED|space"):
            program.train()
        whole = store.Store(str(volume / "run")).complete()
        assert whole
        assert set(names(volume / "run")) == {
            "LOCK",
            "checkpoint",
            *(file_names.checkpoint(step) for step in whole),
        }
        program.close()
        shutil.rmtree(volume / "run" / file_names.checkpoint(whole[0]))
        with make(Big, model_dir=volume / "run", max_to_keep=1) as resumed:
            assert resumed.restored_step == whole[-1]
    finally:
        assert os.system(f"umount {volume}") == 0


def test_a_deletion_that_fails_is_a_warning(make, said):
    program = make(max_steps=12, max_to_keep=1)
    watched = inside.of(program).parts.store.files = faults.Files()
    real = watched._files.rename

    def rename(old, new):
        if ".deleted-" in new:
            raise PermissionError(errno.EACCES, "Permission denied", old)
        real(old, new)

    watched._files.rename = rename
    program.train()
    assert said().count("could not delete ckpt-3") == 1
    assert program.checkpoints == [3, 6, 9, 12]


# K31: what is not ours


def test_foreign_files_stay(make, folder):
    os.makedirs(f"{folder}/empty")
    pathlib.Path(folder, "notes.txt").write_text("mine")
    pathlib.Path(folder, "best.h5").write_bytes(b"mine")
    pathlib.Path(folder, "ckpt-3.tmp").write_text("not of our making")
    pathlib.Path(folder, "ckpt-3.tmp-short").write_text("nor this")
    crash(make(hooks=[testing.CrashAt(8)], max_to_keep=1), max_steps=10)
    finish(make, max_to_keep=1)
    assert names(folder) == [
        "LOCK",
        "best.h5",
        "checkpoint",
        "ckpt-10",
        "ckpt-3.tmp",
        "ckpt-3.tmp-short",
        "empty",
        "notes.txt",
    ]


# Invariant 6: one owner


def test_the_same_process_may_construct_again(make):
    older = make(max_steps=3)
    older.train()
    newer = make(max_steps=6)
    with pytest.raises(trainer.ModelDirInUseError, match="a newer trainer of this process"):
        older.train(max_steps=6)
    with pytest.raises(trainer.ModelDirInUseError, match="a newer trainer of this process"):
        older.save()
    newer.train()
    newer.close()
    newer.close()
    with pytest.raises(trainer.ModelDirInUseError, match="was closed"):
        newer.save()


def test_another_process_is_refused(make, folder):
    make()
    code = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import trainer
from trainer.run import inside
from conftest import Summing
try:
    Summing(trainer.TrainerConfig({folder!r}, save_every_steps=3))
except trainer.ModelDirInUseError as error:
    print(error)
"""
    text = run_python(code).stdout
    assert f"{folder} is in use by process {os.getpid()} on " in text
    assert "(since 20" in text


def test_a_dead_owner_is_taken_over(folder, make, said):
    code = f"""
import os, signal, sys, time
sys.path.insert(0, {str(HERE)!r})
import trainer
from trainer.run import inside
from conftest import Summing
Summing(trainer.TrainerConfig({folder!r}, save_every_steps=3, seed=7)).train(max_steps=6)
if os.fork() == 0:  # a child holds the descriptor and lives on
    os.close(1), os.close(2)
    time.sleep(20)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_python(code, check=False).returncode == -signal.SIGKILL
    assert make().restored_step == 6
    assert "took over" in said()


def test_the_source_of_what_is_tested():
    """With UNBROKEN_INSTALLED set, as in CI, the tests run against the installed package."""
    if "UNBROKEN_INSTALLED" in os.environ:
        assert "site-packages" in trainer.__file__
    assert sys.modules["trainer"] is trainer
