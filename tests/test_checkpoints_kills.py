"""Real kills and real power cuts, a bounded part; `make crash-test` runs them all.

Where the machine does not let a test trace or mount, it is skipped and says so.
"""

import os
import shutil
import subprocess

import pytest

import trainer
from trainer.checkpoints import store
from trainer.commands import folder as commands

from conftest import HERE, crash, run_python
from support import survival


def _may_mount():
    return os.geteuid() == 0 and shutil.which("mkfs.ext4") and os.path.exists("/dev/loop-control")


def lost(came_of):
    """Returns the cases that went wrong, and why."""
    return {case["case"]: case["wrong"] for case in came_of if case.get("wrong")}


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_killed_at_a_system_call(tmp_path, cases):
    wanted = ["rename=1,4,6", "fsync=3,8", "openat=10", "write=5", "unlink=2", "rmdir=1", "mkdir=2"]
    came_of = survival.run(("kills", *wanted), "ours", str(tmp_path))
    assert lost(came_of) == {}
    count = sum(case["crashed"] for case in came_of)
    assert count >= 8
    cases("kills at a system call", count)


@pytest.mark.skipif(not _may_mount(), reason="needs root, mkfs.ext4 and loop devices")
def test_power_cuts_of_a_real_file_system(tmp_path, cases):
    came_of = survival.run(("cuts", "0,1"), "ours", str(tmp_path / "after"))
    came_of += survival.run(("cuts", "now*3"), "ours", str(tmp_path / "middle"))
    assert lost(came_of) == {}
    assert len(came_of) == 5
    cases("power cuts of an ext4 file system", len(came_of))


@pytest.mark.skipif(not _may_mount(), reason="needs root, mkfs.ext4 and loop devices")
def test_the_power_cut_is_real(tmp_path):
    """What does not sync must lose: else the test above would show nothing."""
    came_of = survival.run(("cuts", "0"), "manager", str(tmp_path))
    assert list(lost(came_of)) == ["0 s after the save"]


@pytest.fixture
def read_only(tmp_path):
    """Makes a folder read-only, for root too: read_only(folder, on)."""
    mounted = []

    def switch(folder, on):
        if folder not in mounted:
            bind = ["mount", "--bind", folder, folder]
            if subprocess.run(bind, capture_output=True, check=False).returncode:
                pytest.skip("needs the right to mount")
            mounted.append(folder)
        options = f"remount,bind,{'ro' if on else 'rw'}"
        subprocess.run(["mount", "-o", options, folder], check=True)

    yield switch
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=True)


ENDS = """
import atexit, sys, tempfile

found = []
atexit.register(lambda: print(sys.getrefcount(found[0]) - found[1]))  # the first, so called last
sys.path.insert(0, {tests!r})
import trainer
from trainer.run import inside
from conftest import Summing

program = Summing(trainer.TrainerConfig(tempfile.mkdtemp(), max_steps=5, save_every_steps=5))
program.train()
resource = inside.of(program).parts.progress.source.iterator._iterator_resource
found += [resource, None]
found[1] = sys.getrefcount(resource)
"""


def test_the_end_of_a_process_destroys_no_iterator():
    """TensorFlow 2.21 now and then takes as long for it as the iterator has lived."""
    assert run_python(ENDS.format(tests=str(HERE))).stdout.split() == ["1"]


def test_a_read_only_folder(make, folder, read_only):
    with make(hooks=[trainer.testing.CrashAt(8)]) as program:
        crash(program, max_steps=10)
    read_only(folder, True)
    with pytest.raises(ValueError, match=r"is not writable \(Read-only file system\)"):
        make()
    assert commands.list_checkpoints(folder).status == 0
    assert commands.verify(folder, None).status == 0
    with pytest.raises(OSError, match="Read-only"):
        store.Store(folder).pin(6, on=True)
    read_only(folder, False)
    assert make().restored_step == 6


def test_a_folder_that_becomes_read_only(make, folder, said, read_only):
    program = make(max_steps=30)
    program.train(max_steps=3)
    read_only(folder, True)
    with pytest.raises(trainer.SaveError, match=r"could not save checkpoint 12 .*Read-only"):
        program.train()
    assert "could not write" in said()  # the journal, once
    read_only(folder, False)
    program.restore(3)
    program.train(max_steps=10)
    assert program.checkpoints == [3, 6, 9, 10]
    assert float(program.w) == 55
