"""The processes of a proof.

Owns the command that is run, the job that each process is given (see `base.probe`) and what is left
of it: the exit status, the log, the reports. Promises that a kill which did not happen is told.
Refuses to choose a kill, or to judge what is reported.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.base import probe


class ProofError(Exception):
    """A run did not do what the proof needs."""


@dataclasses.dataclass(frozen=True)
class Told:
    """What is left of the processes that ran in one folder.

    Args:
        status: exit status of the last one.
        runs: name of a run to what its last `train()` reported, in the order of their beginnings.
        folder: where the reports are.
        log: the last lines of the last one.
    """

    status: int
    runs: Mapping[str, dict[str, Any]]
    folder: str
    log: str

    def outputs(self, run: str) -> dict[int, dict[str, Any]]:
        """Returns step to name to value; a step that ran twice has the later values."""
        found: dict[int, dict[str, Any]] = {}
        for line in _lines(os.path.join(self.folder, f"{run}.outputs")):
            for name, values in line["outputs"].items():
                for step, value in enumerate(values, line["first"]):
                    found.setdefault(step, {})[name] = value
        return found

    def values(self, run: str) -> str:
        """Returns the file of the values in which a run ended."""
        return os.path.join(self.folder, f"{run}.npz")


class Life:
    """A process that runs the command; its log goes to a file, so that no pipe can fill up.

    Args:
        command: the command.
        number: of the process among those with this folder.
        job: what is asked of it.
    """

    def __init__(self, command: Sequence[str], number: int, job: probe.Job):
        self._job = job
        self._log = f"{job.folder}.{number}.log"
        path = f"{job.folder}.{number}.job"
        probe.write(job, path)
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, probe.VARIABLE: path}
        try:
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        except OSError as error:
            raise ProofError(f"the command cannot be run: {error}") from None

    def status(self) -> int:
        """Waits for the end and returns the exit status."""
        return self._process.wait()

    def was_killed(self) -> str | None:
        """Waits for the end and returns where the kill was, or None if it did not happen."""
        self.status()
        if not os.path.exists(self._job.mark):
            return None
        with open(self._job.mark) as mark:
            return mark.read()

    def told(self) -> Told:
        """Waits for the end and returns what was reported."""
        status, folder, runs = self.status(), f"{self._job.folder}.told", {}
        names = os.listdir(folder) if os.path.isdir(folder) else []
        paths = [os.path.join(folder, name) for name in names if name.endswith(".json")]
        for path in paths:
            with open(path) as file:
                runs[os.path.basename(path).removesuffix(".json")] = json.load(file)
        ordered = dict(sorted(runs.items(), key=lambda item: (item[1]["begun"], item[0])))
        return Told(status, ordered, folder, self.tail())

    def places(self) -> list[dict[str, Any]]:
        """Waits for the end and returns where kills are possible."""
        self.status()
        return _lines(f"{self._job.folder}.places")

    def end(self) -> None:
        """Kills the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def tail(self, lines: int = 30) -> str:
        """Returns the last lines of the log."""
        with open(self._log, errors="replace") as log:
            return "\n".join(log.read().strip().splitlines()[-lines:])


def command_of(target: str, flags: Sequence[str], command: Sequence[str]) -> list[str]:
    """Returns what to run: the command, or this Python with the class that is the target."""
    if command:
        return list(command)
    return [sys.executable, "-m", "trainer.testing.prove_run", target, *flags]


def _lines(path: str) -> list[dict[str, Any]]:
    """Returns the lines of a file of JSON; a kill may have cut the last of some process."""
    if not os.path.exists(path):
        return []
    found = []
    with open(path) as file:
        for line in file:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
