"""When to save.

Owns the decision and its three rules: every so many steps, every so many seconds, or as often as a
share of the training time allows. Promises to look at no clock: the time is an argument. Refuses to
write anything.
"""

from __future__ import annotations


class Policy:
    """Decides whether a save is due.

    Args:
        every_steps: save at the multiples of this, or None.
        every_secs: save when this many seconds have passed since the last save, or None.
        overhead: share of the time that saves may cost; used when both intervals are None.
        now: seconds on a monotonic clock.
    """

    def __init__(
        self, *, every_steps: int | None, every_secs: float | None, overhead: float, now: float
    ):
        self._every_steps = every_steps
        self._every_secs = every_secs
        self._overhead = overhead
        self._automatic = every_steps is None and every_secs is None
        self._cost = _FIRST_GUESS_SECS
        self._last = now

    def next_step(self, step: int) -> int | None:
        """Returns the next step after `step` at which a save is due for certain, or None."""
        if self._every_steps is None:
            return None
        return step - step % self._every_steps + self._every_steps

    def is_due(self, step: int, now: float) -> bool:
        """Tells whether to save after `step` completed steps, at monotonic time `now`."""
        if self._every_steps is not None and step % self._every_steps == 0:
            return True
        if self._every_secs is not None:
            return now - self._last >= self._every_secs
        return self._automatic and now - self._last >= self._cost / self._overhead

    def saved(self, now: float, cost_secs: float) -> None:
        """Takes note of a save that ended at `now` and kept training waiting for `cost_secs`."""
        self._last = now
        self._cost = cost_secs

    def failed(self, now: float) -> None:
        """Takes note of a save that failed at `now`: the next one is due an interval later."""
        self._last = now


_FIRST_GUESS_SECS = 0.1  # until the first save is measured: one save after 10 s at a share of 1 %
