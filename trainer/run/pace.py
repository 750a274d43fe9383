"""How many steps one compiled call may run.

Owns the length of calls, and the judgement whether steps are short. Promises that Python has its
turn every 0.2 s while something waits for it, no more often than it must otherwise, and that steps
are judged by the second call. Refuses to know what waits.
"""

from __future__ import annotations

_TURN_SECS = 0.2
# Of steps below this, two are over before a person or a cluster notices that one would have done.
_SHORT_STEP_SECS = 0.003
# The first call has TensorFlow's own first times in it; the next ones, so long together, tell.
_JUDGED_SECS = 0.01
_JUDGED_AGAIN_SECS = 1.0
# Before steps are judged, a call runs so many at most: a quarter of a second of the shortest.
_UNJUDGED = 2_500
# A step's outputs take some 150 bytes each until the call returns, and 4 from then on. Calls of so
# many steps cost nothing measurable beside longer ones (see benchmarks/scaling.py).
_MOST = 20_000


class Pace:
    """Chooses the number of steps of each call from how long the calls before took.

    Attributes:
        short_steps: whether steps are so short that the way to them counts.

    Args:
        cap: steps in one call at most, as the user set it; None: as many as are good.
    """

    def __init__(self, cap: int | None):
        self._cap = min(cap or _MOST, _MOST)
        self.short_steps = False
        self._steps, self._secs = 0, 0.0  # since `short_steps` was judged last
        self._judged = False
        self._warm = False  # whether there was a call
        self._in_a_turn = 1  # the first call shows how long a step takes

    def limit(self, until_boundary: int | None, *, waited_for: bool) -> int:
        """Returns the number of steps for the next call.

        Args:
            until_boundary: steps to the next one after which Python must have its turn, or None.
            waited_for: whether something that depends on the clock waits for Python as well.
        """
        cap = self._cap if self._judged else min(self._cap, _UNJUDGED)
        most = min(cap, until_boundary or cap)
        return min(most, self._in_a_turn) if waited_for else most

    def record(self, steps: int, secs: float) -> None:
        """Takes note of a call of `steps` steps that took `secs` seconds."""
        if not steps:
            return
        if secs > 0:
            fitting = int(steps * _TURN_SECS / secs)
            self._in_a_turn = max(1, min(fitting, 8 * self._in_a_turn, self._cap))
        if not self._warm:
            self._warm = True
            return
        self._steps += steps
        self._secs += secs
        if self._secs >= (_JUDGED_AGAIN_SECS if self._judged else _JUDGED_SECS):
            self.short_steps = self._secs < self._steps * _SHORT_STEP_SECS
            self._steps, self._secs, self._judged = 0, 0.0, True
