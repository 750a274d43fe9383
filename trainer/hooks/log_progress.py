"""A line of progress every so many steps.

Owns the text of the line. Promises to look only at what the context gives, so that a resumed run
prints the same steps and values as an unbroken one. Refuses to draw bars: a line is fit for a file.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.base.log import LOG
from trainer.hooks import context
from trainer.hooks.hook import Hook


class LogProgress(Hook):
    """Logs step, outputs, speed and time left.

    Each output is shown as its mean over the steps since the last line. Speed counts the time
    between two lines of this process; the time to restore and to trace is no part of it.

    Args:
        every_steps: steps between two lines.
    """

    only_outputs = True

    def __init__(self, every_steps: int = 100):
        self.every_steps = every_steps
        self._since: tuple[int, float] | None = None

    def begin(self, ctx: context.RunContext) -> None:
        """Says where the run starts."""
        self._since = None
        most = ctx.trainer.config.max_steps
        LOG.info("step %d%s", ctx.step, "" if most is None else f"/{most}")

    def after_step(self, ctx: context.RunContext) -> None:
        """Logs the line."""
        most = ctx.trainer.config.max_steps
        parts = [f"step {ctx.step}" if most is None else f"step {ctx.step}/{most}"]
        parts += [f"{name} {_mean(values):.6g}" for name, values in ctx.history.items()]
        now = ctx.trained_secs
        if self._since is not None and now > self._since[1]:
            speed = (ctx.step - self._since[0]) / (now - self._since[1])
            parts.append(f"{speed:.1f} steps/s")
            if most is not None and most > ctx.step:
                parts.append(f"{(most - ctx.step) / speed:.1f} s left")
        self._since = (ctx.step, now)
        LOG.info("%s", "  ".join(parts))

    def get_state(self) -> dict[str, object]:
        """Returns nothing: the line depends on the step alone."""
        return {}


def _mean(values: npt.NDArray[np.float32]) -> float:
    """Returns the mean over the steps that were trained: one that was left out shows as NaN."""
    trained = values[~np.isnan(values)]
    return float(trained.mean()) if trained.size else float("nan")
