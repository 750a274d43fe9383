"""What one `train()` was asked for.

Owns the goal: the step, the data's end or the time to train to. Promises to refuse a `train()` that
has no end. Refuses to tell whether it is reached (see `ending`).
"""

from __future__ import annotations

import dataclasses

from trainer import config
from trainer.base import arguments, probe
from trainer.base.log import LOG


@dataclasses.dataclass(frozen=True)
class Goal:
    """What one `train()` was asked for.

    Args:
        step: the step to end at; None: at the end of the data.
        more: asked for as so many steps more, which overrules an earlier stop.
        secs: seconds of training, over all resumes; None: no bound.
        until: when the time of this process is over, on the monotonic clock; None: never.
    """

    step: int | None
    more: bool
    secs: float | None = None
    until: float | None = None


def goal(
    here: int,
    max_steps: int | None,
    steps: int | None,
    settings: config.TrainerConfig,
    constructed: float,
) -> Goal:
    """Returns the goal that arguments and config describe.

    Args:
        here: completed steps.
        max_steps: argument of `train()`.
        steps: argument of `train()`.
        settings: the config.
        constructed: when the trainer was, on the monotonic clock.

    Raises:
        ValueError: both arguments are given, one is below 1, or no end is given anywhere.
    """
    max_steps = arguments.count("max_steps", max_steps)
    steps = arguments.count("steps", steps)
    if max_steps is not None and steps is not None:
        raise ValueError(
            f"train(max_steps={max_steps}, steps={steps}): give one of them: max_steps is a total, "
            "steps counts from here"
        )
    process_secs = settings.max_process_secs
    until = None if process_secs is None else constructed + process_secs
    if steps is not None:
        LOG.info("training %d more steps, from step %d to %d", steps, here, here + steps)
        more = probe.goal(settings.model_dir, here, here + steps)
        return Goal(more, True, settings.max_secs, until)
    total = settings.max_steps if max_steps is None else max_steps
    if total is None and settings.epochs is None and settings.max_secs is None:
        raise ValueError(
            "no end is given: set max_steps, epochs or max_secs in the config, or call "
            "train(max_steps=...) or train(steps=...)"
        )
    total = probe.goal(settings.model_dir, here, total)
    return Goal(total, False, settings.max_secs, until)
