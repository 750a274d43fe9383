"""Starting a training command again when it ends before it is done.

Owns the process that it starts, and the decision whether to start it once more. Promises that a
preempted run (status 75) is restarted without spending the budget of failures, that Ctrl-C and bad
flags end it, that restarts which make no progress come to an end, and that the command does not
outlive it. Refuses to look into the command: it sees its status, and the newest checkpoint.

The command runs in a process group of its own, so that a Ctrl-C in a terminal reaches it once, by
way of this process. Signals go to the command alone: its workers must live until it has saved. A
shell script around it should `exec` it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import signal
import subprocess
import time
import types
from collections.abc import Sequence

from trainer.base import clock
from trainer.base.log import LOG
from trainer.checkpoints import folder as checkpoint_folder
from trainer.journal import journal

PREEMPTED, INTERRUPTED, BAD_FLAGS = 75, 130, 2
_LONGEST_PAUSE_SECS = 600.0
_PR_SET_PDEATHSIG = 1
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@dataclasses.dataclass(frozen=True)
class Request:
    """What to supervise.

    Args:
        command: the command line.
        model_dir: folder of the run, where progress shows.
        max_restarts: restarts after failures at most; preemptions are free.
        backoff_secs: pause before the first restart after a failure; it doubles with each that
            makes no progress, up to ten minutes.
        max_idle_restarts: restarts in a row without a newer checkpoint at most.
    """

    command: Sequence[str]
    model_dir: str
    max_restarts: int
    backoff_secs: float
    max_idle_restarts: int = 3


class Supervisor:
    """Runs one request.

    Args:
        request: what to supervise.
    """

    def __init__(self, request: Request):
        self._request = request
        self._folder = checkpoint_folder.Folder(request.model_dir)
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: int | None = None  # the stop signal that this process got
        self._attempt = self._failures = self._idle = self._still = 0

    def run(self) -> int:
        """Runs the command until it is done or given up; returns its last status."""
        before = {number: signal.signal(number, self._forward) for number in _FORWARDED}
        try:
            while True:
                newest = self._newest()
                status = self._run_once()
                moved = self._newest() != newest
                self._still = 0 if moved else self._still + 1
                self._idle = 0 if moved else self._idle + (self._attempt > 1)
                if not self._goes_on(status):
                    return status if status >= 0 else 128 - status
                self._pause(status)
                if self._asked is not None:
                    return PREEMPTED if self._asked == signal.SIGTERM else INTERRUPTED
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run_once(self) -> int:
        self._attempt += 1
        self._note("attempt", number=self._attempt, command=list(self._request.command))
        self._process = subprocess.Popen(
            self._request.command,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 (no thread runs in this process)
        )
        if self._asked is not None:  # it came before there was anything to send it to
            self._send(self._asked)
        status = self._process.wait()
        self._process = None
        self._note("ended", number=self._attempt, status=status, newest=self._newest())
        return status

    def _goes_on(self, status: int) -> bool:
        """Decides whether to restart, and says why not."""
        if status == 0 or self._asked is not None or status in (INTERRUPTED, -signal.SIGINT):
            return False
        if status == BAD_FLAGS:
            LOG.error("status 2: the command's flags are wrong, so a restart would not help")
            return False
        self._failures += status != PREEMPTED
        if self._idle >= self._request.max_idle_restarts:
            LOG.error(
                "given up: %d restarts in a row have not moved the newest checkpoint (%s); %s",
                self._idle,
                self._newest(),
                self._place(status),
            )
            return False
        if self._failures > self._request.max_restarts:
            LOG.error("given up: --max_restarts=%d are used up", self._request.max_restarts)
            return False
        return True

    def _place(self, status: int) -> str:
        """Returns a sentence on the step that ends the command again and again."""
        stops = [event for event in self._events() if event["event"] in ("attempt", "stop")]
        if stops and stops[-1]["event"] == "stop" and "step" in stops[-1]:
            said = stops[-1].get("error", stops[-1].get("reason"))
            return f"the last one ended in the step after {stops[-1]['step']}: {said}"
        newest = self._newest()
        where = "before the first checkpoint" if newest is None else f"after step {newest}"
        return f"the last one ended {where}, with status {status}"

    def _pause(self, status: int) -> None:
        secs = 0.0
        if status != PREEMPTED:
            secs = min(
                self._request.backoff_secs * 2.0 ** max(0, self._still - 1), _LONGEST_PAUSE_SECS
            )
        LOG.warning(
            "the command ended with status %d, newest checkpoint %s; starting it again in %.3g s",
            status,
            self._newest(),
            secs,
        )
        until = clock.now() + secs
        while self._asked is None and clock.now() < until:
            time.sleep(min(0.05, secs))

    def _forward(self, number: int, frame: types.FrameType | None) -> None:
        if number != signal.SIGUSR1:
            self._asked = number
        self._send(number)

    def _send(self, number: int) -> None:
        process = self._process
        if process is not None:
            process.send_signal(number)  # nothing, if it has ended

    def _newest(self) -> int | None:
        with contextlib.suppress(OSError):
            found = self._folder.newest()
            return None if found is None else found.step
        return None

    def _events(self) -> list[dict[str, object]]:
        return journal.read(self._folder.files, self._folder.folder)

    def _note(self, event: str, **what: object) -> None:
        """Writes to the run's journal, which the command makes at its first start."""
        if os.path.isdir(self._folder.folder):
            journal.Journal(self._folder.files, self._folder.folder).note(event, **what)


def _die_with_parent() -> None:
    """In the child: SIGTERM if the supervisor dies, so that it saves and ends too (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
