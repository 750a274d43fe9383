"""Goodput under failures: a real job killed by a seeded trace, beside Keras and the guide's loop.

    python benchmarks/goodput.py [SECONDS_OF_WORK] [TRACE ...]     (default 40 s; all traces)

The same job (so many steps of some milliseconds) is run to its end by each contender, in processes
of its own that are killed (SIGKILL) at the moments of the trace and started again at once. Goodput
is the time that the steps take by themselves over the time from the first start to the end.

Beside them stands the optimum on the same trace: what remains if steps, starts and saves take what
they were measured to take here, with the best of all fixed intervals of saves (the formula of Young
and Daly gives about that one, sqrt(2 * cost of a save * mean time between failures)).
"""

import itertools
import json
import math
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from trainer import goodput

HERE = pathlib.Path(__file__).parent
JOB = HERE / "goodput_job.py"
PEER_SAVE_SECS = 1.0  # interval of the peers' saves, near the optimum for these traces


def exponential(mean, seed):
    """Yields the moments of failures that come independently of each other."""
    draw, at = random.Random(seed), 0.0
    while True:
        at += draw.expovariate(1 / mean)
        yield at


def bursts(mean, seed):
    """Yields moments in threes, a second or so apart."""
    draw = random.Random(seed)
    for at in exponential(3 * mean, seed):
        yield at
        yield at + draw.uniform(0.5, 1.5)
        yield at + draw.uniform(2.0, 3.0)


TRACES = {
    "exponential, mean 20 s": lambda: exponential(20, 4),
    "exponential, mean 60 s": lambda: exponential(60, 1),
    "bursts, mean 20 s": lambda: bursts(20, 3),
}


def run(contender, folder, steps, every, moments):
    """Runs one contender to its end under a trace and returns the seconds and the kills."""
    job = [sys.executable, str(JOB), contender, f"--model_dir={folder}", f"--max_steps={steps}"]
    if contender == "ours":
        supervise = [sys.executable, "-m", "trainer", "supervise", "--max_restarts=1000"]
        flags = ["--backoff_secs=0", "--max_idle_restarts=1000", "--"]
        job = [*supervise, *flags, *job]
    else:
        job.append(f"--save_every_steps={every}")
    kills = 0
    with open(f"{folder}.log", "ab") as log:
        begun = time.monotonic()
        process = subprocess.Popen(job, stdout=log, stderr=log)
        for moment in itertools.chain(moments, [math.inf]):
            while time.monotonic() - begun < moment:
                if process.poll() == 0:
                    return time.monotonic() - begun, kills
                if process.poll() is not None:
                    if contender == "ours" or process.returncode != -signal.SIGKILL:
                        raise RuntimeError(f"{contender}: {pathlib.Path(log.name).read_text()}")
                    process = subprocess.Popen(job, stdout=log, stderr=log)
                time.sleep(0.01)
            kills += kill(process.pid if contender != "ours" else child_of(process.pid))
    raise AssertionError("the trace has no end")


def child_of(pid):
    """Returns the process that the supervisor has started, or None between two."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


def kill(pid):
    """Kills a process, if there is one; returns how many it were."""
    if pid is None:
        return 0
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def optimum(work, start, save, moments):
    """Returns the seconds that the trace leaves possible, with the best fixed interval."""
    moments = list(itertools.takewhile(lambda at: at < 100 * work, moments))
    return min(
        simulated(work, start, save, interval / 20, moments)
        for interval in range(4, int(20 * work))
    )


def simulated(work, start, save, interval, moments):
    """Returns the seconds to the end of the work, saved every `interval` seconds of it."""
    now = done = 0.0
    for failure in [*moments, math.inf]:
        at = now + start
        while at < failure and done < work:
            piece = min(interval, work - done)
            at += piece + save
            if at <= failure:
                done += piece
        if done >= work and at <= failure:
            return at
        now = max(now, failure)
    raise AssertionError("no end")


def journal(folder):
    """Returns the events of a run."""
    lines = pathlib.Path(folder, "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def main(work, names):
    """Prints the table."""
    with tempfile.TemporaryDirectory() as scratch:
        timed = subprocess.check_output([sys.executable, str(JOB), "time"], text=True)
        step_secs = json.loads(timed.splitlines()[-1])
        steps, every = int(work / step_secs), max(1, int(PEER_SAVE_SECS / step_secs))
        print(f"{steps} steps of {1000 * step_secs:.2f} ms: {work:g} s of work\n")
        print("| trace | contender | kills | seconds | goodput | ours over it |")
        print("|---|---|---|---|---|---|")
        for number, name in enumerate(names):
            compare(name, steps, every, work, os.path.join(scratch, str(number)))


def compare(name, steps, every, work, scratch):
    """Prints the rows of one trace."""
    os.mkdir(scratch)
    seconds, kills = {}, {}
    for contender in ("ours", "keras", "guide"):
        folder = os.path.join(scratch, contender)
        seconds[contender], kills[contender] = run(contender, folder, steps, every, TRACES[name]())
    events = journal(os.path.join(scratch, "ours"))
    report = goodput.report(events)
    start = (report["secs"]["starting"] + report["secs"]["restoring"]) / report["attempts"]
    save = statistics.median(e["stall_secs"] for e in events if e["event"] == "save")
    seconds["the optimum on this trace"] = optimum(work, start, save, TRACES[name]())
    for contender, secs in seconds.items():
        print(
            f"| {name} | {contender} | {kills.get(contender, '')} | {secs:.1f} "
            f"| {work / secs:.3f} | {secs / seconds['ours']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(float((sys.argv[1:] or ["40"])[0]), sys.argv[2:] or list(TRACES))
