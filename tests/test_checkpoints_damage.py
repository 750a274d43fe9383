"""What a bad disk or a careless hand does to a folder: every bit, every length, every mix-up (K06).

The newest of two checkpoints is damaged. It must be found out, and the other one restored; or the
damage changed nothing, and the newest is restored with every value right.
"""

import itertools
import json
import os
import pathlib
import shutil

import numpy as np
import pytest

import trainer
from trainer.checkpoints import file_names, files, manifest, reading, store

from support.lives import save

DATA = "state.data-00000-of-00001"
PARTS = (file_names.MANIFEST, file_names.INDEX, DATA)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A folder with the checkpoints 1 and 2."""
    folder = tmp_path_factory.mktemp("two") / "run"
    target = store.Store(str(folder))
    os.makedirs(folder)
    save(target, 1)
    save(target, 2)
    return folder


@pytest.fixture
def copy(two, tmp_path):
    """A copy of it to damage."""
    shutil.copytree(two, tmp_path / "run")
    return tmp_path / "run"


def verdict(folder):
    """Reads checkpoint 2 in full; returns False if it is damaged, and fails if a value is wrong."""
    try:
        found, tensors = store.Store(str(folder)).read(2)
    except trainer.DamagedCheckpointError:
        return False
    assert found.step == int(tensors["trainer/step"]) == 2
    assert tensors["w"].numpy().tolist() == [2.0] * 4
    return True


def recovered(folder):
    """Returns the step that recovery restores, with every value checked."""
    found, tensors = store.Store(str(folder)).recover(lambda path, found: None)
    assert tensors["w"].numpy().tolist() == [float(found.step)] * 4
    return found.step


def flips(content):
    for position in range(8 * len(content)):
        changed = bytearray(content)
        changed[position // 8] ^= 1 << position % 8
        yield bytes(changed)


def cuts(content):
    # A manifest without its last line feed is still the whole manifest.
    end = len(content.rstrip(b"\n"))
    return (content[:length] for length in range(end))


def zeroed_tails(content):
    lengths = (n for n in range(len(content)) if any(content[n:]))
    return (content[:length].ljust(len(content), b"\0") for length in lengths)


@pytest.mark.parametrize("change", [flips, cuts, zeroed_tails])
@pytest.mark.parametrize("name", PARTS)
def test_every_change_of_a_file(copy, name, change, cases):
    path = copy / "ckpt-2" / name
    whole = path.read_bytes()
    count = passed = 0
    for content in change(whole):
        path.write_bytes(content)
        if name == DATA:
            passed += verdict(copy)
        else:  # without the tensors, so that tens of thousands of cases are a matter of seconds
            with pytest.raises(trainer.DamagedCheckpointError):
                reading.read_manifest(files.LocalFiles(), str(copy / "ckpt-2"))
        count += 1
    assert count > 12
    assert passed == 0
    cases("damaged files", count)
    path.write_bytes(whole)
    assert verdict(copy)


@pytest.mark.parametrize("change", [flips, cuts])
def test_every_change_of_the_state_file(copy, change):
    """It is never trusted: the newest checkpoint is found whatever it says."""
    path = copy / "checkpoint"
    whole = path.read_bytes()
    for content in itertools.islice(change(whole), None, None, 7):
        path.write_bytes(content)
        assert recovered(copy) == 2
        assert path.read_bytes() == whole


@pytest.mark.parametrize("names", [s for n in (1, 2, 3) for s in itertools.combinations(PARTS, n)])
def test_files_of_two_checkpoints_mixed_up(copy, names):
    for name in names:
        one, two = copy / "ckpt-1" / name, copy / "ckpt-2" / name
        one.rename(copy / "aside")
        two.rename(one)
        (copy / "aside").rename(two)
    with pytest.raises(trainer.NoReadableCheckpointError, match="none can be read"):
        recovered(copy)


@pytest.mark.parametrize("names", [s for n in (1, 2, 3) for s in itertools.combinations(PARTS, n)])
def test_missing_files(copy, names):
    for name in names:
        (copy / "ckpt-2" / name).unlink()
    assert recovered(copy) == 1
    assert (copy / "ckpt-2.damaged").is_dir()


def test_a_foreign_file_in_a_checkpoint_is_not_damage(copy):
    (copy / "ckpt-2" / "notes.txt").write_text("mine")
    assert recovered(copy) == 2


def test_links(copy, tmp_path):
    """A checkpoint moved elsewhere with a link left behind is a checkpoint; a dead link is none."""
    (copy / "ckpt-2").rename(tmp_path / "elsewhere")
    (copy / "ckpt-2").symlink_to(tmp_path / "elsewhere")
    assert verdict(copy)
    assert recovered(copy) == 2
    (tmp_path / "elsewhere").rename(tmp_path / "gone")
    assert recovered(copy) == 1
    data = copy / "ckpt-1" / DATA
    data.rename(tmp_path / "data")
    data.symlink_to(tmp_path / "data")
    assert recovered(copy) == 1
    (tmp_path / "data").unlink()
    with pytest.raises(trainer.NoReadableCheckpointError, match=f"{DATA} is missing"):
        recovered(copy)


def test_a_save_through_a_link_that_leads_nowhere(copy):
    (copy / "ckpt-3").symlink_to(copy / "nowhere")
    target = store.Store(str(copy), max_to_keep=2)
    save(target, 3)
    assert target.complete() == [2, 3]
    assert recovered(copy) == 3


@pytest.mark.parametrize("kind", ["a later format", "no digest", "another shape", "a list"])
def test_manifests_of_other_makes(copy, kind):
    path = copy / "ckpt-2" / file_names.MANIFEST
    content = json.loads(path.read_text())
    del content["digest"]
    if kind == "a later format":
        content["format"] = 99
    if kind == "another shape":
        content["tensors"]["w"] = ["float32", [5]]
    if kind != "no digest":
        content["digest"] = manifest._digest(content)
    path.write_text(json.dumps([content] if kind == "a list" else content))
    if kind == "a later format":
        with pytest.raises(trainer.CheckpointError, match="format 99 and this version reads"):
            recovered(copy)
    elif kind != "another shape":  # a manifest forged with a digest of its own says what it likes
        assert recovered(copy) == 1


def test_noise_of_every_length(copy):
    """Random bytes in place of each file."""
    draw = np.random.default_rng(7)
    for name in PARTS:
        path = copy / "ckpt-2" / name
        whole = path.read_bytes()
        for length in (1, 7, 48, 1000, len(whole)):
            path.write_bytes(draw.bytes(length))
            assert not verdict(copy)
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["ckpt-2", "checkpoint", "ckpt-3"])
def test_a_folder_or_a_file_where_the_other_belongs(copy, name):
    path = pathlib.Path(copy, name)
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("a file")
    else:
        path.unlink(missing_ok=True)
        path.mkdir()
    assert recovered(copy) == (1 if name == "ckpt-2" else 2)
