"""When to save.

Owns the decision and its three rules: every so many steps, every so many seconds, or as often as a
share of the training time allows. Promises to look at no clock: the time is an argument. Refuses to
write anything.

The automatic interval is `cost / overhead` or, where failures are on record, the one that loses
least to saves and to repeated work together, `sqrt(2 * cost * mean time between failures)`
(J. W. Young, CACM 17(9), 1974; J. T. Daly, FGCS 22(3), 2006), but at least ten times the cost. It
is ten minutes at most, unless what keeps training waiting would take more than its share then.
"""

from __future__ import annotations

import math

_LONGEST_SECS = 600.0
_MOST_SHARE = 0.1  # of the time for saves, however often runs fail


class Policy:
    """Decides whether a save is due.

    Args:
        every_steps: save at the multiples of this, or None.
        every_secs: save when this many seconds have passed since the last save, or None.
        overhead: share of the time that saves may cost; used when both intervals are None.
        cost_secs: what a save may cost, until the first one is measured.
        failures: how many runs have failed so far.
        trained_secs: for how long all of them trained.
        now: seconds on a monotonic clock.
    """

    def __init__(
        self,
        *,
        every_steps: int | None,
        every_secs: float | None,
        overhead: float,
        cost_secs: float = 0.1,
        failures: int = 0,
        trained_secs: float = 0.0,
        now: float,
    ):
        self._every_steps = every_steps
        self._every_secs = every_secs
        self._overhead = overhead
        self._failures = failures
        self._begun, self._last = now - trained_secs, now
        self._automatic_secs = self._interval(cost_secs)

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
        share = _MOST_SHARE if self._failures else self._overhead
        self._automatic_secs = max(stall_secs / share, self._interval(write_secs))

    def _interval(self, cost_secs: float) -> float:
        wanted = cost_secs / self._overhead
        if self._failures:
            mean_secs = (self._last - self._begun) / self._failures
            wanted = max(math.sqrt(2 * cost_secs * mean_secs), cost_secs / _MOST_SHARE)
        return min(wanted, _LONGEST_SECS)
