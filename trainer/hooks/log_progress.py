"""A line of progress every so many steps or seconds.

Owns the text of the line. Promises to look only at what the context gives, so that a resumed run
prints the same values as an unbroken one, and by steps also the same lines. Refuses to draw bars: a
line is fit for a file.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.base.log import LOG
from trainer.hooks import context
from trainer.hooks.hook import Hook


class LogProgress(Hook):
    """Logs step, outputs, speed and time left.

    Each output is shown as its mean over the steps since the last line, a metric as it is. Speed
    counts the time between two lines of this process; the time to restore and to trace is no part
    of it.

    Args:
        every_steps: steps between two lines; None: 100, unless `every_secs` is given.
        every_secs: seconds of training between two lines, instead.

    Raises:
        ValueError: both are given.
    """

    only_outputs = True

    def __init__(self, every_steps: int | None = None, *, every_secs: float | None = None):
        if every_steps is not None and every_secs is not None:
            raise ValueError(
                f"LogProgress(every_steps={every_steps!r}, every_secs={every_secs!r}): give one of "
                "them at most"
            )
        if every_secs is not None:
            self.every_secs = every_secs
        else:
            self.every_steps = 100 if every_steps is None else every_steps
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
        metrics = (name for name in ctx.outputs if name not in ctx.history)
        parts += [f"{name} {float(ctx.outputs[name]):.6g}" for name in metrics]
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
