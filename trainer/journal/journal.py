"""The run's diary: `journal.jsonl`, one line an event.

Owns the file's format: a JSON object a line with `time` (seconds since 1970, for display and for
the time between processes), `clock` (monotonic seconds, for the time within one), `event`, and what
belongs to that event. Promises that a line cut short by a crash neither hides the
lines before it nor spoils the one after it, and that a diary that cannot be written never stops a
run. Refuses to be read for recovery, which looks at the checkpoints alone; only the automatic
interval of saves counts the failures in it.

    start     process, host, seed, process_secs (since the process began), last_seen (time and step
              of the last heartbeat before)
    restore   step, steps_lost, secs
    train     step: training begins
    save      step, stall_secs (training stood still), write_secs (snapshot to disk), bytes
    skip      step, writing: left out, since that checkpoint was still being written; the first
    failure   step, error: a save that failed
    rewind    step, set_aside
    rollback  step (gone back to), left_out, error
    retry     step (gone back to), error
    preemption  step, signal: a stop signal ended the run
    attempt   number, command: a supervisor starts it
    ended     number, status, newest: it has ended
    stop      step, reason, error
"""

from __future__ import annotations

import json
import time
from typing import Any

from trainer.base.log import LOG
from trainer.checkpoints import files as files_module

NAME = "journal.jsonl"


class Journal:
    """The diary of one run folder.

    Args:
        files: the file operations.
        folder: the run folder.
    """

    def __init__(self, files: files_module.Files, folder: str):
        self._files = files
        self._path = files.join(folder, NAME)
        self._whole = False  # whether the last line is known to have an end
        self._failed = False

    def note(self, event: str, **what: Any) -> None:
        """Appends one line.

        Args:
            event: which kind of event.
            **what: what belongs to it, JSON-able.
        """
        now = {"time": round(time.time(), 3), "clock": round(time.monotonic(), 3)}
        line = json.dumps({**now, "event": event, **what}) + "\n"
        try:
            # A line that a crash cut short gets an end first, so that it spoils nothing.
            self._files.append(self._path, (self._missing_end() + line).encode())
            self._whole = True
        except OSError as error:
            self._whole = False
            if not self._failed:
                LOG.warning("could not write %s (%s); training goes on", self._path, error)
            self._failed = True

    def _missing_end(self) -> str:
        if self._whole:
            return ""
        try:
            content = self._files.read(self._path)
        except FileNotFoundError:
            return ""
        return "" if content.endswith(b"\n") or not content else "\n"


def read(files: files_module.Files, folder: str) -> list[dict[str, Any]]:
    """Returns the events in order; lines that are no JSON object are passed over.

    Args:
        files: the file operations.
        folder: the run folder.
    """
    try:
        content = files.read(files.join(folder, NAME))
    except FileNotFoundError:
        return []
    events = []
    for line in content.decode(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events
