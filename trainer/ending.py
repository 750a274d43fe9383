"""Why a run ends.

Owns the goal of a `train()` and the reasons for which it is over. Promises that a stop that a hook
asked for is kept in the state, and that each reason is said in one line. Refuses to run a step.
"""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any

from trainer import assembly, compiled, config, context, tuning
from trainer.log import LOG


@dataclasses.dataclass(frozen=True)
class Goal:
    """What one `train()` was asked for.

    Args:
        step: the step to end at; None: at the end of the data.
        more: asked for as so many steps more, which overrules an earlier stop.
    """

    step: int | None
    more: bool


def goal(
    here: int, max_steps: int | None, steps: int | None, settings: config.TrainerConfig
) -> Goal:
    """Returns the goal that arguments and config describe.

    Args:
        here: completed steps.
        max_steps: argument of `train()`.
        steps: argument of `train()`.
        settings: the config.

    Raises:
        ValueError: both arguments are given, one is below 1, or no end is given anywhere.
    """
    max_steps = check_count("max_steps", max_steps)
    steps = check_count("steps", steps)
    if max_steps is not None and steps is not None:
        raise ValueError(
            f"train(max_steps={max_steps}, steps={steps}): give one of them: max_steps is a total, "
            "steps counts from here"
        )
    if steps is not None:
        LOG.info("training %d more steps, from step %d to %d", steps, here, here + steps)
        return Goal(here + steps, more=True)
    total = settings.max_steps if max_steps is None else max_steps
    if total is None and settings.epochs is None:
        raise ValueError(
            "no end is given: set max_steps or epochs in the config, or call train(max_steps=...) "
            "or train(steps=...)"
        )
    return Goal(total, more=False)


def before_it_began(wanted: Goal, parts: assembly.Parts) -> str | None:
    """Returns "already_finished" if there is nothing to train, else None."""
    if wanted.step is not None and parts.step >= wanted.step:
        if parts.step == wanted.step:
            LOG.info("already at step %d of %d: nothing to train", parts.step, wanted.step)
        else:
            LOG.info(
                "the checkpoint is at step %d, past the target of %d: nothing to train",
                parts.step,
                wanted.step,
            )
        return "already_finished"
    stop = parts.content.stop
    if stop is not None and not wanted.more and not _is_further(wanted.step, stop["target"]):
        LOG.info(
            "hook %s stopped this run at step %d (%s): nothing to train; a larger max_steps or "
            "train(steps=...) goes on",
            stop["hook"],
            stop["step"],
            stop["reason"],
        )
        return "already_finished"
    parts.content.stop = None
    if wanted.step is not None:
        tuning.warn_of_ended_schedules(parts.content.optimizers, wanted.step)
    return None


def asked_for(wanted: Goal, parts: assembly.Parts, ctx: context.RunContext) -> str | None:
    """Returns "stopped" if a hook asked to stop, and keeps that in the state."""
    if ctx.stop is None:
        return None
    if parts.content.stop is None:
        parts.content.stop = {**ctx.stop, "step": parts.step, "target": wanted.step}
        LOG.info("hook %s asked to stop (%s)", ctx.stop["hook"], ctx.stop["reason"])
    return "stopped"


def at_last(wanted: Goal, parts: assembly.Parts, ctx: context.RunContext, reason: str) -> str:
    """Returns the reason of the end, now that a hook may have asked to stop at the last moment."""
    if reason == "already_finished":
        return reason  # nothing was trained, so there is nothing to keep
    return asked_for(wanted, parts, ctx) or reason


def after_call(
    wanted: Goal, parts: assembly.Parts, ctx: context.RunContext, call: compiled.Call
) -> str | None:
    """Returns the reason for which the run is over after a compiled call, or None.

    Raises:
        ValueError: the data gave no batch at all.
    """
    if ctx.stop is not None:
        return asked_for(wanted, parts, ctx)
    if wanted.step is not None and parts.step >= wanted.step:
        return "finished"
    if call.steps or not call.ended:
        return None  # if the data has ended, the next call will tell
    if parts.step == 0:
        raise ValueError("train_dataset() gave no batch; give it at least one")
    if wanted.step is None:
        return "finished" if parts.step > ctx.start_step else "already_finished"
    LOG.warning("the data ended early, after step %d of %d", parts.step, wanted.step)
    return "out_of_data"


def check_count(name: str, value: Any) -> int | None:
    """Returns a count, or raises `ValueError` unless it is None or a whole number from 1."""
    if value is None:
        return None
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1 or None, got {value!r}")
    return int(value)


def _is_further(wanted: int | None, stopped: int | None) -> bool:
    return wanted is not None and stopped is not None and wanted > stopped
