"""Undoing a step whose output jumps.

Owns the comparison with the steps before. Promises to look at numbers alone, so that it costs no
call, and to judge each step alike in a cut and in an unbroken run. Refuses to go back by itself:
the trainer does, within `max_rollbacks`.
"""

from __future__ import annotations

import collections
import math
import statistics
from typing import Any

from trainer import errors
from trainer.hooks import context
from trainer.hooks.hook import Hook


class RollbackOnSpike(Hook):
    """Goes back to the newest checkpoint when an output jumps, and leaves that batch out for good.

    A jump to NaN or infinity is the trainer's own matter: `on_nonfinite="rollback"`.

    Args:
        output: name of the output, of which small is good, such as "loss".
        factor: a jump is a value above this many times the median of the steps before; above 1.
        window: steps that the median is taken over; no step is judged before there are so many.

    Raises:
        ValueError: `factor` or `window` is too small.
    """

    only_outputs = True
    may_refuse = True

    def __init__(self, output: str, factor: float = 3.0, window: int = 50):
        if not factor > 1:
            raise ValueError(f"factor must be above 1, got {factor!r}")
        if window < 1:
            raise ValueError(f"window must be at least 1, got {window!r}")
        self._output = output
        self._factor = factor
        self._window = window
        self._before: collections.deque[float] = collections.deque(maxlen=window)

    def after_step(self, ctx: context.RunContext) -> None:
        """Judges the step."""
        if self._output not in ctx.outputs:
            raise ValueError(f"there is no output {self._output!r}; there are {[*ctx.outputs]}")
        value = float(ctx.outputs[self._output])
        if math.isnan(value):  # left out: this step has no value
            return
        if len(self._before) == self._window:
            usual = statistics.median(self._before)
            if value > self._factor * abs(usual):
                raise errors.StepRefusedError(
                    ctx.step,
                    f"{self._output} is {value:.6g}, above {self._factor:g} times the median "
                    f"{usual:.6g} of the {self._window} steps before",
                )
        self._before.append(value)

    def get_state(self) -> dict[str, Any]:
        """Returns the values of the steps before."""
        return {"before": list(self._before)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes them back.

        Args:
            state: what `get_state` returned.
        """
        self._before = collections.deque(state["before"], maxlen=self._window)
