"""When to save.

Owns the decision and its three rules: every so many steps, every so many seconds, or as often as a
share of the training time allows. Promises to look at no clock: the time is an argument. Refuses to
write anything.

The automatic interval is the longer of `cost / overhead` and, where failures are on record, the one
that loses least to saves and to repeated work together, `sqrt(2 * cost * mean time between
failures)` (J. W. Young, CACM 17(9), 1974; J. T. Daly, FGCS 22(3), 2006); ten minutes at most. What
keeps training waiting stays within its share of the time even so.
"""

from __future__ import annotations

import math

_LONGEST_SECS = 600.0
_FIRST_GUESS_SECS = 0.1  # until the first save is measured: one save after 10 s at a share of 1 %


class Policy:
    """Decides whether a save is due.

    Args:
        every_steps: save at the multiples of this, or None.
        every_secs: save when this many seconds have passed since the last save, or None.
        overhead: share of the time that saves may cost; used when both intervals are None.
        mean_secs_between_failures: seconds of training per failure so far; None: no failure yet.
        now: seconds on a monotonic clock.
    """

    def __init__(
        self,
        *,
        every_steps: int | None,
        every_secs: float | None,
        overhead: float,
        mean_secs_between_failures: float | None = None,
        now: float,
    ):
        self._every_steps = every_steps
        self._every_secs = every_secs
        self._overhead = overhead
        self._mean_secs = mean_secs_between_failures
        self._automatic_secs = _FIRST_GUESS_SECS / overhead
        self._last = now

    @property
    def watches_clock(self) -> bool:
        """Whether a save may come due between the steps that `next_step` names."""
        return self._every_steps is None or self._every_secs is not None

    def next_step(self, step: int) -> int | None:
        """Returns the next step after `step` at which a save is due for certain, or None."""
        if self._every_steps is None:
            return None
        return step - step % self._every_steps + self._every_steps

    def is_due(self, step: int, now: float) -> bool:
        """Tells whether to save after `step` completed steps, at monotonic time `now`."""
        if self._every_steps is not None and step % self._every_steps == 0:
            return True
        if not self.watches_clock:
            return False
        return now - self._last >= (self._every_secs or self._automatic_secs)

    def begun(self, now: float) -> None:
        """Takes note of a save that was begun, or left out, at `now`."""
        self._last = now

    def cost(self, stall_secs: float, write_secs: float) -> None:
        """Takes note of what the save that was begun last has cost.

        Args:
            stall_secs: how long it kept training waiting.
            write_secs: how long it took in all, from the snapshot to the disk.
        """
        self._last += stall_secs
        wanted = write_secs / self._overhead
        if self._mean_secs is not None:
            wanted = max(wanted, math.sqrt(2 * write_secs * self._mean_secs))
        self._automatic_secs = max(stall_secs / self._overhead, min(wanted, _LONGEST_SECS))
