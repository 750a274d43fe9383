"""One compiled call: from where the run is to the next boundary that needs Python.

Owns the choice of that boundary, and the hooks around a call. Promises that a state that is of no
whole step is marked so: after a step that raised, after a hook that raised before the others of its
step were called. Refuses to know why a boundary is one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from trainer import errors
from trainer.graph import bad_numbers, compiled
from trainer.hooks import context
from trainer.run import metric_outputs
from trainer.run.pace import Pace
from trainer.run.parts import Parts


class Stepper:
    """The compiled calls of one trainer, with the hooks around them.

    Args:
        parts: the trainer's parts.
        steps_per_call: steps in one call at most; None: as many as are good.
    """

    def __init__(self, parts: Parts, steps_per_call: int | None):
        self._parts = parts
        self._pace = Pace(steps_per_call)

    def call_before(self, ctx: context.RunContext) -> None:
        """Calls the hooks that are due before the next step."""
        with self._hooks_of(ctx):
            self._parts.hooks.before_step(ctx)

    def run(self, boundaries: Iterable[int | None], *, waited_for: bool) -> compiled.Call:
        """Runs steps in the graph up to the first boundary, or fewer.

        Args:
            boundaries: steps at which Python must have its turn; None for "never".
            waited_for: whether something that depends on the clock waits for Python.

        Raises:
            TrainerError: an earlier call was interrupted, or XLA cannot compile the step.
            Exception: what the step raised, with its number in a note.
        """
        parts, progress = self._parts, self._parts.progress
        progress.check_whole()
        limit = self._limit(boundaries, waited_for)
        begun = parts.stopwatch.read()
        progress.enter_call()
        call = run_steps(parts, limit, short_steps=self._short_steps)
        ended = parts.stopwatch.read()
        self._pace.record(call.steps, ended - begun)
        progress.history.forget_before(parts.hooks.memory_start(progress.step))
        progress.advance(call, (begun, ended))
        return call

    def call_after(
        self, call: compiled.Call, ctx: context.RunContext, newest: Callable[[], int | None]
    ) -> None:
        """Shows the steps of a call to the hooks that are due at them.

        Args:
            call: the call.
            ctx: the context of the hooks.
            newest: tells the newest checkpoint's step, for the message of an error.

        Raises:
            NonFiniteError: an output of the last step was NaN or infinite; no hook sees that step.
        """
        step = self._parts.progress.step
        first, last = step - call.steps + 1, step - (not call.finite)
        if last >= first:
            with self._hooks_of(ctx):
                self._parts.hooks.after_steps(ctx, first, last)
        if not call.finite:
            ctx.step = step
            raise bad_numbers.error_of_step(step, call.series, newest())

    @property
    def _short_steps(self) -> bool:
        """Whether steps are short, and batches may be drawn while the step before them runs."""
        return self._pace.short_steps and self._parts.progress.source.ahead

    def _limit(self, boundaries: Iterable[int | None], waited_for: bool) -> int:
        """Returns how many steps the next call may run."""
        parts, step = self._parts, self._parts.progress.step
        left_out = [other - 1 for other in parts.content.left_out if other > step + 1]
        boundaries = *boundaries, *left_out, *self._boundaries_of_metrics()
        boundary = min((b for b in boundaries if b is not None), default=None)
        until = None if boundary is None else boundary - step
        waited_for = waited_for or parts.hooks.any_only_outputs
        limit = self._pace.limit(until, waited_for=waited_for)
        return limit if limit == until else parts.hooks.limit_for_only_outputs(step, limit)

    def _boundaries_of_metrics(self) -> Iterator[int | None]:
        """Yields where calls end for metrics, whose values are known after a call alone."""
        parts, progress = self._parts, self._parts.progress
        if progress.metrics:
            yield parts.hooks.next_boundary(progress.step, only_outputs=True)
            left = progress.metrics.end_of_pass(progress.source)
            yield None if left is None else progress.step + left

    @contextlib.contextmanager
    def _hooks_of(self, ctx: context.RunContext) -> Iterator[None]:
        """If a hook raises, the others of its step are not called, so that it is no whole step."""
        try:
            yield
        except BaseException:
            self._parts.progress.mark_unsavable(
                f"a hook raised at step {ctx.step} and others have not been called"
            )
            raise


def run_steps(parts: Parts, limit: int, *, short_steps: bool = False) -> compiled.Call:
    """Runs steps in the graph, or passes over one that is to be left out.

    Args:
        parts: the trainer's parts; where the run is does not move.
        limit: steps at most; none of them but the first may be one that is to be left out.
        short_steps: whether they are short.
    """
    progress, loop = parts.progress, parts.loop
    left_out = progress.step + 1 in parts.content.left_out
    try:
        while True:
            iterator = progress.source.iterator
            before = progress.metrics.begin_pass(progress.source)
            call = (
                loop.pass_over(iterator)
                if left_out
                else loop.run(iterator, limit, short_steps=short_steps)
            )
            if not call.steps:
                metric_outputs.put_back(before)  # there was no pass to begin
            if call.steps or not progress.source.open_next_epoch():
                return call
    except BaseException as error:
        errors.add_note(error, f"raised by train_step at step {progress.fail(error)}")
        if isinstance(error, tf.errors.OpError) and "tf2xla conversion failed" in error.message:
            raise _no_xla(error) from error
        raise


def _no_xla(error: tf.errors.OpError) -> errors.TrainerError:
    """Returns what to tell whoever asked for XLA and uses what it has not."""
    operations = re.findall(r"(\w+) \(No registered '\1' OpKernel", error.message)
    lines = re.findall(r"(File .*, in train_step)", error.message)
    said = ", ".join(dict.fromkeys(operations)) or error.message.splitlines()[0]
    place = f" ({lines[-1]})" if lines else ""
    return errors.TrainerError(
        f"XLA cannot compile train_step: {said}{place}; set jit_compile=False, or replace the "
        "operation"
    )
