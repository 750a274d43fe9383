"""Power cuts and failing disks, enumerated over whole lives of a checkpoint folder.

`make crash-test` runs the long campaign (CAMPAIGN=1) and prints a table; the suite runs a bounded
part of it.
"""

import contextlib
import errno
import os
import shutil

import pytest
import tensorflow as tf

import trainer
from trainer.checkpoints import file_names, files, store

from support import faults, powercut
from support.lives import check_recovery, life, save

SAMPLES = 4096 if os.environ.get("CAMPAIGN") else 48

DATA = "state.data-00000-of-00001"


def test_every_power_cut(tmp_path, cases):
    """At each moment of a life, every state that the lost and kept changes can leave."""
    root = str(tmp_path / "run")
    os.makedirs(root)
    recorder = powercut.Recorder(root)
    acknowledged = []  # for each moment, the newest step whose save had returned

    def note(step):
        acknowledged.extend([previous[0]] * (len(recorder.moments) - len(acknowledged)))
        previous[0] = step

    previous = [None]
    life(store.Store(root, max_to_keep=2, files=recorder), note)
    acknowledged.extend([previous[0]] * (len(recorder.moments) - len(acknowledged)))
    scratch, count = str(tmp_path / "scratch"), 0
    for moment in range(len(recorder.moments)):
        for state in recorder.states(moment, SAMPLES, seed=moment):
            shutil.rmtree(scratch, ignore_errors=True)
            powercut.lay_out(state, root, scratch)
            check_recovery(scratch, acknowledged[moment], {1, 2, 3, 4})
            count += 1
    assert len(recorder.moments) > 60
    assert count > 300
    cases("states after a modelled power cut", count)


def test_power_cut_without_the_syncs_is_found(tmp_path, monkeypatch):
    """The model can tell: with the syncs taken out, the same check must fail."""
    root = str(tmp_path / "run")
    os.makedirs(root)
    recorder = powercut.Recorder(root)
    monkeypatch.setattr(recorder, "sync", lambda path: None)
    target = store.Store(root, max_to_keep=1, files=recorder)
    save(target, 1)
    save(target, 2)
    scratch = str(tmp_path / "scratch")
    failures = 0
    for state in recorder.states(len(recorder.moments) - 1, 256, seed=0):
        shutil.rmtree(scratch, ignore_errors=True)
        powercut.lay_out(state, root, scratch)
        try:
            check_recovery(scratch, 2, {1, 2})
        except (AssertionError, trainer.NoReadableCheckpointError):
            failures += 1
    assert failures > 0


FAULTS = {
    "no space": OSError(errno.ENOSPC, "No space left on device"),
    "input/output error": OSError(errno.EIO, "Input/output error"),
    "read-only": OSError(errno.EROFS, "Read-only file system"),
    "file too large": OSError(errno.EFBIG, "File too large"),
    "TensorFlow: no space": tf.errors.ResourceExhaustedError(None, None, "no space"),
    "TensorFlow: too large": tf.errors.OutOfRangeError(None, None, "file too large"),
    "short write": faults.ShortWriteError(),
    "delay": faults.Delay(),
    "killed": faults.Dead(),
}


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_at_every_operation(tmp_path, name, persistent, cases):
    """Operation 1, 2, 3, … of a life fails, until a life passes untouched."""
    at = 0
    while True:
        at += 1
        folder = str(tmp_path / str(at))
        os.makedirs(folder)
        watched = faults.Files(at=at, fault=FAULTS[name], persistent=persistent)
        acknowledged = []
        with contextlib.suppress(trainer.SaveError, OSError, tf.errors.OpError, faults.Dead):
            life(store.Store(folder, max_to_keep=2, files=watched), acknowledged.append)
        if len(watched.log) < at:
            break
        check_recovery(folder, acknowledged[-1] if acknowledged else None, {1, 2, 3, 4})
    assert at > 60
    cases("faults at numbered operations", at - 1)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_short_write(tmp_path, size):
    """A file that ends up short without an error (a lying disk) is found on reading."""
    folder = str(tmp_path / "run")
    target = store.Store(folder, max_to_keep=3)
    os.makedirs(folder)
    save(target, 1)
    save(target, 2)
    for name in (file_names.MANIFEST, file_names.INDEX, DATA):
        shutil.copytree(folder, tmp_path / name)
        path = tmp_path / name / "ckpt-2" / name
        path.write_bytes(path.read_bytes()[:size])
        if name != DATA or size < 24:
            check_recovery(str(tmp_path / name), 1, {1, 2})


def test_transient_errors_are_tried_again(tmp_path, monkeypatch):
    """Up to three times with growing pauses, each time on files of their own."""
    pauses = []
    monkeypatch.setattr(store, "pause", pauses.append)
    folder = str(tmp_path / "run")
    os.makedirs(folder)
    again = OSError(errno.EAGAIN, "try again later")
    once = faults.Files(at=3, fault=again, persistent=False)
    save(store.Store(folder, files=once), 1)
    assert pauses == [0.1]
    scratches = {arguments[0] for name, arguments in once.log if name == "make_folder"}
    assert len(scratches) == 2
    pauses.clear()
    always = faults.Files(at=1, fault=again)
    with pytest.raises(trainer.SaveError, match="try again later"):
        save(store.Store(folder, files=always), 2)
    assert pauses == [0.1, 0.4, 1.6]
    assert store.Store(folder).complete() == [1]


def test_where_a_rename_is_not_atomic(tmp_path):
    """On an object store the manifest, written last, is the mark; `ram://` stands for one."""
    folder = f"ram://{tmp_path.name}/run"
    target = store.Store(folder, max_to_keep=2)
    target.own()
    for step in (1, 2, 3):
        save(target, step)
    assert target.complete() == [2, 3]
    found = store.Store(folder).recover(lambda path, found: None)
    assert found[0].step == 3
    files = target.files
    files.remove(
        files.join(target.path(3), file_names.MANIFEST)
    )  # as a kill before the mark leaves it
    found = store.Store(folder).recover(lambda path, found: None)
    assert found[0].step == 2
    assert found[1]["w"].numpy().tolist() == [2.0] * 4


def test_a_listing_that_lags(tmp_path, caplog):
    """A folder just written is missing from the list: what the run knows of it counts (K24)."""

    class Lagging(files.LocalFiles):
        hidden = ""

        def names(self, path):
            return [name for name in super().names(path) if name != self.hidden]

    folder = str(tmp_path / "run")
    os.makedirs(folder)
    lagging = Lagging()
    target = store.Store(folder, max_to_keep=2, files=lagging)
    for step in (1, 2, 3):
        lagging.hidden = f"ckpt-{step}"
        save(target, step)
        assert target.complete()[-1] == step
    assert target.complete() == [2, 3]
    assert 'model_checkpoint_path: "ckpt-3/state"' in (tmp_path / "run" / "checkpoint").read_text()
    shutil.rmtree(tmp_path / "run" / "ckpt-3")
    assert target.complete() == [2]
