"""Settings of optimizers that are plain Python values, and so are no part of any variable.

Owns the comparison of such settings with those a checkpoint was written under, and the end of a
learning-rate schedule. Promises to refuse a change that would tear a window of accumulated
gradients and to say every other change in one line. Refuses to change a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainer import errors
from trainer.base.log import LOG

Settings = dict[str, dict[str, Any]]
_WINDOW = "gradient_accumulation_steps"


def settings(optimizers: Iterable[tuple[str, Any]]) -> Settings:
    """Returns the scalar settings of each optimizer, by its name.

    Args:
        optimizers: names and Keras optimizers.
    """
    found: Settings = {}
    for name, optimizer in optimizers:
        config = optimizer.get_config()
        found[name] = {
            key: value
            for key, value in config.items()
            if isinstance(value, bool | int | float | None) and key != "learning_rate"
        }
    return found


def compare(path: str, saved: Settings, present: Settings, steps: Mapping[str, int]) -> None:
    """Compares the program's settings with a checkpoint's.

    Args:
        path: folder of the checkpoint, for the message.
        saved: the checkpoint's.
        present: the program's.
        steps: the updates that each optimizer had counted when the checkpoint was written.

    Raises:
        CheckpointMismatchError: a window of accumulated gradients has another length now, and the
            checkpoint lies within one.
    """
    torn = []
    for name in sorted(saved.keys() & present.keys()):
        for key in sorted(saved[name].keys() & present[name].keys()):
            before, now = saved[name][key], present[name][key]
            if before == now:
                continue
            line = f"{name}: {key} {before} in the checkpoint, {now} in the program"
            if key == _WINDOW and steps.get(name, 0) % (before or 1):
                torn.append(
                    f"{line}, and {path} lies within a window; train to a window's end first"
                )
            else:
                LOG.warning("%s; using %s", line, now)
    if torn:
        raise errors.CheckpointMismatchError(path, [], [], torn)


def warn_of_ended_schedules(optimizers: Iterable[tuple[str, Any]], last_step: int) -> None:
    """Says where a learning-rate schedule ends before the run does.

    Args:
        optimizers: names and Keras optimizers.
        last_step: step at which the run ends.
    """
    for name, optimizer in optimizers:
        schedule: Any = getattr(optimizer, "_learning_rate", None)
        end = _end_of(schedule)
        if end is not None and last_step > end:
            rate = float(schedule(last_step))
            LOG.warning(
                "%s: its schedule %s ends at step %d and the run goes to step %d; the rate stays "
                "at %.6g from there",
                *(name, type(schedule).__name__, end, last_step, rate),
            )


def _end_of(schedule: Any) -> int | None:
    """Returns the step after which a Keras schedule is constant, or None if it never is."""
    kind = type(schedule).__name__
    if kind == "PolynomialDecay" and not schedule.cycle:
        return int(schedule.decay_steps)
    if kind == "CosineDecay":
        return int(schedule.decay_steps + (schedule.warmup_steps or 0))
    return None
