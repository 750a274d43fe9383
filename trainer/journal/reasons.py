"""Why a run ended, in the words of the journal and of `RunResult.reason`.

Owns the list of reasons and the exit status of each. Promises that after each of them all work is
saved, or was not begun. Refuses to name errors: they are told by themselves.
"""

from __future__ import annotations

import enum


class Reason(str, enum.Enum):
    """Why a run ended; equal to its text."""

    FINISHED = "finished"
    ALREADY_FINISHED = "already_finished"
    STOPPED = "stopped"  # a hook asked
    OUT_OF_DATA = "out_of_data"
    TIME_BUDGET = "time_budget"  # max_secs
    PREEMPTED = "preempted"  # SIGTERM, or max_process_secs
    INTERRUPTED = "interrupted"  # SIGINT

    def __str__(self) -> str:
        return self.value

    @property
    def exit_code(self) -> int:
        """Status for the process: 75 means "run me again"."""
        return {Reason.PREEMPTED: 75, Reason.INTERRUPTED: 130}.get(self, 0)
