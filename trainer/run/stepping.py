"""One compiled call: from where the run is to the next boundary that needs Python.

Owns the choice of that boundary, what becomes of a call's results, and the hooks around it.
Promises that the step as an int, the data position and the history move together, and that a state
that is of no whole step is marked so that nothing saves it. Refuses to know why a boundary is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from trainer import errors
from trainer.graph import compiled
from trainer.hooks import context
from trainer.run import construction
from trainer.run.pace import Pace


def to_next_boundary(
    parts: construction.Parts,
    pace: Pace,
    boundaries: Iterable[int | None],
    *,
    waited_for: bool,
) -> compiled.Call:
    """Runs steps in the graph up to the first boundary, or fewer.

    Args:
        parts: the trainer's parts.
        pace: how many steps one call may run.
        boundaries: steps at which Python must have its turn; None for "never".
        waited_for: whether something that depends on the clock waits for Python.

    Raises:
        TrainerError: an earlier call was interrupted, or XLA cannot compile the step.
        Exception: what the step raised, with its number in a note.
    """
    if parts.torn is not None:
        raise errors.TrainerError(
            f"{parts.torn}, so the state in memory is that of no whole step; construct the trainer "
            "again or call restore()"
        )
    first = parts.step + 1
    left_out = [step - 1 for step in parts.content.left_out if step > first]
    boundary = min((b for b in (*boundaries, *left_out) if b is not None), default=None)
    until = None if boundary is None else boundary - parts.step
    limit = pace.limit(until, waited_for=waited_for or parts.hooks.look_on)
    if limit != until:
        limit = parts.hooks.last_look(parts.step, limit)
    begun = parts.stopwatch.read()
    parts.torn = f"step {first} or a later one was interrupted"
    call = run(parts, limit, short_steps=pace.short_steps)
    ended = parts.stopwatch.read()
    pace.took(call.steps, ended - begun)
    parts.history.forget_before(parts.hooks.history_start(parts.step))
    parts.history.add(first, call.steps, call.series, (begun, ended))
    parts.step += call.steps
    parts.source.drawn(call.steps)
    parts.torn = None
    parts.loop.prepare(parts.source.iterator, short_steps=pace.short_steps)
    if not call.finite:
        parts.torn = f"step {parts.step} returned an output that is not finite"
    return call


def show(
    parts: construction.Parts,
    call: compiled.Call,
    ctx: context.RunContext,
    newest: Callable[[], int | None],
) -> None:
    """Shows the steps of a call to the hooks that are due at them.

    Args:
        parts: the trainer's parts.
        call: the call.
        ctx: the context of the hooks.
        newest: tells the newest checkpoint's step, for the message of an error.

    Raises:
        NonFiniteError: an output of the last step was NaN or infinite; no hook sees that step.
    """
    first, last = parts.step - call.steps + 1, parts.step - (not call.finite)
    if last >= first:
        call_hooks(parts, parts.hooks.after_steps, ctx, first, last)
    if not call.finite:
        ctx.step = parts.step
        _raise_non_finite(parts.step, call, newest())


def call_hooks(
    parts: construction.Parts, call: Callable[..., None], ctx: context.RunContext, *steps: int
) -> None:
    """Calls the hooks of a step; if one raises, the step is no whole one.

    Args:
        parts: the trainer's parts.
        call: calls them, given the context and `steps`.
        ctx: the context.
        *steps: first and last step of the compiled call.
    """
    parts.in_step_hooks = True
    try:
        call(ctx, *steps)
    except BaseException:
        parts.torn = f"a hook raised at step {ctx.step} and others have not been called"
        raise
    finally:
        parts.in_step_hooks = False


def run(parts: construction.Parts, limit: int, *, short_steps: bool = False) -> compiled.Call:
    """Runs steps in the graph, or passes over one that is to be left out.

    Args:
        parts: the trainer's parts; neither `step` nor the data's position moves.
        limit: steps at most; none of them but the first may be one that is to be left out.
        short_steps: whether they are short.
    """

    def once() -> compiled.Call:
        if parts.step + 1 in parts.content.left_out:
            return parts.loop.pass_over(parts.source.iterator)
        return parts.loop.run(parts.source.iterator, limit, short_steps=short_steps)

    try:
        call = once()
        if not call.steps and parts.source.open_next_epoch():
            call = once()
    except BaseException as error:
        failed = int(parts.counter) + 1
        parts.torn, parts.failed = f"step {failed} raised {type(error).__name__}", error
        errors.add_note(error, f"raised by train_step at step {failed}")
        if isinstance(error, tf.errors.OpError) and "tf2xla conversion failed" in error.message:
            raise _no_xla(error) from error
        raise
    return call


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


def _raise_non_finite(step: int, call: compiled.Call, saved_step: int | None) -> None:
    bad = {
        name: float(values[-1])
        for name, values in call.series.items()
        if values.dtype.is_floating and not np.isfinite(float(values[-1]))
    }
    name = next(iter(bad))
    raise errors.NonFiniteError(step, name, bad[name], saved_step)
