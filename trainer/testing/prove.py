"""The proof of exact resume on a user's own program.

Owns the comparison of an unbroken run with a run that is killed again and again. Promises that each
run is a process of its own, that a kill is a SIGKILL at a random place (in a compiled call, between
two steps, in a save), and that the proof fails if a kill did not happen. Refuses to say "exact" for
a step with an operation whose state no checkpoint can hold.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from trainer.base import digests

_LONGEST_DELAY_SECS = 0.05  # from the step at which a kill is armed to the kill


@dataclasses.dataclass(frozen=True)
class Request:
    """What to prove.

    Args:
        target: FILE.py:CLASS.
        steps: steps of each run.
        kills: kills of the second run.
        seed: of the places of the kills, and of both runs unless the flags give one.
        flags: flags of the program.
    """

    target: str
    steps: int
    kills: int
    seed: int
    flags: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of it.

    Args:
        exact: both runs ended in the same state.
        lines: the report.
    """

    exact: bool
    lines: list[str]


class _ProofError(Exception):
    """A run did not do what the proof needs."""


def prove(request: Request) -> Verdict:
    """Runs the proof."""
    with tempfile.TemporaryDirectory(prefix="trainer-prove-") as scratch:
        unbroken = _Run(request, os.path.join(scratch, "unbroken"), 0)
        try:  # at the same time as the other: it has a core of its own
            cut = os.path.join(scratch, "cut")
            lines = _kill_again_and_again(request, cut)
            seen = _Run(request, cut, request.kills).report("the last resume")
            expected = unbroken.report("the unbroken run")
        except _ProofError as error:
            return Verdict(False, [f"not proved: {error}"])
        finally:
            unbroken.end()
    return _judge(request, expected, seen, lines)


class _Run:
    """A process that trains; its log goes to a file, so that no pipe can fill up."""

    def __init__(
        self,
        request: Request,
        folder: str,
        number: int,
        kill_step: int | None = None,
        delay: float = 0.0,
    ):
        job = {
            "target": request.target,
            "steps": request.steps,
            "folder": folder,
            "kill_step": kill_step,
            "delay": delay,
            "flags": [f"--seed={request.seed}", *request.flags],
        }
        self._folder = folder
        self._log = f"{folder}.{number}.log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trainer.testing.prove_run", json.dumps(job)],
                stdout=log,
                stderr=log,
                env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
            )

    def status(self) -> int:
        """Waits for the end and returns the exit status."""
        return self._process.wait()

    def report(self, name: str) -> dict[str, Any]:
        """Waits for the end and returns what the run reports, or raises `_ProofError`."""
        if self.status() != 0:
            raise _ProofError(f"{name} ended with status {self.status()}\n{self.tail()}")
        with open(f"{self._folder}.json") as file:
            report: dict[str, Any] = json.load(file)
        return report

    def end(self) -> None:
        """Kills the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def tail(self, lines: int = 30) -> str:
        """Returns the last lines of the log."""
        with open(self._log, errors="replace") as log:
            return "\n".join(log.read().strip().splitlines()[-lines:])


def _kill_again_and_again(request: Request, folder: str) -> list[str]:
    places = random.Random(request.seed)
    lines = []
    for number, step in enumerate(
        sorted(places.sample(range(1, request.steps + 1), request.kills))
    ):
        run = _Run(request, folder, number, step, places.uniform(0, _LONGEST_DELAY_SECS))
        if run.status() != -signal.SIGKILL:
            raise _ProofError(
                f"kill {number + 1}, armed at step {step}, did not happen: the process ended with "
                f"status {run.status()}\n{run.tail()}"
            )
        lines.append(
            f"kill {number + 1}: armed at step {step}, newest checkpoint {_newest(folder)}"
        )
    return lines


def _judge(
    request: Request, expected: dict[str, Any], seen: dict[str, Any], lines: list[str]
) -> Verdict:
    lines = [
        f"unbroken run: {expected['step']} steps, digest {expected['digest'][:16]}",
        *lines,
        f"cut run: digest {seen['digest'][:16]}",
    ]
    hidden = expected["hidden"]
    if hidden:
        lines += [f"a resumed run will differ because of {text}" for text in hidden]
    name = digests.first_difference(expected["digests"], seen["digests"])
    if name is not None:
        lines += [f"perhaps because of {text}" for text in expected["possible"]]
        lines.append(f"NOT exact: {name} differs first")
    elif hidden:
        lines.append("NOT proved: the digests are equal, yet the operations above may differ")
    else:
        lines.append(f"exact: {len(expected['digests'])} names equal after {request.kills} kills")
    return Verdict(name is None and not hidden, lines)


def _newest(folder: str) -> int | None:
    from trainer.checkpoints import store

    newest = store.Store(folder).newest()
    return None if newest is None else newest.step
