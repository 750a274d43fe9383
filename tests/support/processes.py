"""Processes that die for real, many a minute.

A process that has imported TensorFlow, and not used it, forks a child for each life and one for
each resume: half a second each instead of four. Run as a program it does one campaign and prints
what came of each case, a JSON object a line:

    python -m support.processes kills CONTENDER FOLDER SYSCALL=N,N,…|all …
    python -m support.processes cuts CONTENDER FOLDER SECONDS,SECONDS,…|now*COUNT
    python -m support.processes damage CONTENDER FOLDER
"""

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback

from support import contenders

STEPS = 10
SYSCALLS = (
    *("openat", "write", "pwrite64", "rename", "unlink", "unlinkat", "mkdir", "rmdir"),
    *("fsync", "fdatasync", "ftruncate"),
)
_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of linux/fs.h
_NO_LOG_FLUSH = 2


class Child:
    """A forked process and what it reports.

    Args:
        work: function of `report`; runs in the child.
    """

    def __init__(self, work):
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            status = 1
            try:
                work(lambda value: os.write(write, (json.dumps(value) + "\n").encode()))
                status = 0
            except BaseException as error:
                text = "".join(traceback.format_exception_only(error)).strip()
                os.write(write, (json.dumps({"error": text}) + "\n").encode())
            finally:
                os._exit(status)
        os.close(write)

    def reports(self):
        """Yields the values reported, as they come."""
        with os.fdopen(self._read) as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)

    def end(self):
        """Waits for the end, and returns whether a signal brought it."""
        return os.WIFSIGNALED(os.waitpid(self.pid, 0)[1])

    def wait(self):
        """Returns the values reported, and whether a signal ended the child."""
        return list(self.reports()), self.end()


def judge(contender, folder, acknowledged):
    """Resumes in a fresh process and says what is wrong, or nothing."""

    def work(report):
        found = contender(folder)
        report([found.step, found.w])
        if contender is contenders.Ours:
            found.train(STEPS + 5, lambda step: None)
            report([found.step, found.w])
            report(found.leftovers())

    values, _ = Child(work).wait()
    if not values or isinstance(values[-1], dict):
        return values[-1]["error"].splitlines()[0] if values else "died"
    step, w = values[0]
    if w != contenders.total(step):
        return f"wrong: step {step} with w = {w}"
    if step < acknowledged:
        return f"went back to step {step} though {acknowledged} was acknowledged"
    if len(values) == 3 and values[1] != [STEPS + 5, contenders.total(STEPS + 5)]:
        return f"ended at {values[1]}"
    if len(values) == 3 and values[2]:
        return f"left {values[2]}"
    return ""


def live(contender, folder, report):
    contender(folder).train(STEPS, report)


def kill_at(contender, folder, syscall, number):
    """One life under strace, which kills it at the call `number` of `syscall` in any thread.

    Returns whether it was killed, and the newest step acknowledged.
    """
    ready, go = os.pipe(), os.pipe()

    def work(report):
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        live(contender, folder, report)

    child = Child(work)
    os.read(ready[0], 1)
    tracer = subprocess.Popen(
        [
            *("strace", "-f", "-qq", "-o", "/dev/null", "-p", str(child.pid)),
            *("-e", f"trace={syscall}", "-e", f"inject={syscall}:signal=SIGKILL:when={number}"),
        ],
        stderr=subprocess.DEVNULL,
    )
    while not all(map(_traced, os.listdir(f"/proc/{child.pid}/task"))):
        if tracer.poll() is not None:
            os.kill(child.pid, signal.SIGKILL)
            raise RuntimeError("strace could not attach")
        time.sleep(0.002)
    os.write(go[1], b"x")
    values, killed = child.wait()
    tracer.wait()
    for end in (*ready, *go):
        os.close(end)
    steps = [value for value in values if isinstance(value, int)]
    return killed, max(steps, default=0)


def _traced(task):
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{task}/status") as file:
        return any(line.split()[1] != "0" for line in file if line.startswith("TracerPid"))
    return True


