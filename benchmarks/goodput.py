"""Goodput under failures: a real job killed by a seeded trace, beside Keras and loops by hand.

    python benchmarks/goodput.py [SECONDS_OF_WORK] [TRACE ...]     (default 45 s; all traces)

The same job (so many steps of some milliseconds) is run to its end by this package, with automatic
saves and under `supervise`, and at the same time by each peer in turn: Keras with
`BackupAndRestore`; the custom loop of TensorFlow's migration guide; and that loop in the graph.
They run in processes that are killed (SIGKILL) at the moments of the trace and started again at
once. Goodput is the time that the steps take by themselves over the time from the first start to
the end. (With 45 s of work no failure falls so close to the end that a second decides who meets
it.)

Beside it stands the formula's optimum on the same trace: what remains if starts, saves and the exit
take what they were measured to take here and saves come every sqrt(2 * cost of a save * mean time
between failures) seconds (Young and Daly), on average over where in an interval the failures fall.
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
from concurrent import futures

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from trainer.journal import goodput

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
    "exponential, mean 20 s": (exponential, 20, 4),
    "exponential, mean 60 s": (exponential, 60, 9),
    "bursts, mean 20 s": (bursts, 20, 3),
}
PHASES = 20
PEERS = ("keras", "guide", "graph")


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


def optimum(work, start, save, mean, moments):
    """Returns the seconds that the trace leaves possible with the formula's interval.

    Args:
        work: seconds of steps.
        start: seconds from the start of a process until it trains.
        save: seconds that a save takes.
        mean: seconds between failures.
        moments: the failures.
    """
    interval = math.sqrt(2 * save * mean)
    moments = list(itertools.takewhile(lambda at: at < 100 * work, moments))
    phases = [(number + 0.5) / PHASES for number in range(PHASES)]

    def simulated(first):
        """Returns the seconds if each attempt makes its first save after `first` seconds."""
        now = done = 0.0
        for failure in [*moments, math.inf]:
            at, piece = now + start, first
            while at < failure and done < work:
                piece = min(piece, work - done)
                at += piece + save
                done += piece if at <= failure else 0.0
                piece = interval
            if done >= work and at <= failure:
                return at
            now = max(now, failure)
        raise AssertionError("no end")

    return statistics.mean(simulated(phase * interval) for phase in phases)


def journal(folder):
    """Returns the events of a run."""
    lines = pathlib.Path(folder, "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def starts(events):
    """Returns the events "start" and "train" of each process that came to train."""
    kinds = [event for event in events if event["event"] in ("start", "train")]
    return [pair for pair in itertools.pairwise(kinds) if pair[1]["event"] == "train"]


def main(work, names):
    """Prints the table."""
    with tempfile.TemporaryDirectory() as scratch:
        timed = subprocess.check_output([sys.executable, str(JOB), "time"], text=True)
        step_secs = json.loads(timed.splitlines()[-1])
        steps = int(work / step_secs)
        print(f"{steps} steps of {1000 * step_secs:.2f} ms: {work:g} s of work\n")
        print("| trace | beside | kills | s | goodput | ours: kills | s | goodput | ratio |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in names:
            bests = [compare(name, peer, steps, work, scratch) for peer in PEERS]
            ours, best = (statistics.median(column) for column in zip(*bests, strict=True))
            row(name, "the formula's optimum", work, ("", best), ("", ours))


def compare(name, peer, steps, work, scratch):
    """Prints the row of one peer; returns the seconds that we took, and the optimum's."""
    trace, mean, seed = TRACES[name]
    scratch = tempfile.mkdtemp(dir=scratch)
    every = max(1, round(PEER_SAVE_SECS * steps / work))
    with futures.ThreadPoolExecutor(2) as both:
        theirs, ours = (
            both.submit(run, who, os.path.join(scratch, who), steps, every, trace(mean, seed))
            for who in (peer, "ours")
        )
    (secs, _), events = ours.result(), journal(os.path.join(scratch, "ours"))
    row(name, peer, work, theirs.result()[::-1], ours.result()[::-1])
    start = statistics.median(
        train["time"] - begun["time"] + begun["process_secs"] for begun, train in starts(events)
    )
    save = statistics.median(e["write_secs"] for e in events if e["event"] == "save")
    told = ", ".join(f"{key} {secs:.1f}" for key, secs in goodput.report(events)["secs"].items())
    print(f"ours in seconds: {told}; a start {start:.2f}, a save {save:.3f}", file=sys.stderr)
    end = events[-1]["time"] - events[-2]["time"]  # from the last line of the run to its exit
    return secs, end + optimum(work, start, save, mean, trace(mean, seed))


def row(name, peer, work, theirs, ours):
    """Prints kills, seconds and goodput of both sides, and the ratio of our goodput to theirs."""
    cells = [f"{kills} | {secs:.1f} | {work / secs:.3f}" for kills, secs in (theirs, ours)]
    print(f"| {name} | {peer} | {' | '.join(cells)} | {theirs[1] / ours[1]:.3f} |", flush=True)


if __name__ == "__main__":
    main(float((sys.argv[1:] or ["45"])[0]), sys.argv[2:] or list(TRACES))
