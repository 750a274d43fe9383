"""The time of a run.

Owns the one clock that decisions look at, which is monotonic, and the seconds of training over all
resumes. Promises that no decision depends on the wall clock. Refuses to decide anything.
"""

from __future__ import annotations

import os
import time


def now() -> float:
    """Returns seconds on a clock that never goes back; tests replace this."""
    return time.monotonic()


def process_secs() -> float | None:
    """Returns the seconds since this process began, or None where Linux's /proc is not there."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
            secs = float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    return round(secs, 3)


class Stopwatch:
    """Seconds of training: runs inside `with`, stands still outside.

    Attributes:
        before: seconds counted before it was last started.
    """

    def __init__(self) -> None:
        self.before = 0.0
        self._since: float | None = None

    def read(self) -> float:
        """Returns the seconds until now."""
        return self.before + (0.0 if self._since is None else now() - self._since)

    def go_to(self, secs: float) -> None:
        """Counts on from so many seconds, running or not.

        Args:
            secs: those of a checkpoint: what was trained since is undone.
        """
        self.before = secs
        self._since = None if self._since is None else now()

    def __enter__(self) -> Stopwatch:
        self._since = now()
        return self

    def __exit__(self, *_: object) -> None:
        self.before = self.read()
        self._since = None