def kills(contender, folder, *wanted):
    """SIGKILL at chosen system calls, or at each until a life passes untouched."""
    for word in wanted:
        syscall, _, numbers = word.partition("=")
        number = 0
        while True:
            number += 1
            if numbers != "all" and number > max(map(int, numbers.split(","))):
                break
            if numbers != "all" and str(number) not in numbers.split(","):
                continue
            place = os.path.join(folder, f"{syscall}-{number}")
            killed, acknowledged = kill_at(contender, place, syscall, number)
            what = {"case": f"{syscall} {number}", "crashed": killed}
            if killed:
                what["wrong"] = judge(contender, place, acknowledged)
            print(json.dumps(what), flush=True)
            if not killed and numbers == "all":
                break


class Volume:
    """An ext4 file system on a loop device, whose power can be cut.

    Args:
        folder: where its image and its mount point lie.
    """

    def __init__(self, folder):
        self._image, self.path = f"{folder}.img", f"{folder}.mnt"
        os.makedirs(self.path)
        with open(self._image, "wb") as file:
            file.truncate(64 << 20)
        _run("mkfs.ext4", "-q", "-F", self._image)
        self.mount()

    def mount(self):
        _run("mount", "-o", "loop", self._image, self.path)

    def cut(self):
        """Stops the file system without a flush of its log, and brings back what the disk has."""
        descriptor = os.open(self.path, os.O_RDONLY)
        fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        os.close(descriptor)

    def remount(self):
        _run("umount", self.path)
        self.mount()

    def remove(self):
        _run("umount", self.path)
        os.unlink(self._image)


def _run(*words):
    subprocess.run(words, check=True, capture_output=True)


def cuts(contender, folder, when):
    """A real power cut, so many seconds after the last save, or at random moments of a life."""
    mode, _, count = when.partition("*")
    if mode == "now":
        draw = random.Random(7)
        jobs = [(f"in the middle, {n}", draw.uniform(0.2, 0.8)) for n in range(int(count))]
    else:
        jobs = [(f"{secs} s after the save", float(secs)) for secs in when.split(",")]
    volumes = []
    for number, (case, secs) in enumerate(jobs):
        volume = Volume(os.path.join(folder, str(number)))
        run = os.path.join(volume.path, "run")
        child = Child(lambda report, run=run: live(contender, run, report))
        if mode == "now":
            time.sleep(secs)
            volume.cut()
        values, _ = child.wait()
        volumes.append((case, secs, time.monotonic(), volume, values))
    for case, secs, ended, volume, values in sorted(volumes, key=lambda item: item[1]):
        if mode != "now":
            time.sleep(max(0.0, ended + secs - time.monotonic()))
            volume.cut()
        volume.remount()
        steps = [value for value in values if isinstance(value, int)]
        wrong = judge(contender, os.path.join(volume.path, "run"), max(steps, default=0))
        volume.remove()
        print(json.dumps({"case": case, "crashed": True, "wrong": wrong}), flush=True)


def damage(contender, folder):
    """What a bad disk or a careless hand does to the newest files, one after the other."""
    place = os.path.join(folder, "life")
    Child(lambda report: live(contender, place, report)).wait()
    for number, path in enumerate(_newest_files(place)):
        for how, change in DAMAGE.items():
            copy = os.path.join(folder, f"{number}-{how}".replace(" ", "-"))
            shutil.copytree(place, copy)
            change(os.path.join(copy, os.path.relpath(path, place)))
            wrong = judge(contender, copy, STEPS - 1)
            case = f"{how}: {os.path.relpath(path, place)}"
            print(json.dumps({"case": case, "crashed": True, "wrong": wrong}), flush=True)


def _newest_files(folder):
    """Returns the files of the newest checkpoint, and those that point at it."""
    found = [
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name not in ("LOCK", "journal.jsonl") and f"ckpt-{STEPS - 1}" not in f"{where}/{name}"
    ]
    return sorted(found)


def _rewrite(change):
    def act(path):
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(change(content))

    return act


def _flipped(content):
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


DAMAGE = {
    "missing": os.unlink,
    "empty": _rewrite(lambda content: b""),
    "cut to half": _rewrite(lambda content: content[: len(content) // 2]),
    "zeroed tail": _rewrite(
        lambda content: content[: len(content) // 2].ljust(len(content), b"\0")
    ),
    "a flipped bit": _rewrite(_flipped),
    "noise": _rewrite(lambda content: bytes(255 - byte for byte in content)),
}


if __name__ == "__main__":
    campaign = {"kills": kills, "cuts": cuts, "damage": damage}[sys.argv[1]]
    campaign(contenders.CONTENDERS[sys.argv[2]], *sys.argv[3:])
