"""Settings of optimizers that are plain Python values, and so are no part of any variable.

Owns the comparison of such settings with those a checkpoint was written under, and the end of a
learning-rate schedule. Promises to refuse a change that would tear a window of accumulated
gradients and to say every other change in one line. Refuses to change a setting.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from trainer import errors
from trainer.base.log import LOG

Settings = dict[str, dict[str, Any]]
_WINDOW = "gradient_accumulation_steps"


def settings(optimizers: Iterable[tuple[str, Any]]) -> Settings:
    """Returns the scalar settings of each optimizer, by its name.

    Args:
        optimizers: names and Keras optimizers.
    """
    return {name: _settings(optimizer)[0] for name, optimizer in optimizers}


def say_unknown(optimizers: Iterable[tuple[str, Any]]) -> None:
    """Says which settings a checkpoint will not hold, so that a change of them is not told.

    Args:
        optimizers: names and Keras optimizers.
    """
    for name, optimizer in optimizers:
        known, unknown = _settings(optimizer)
        if unknown:
            LOG.info(
                "%s: checkpoints are written without %s, so that a later change of it is not told; "
                "with it: %s",
                *(name, "; ".join(unknown), ", ".join(sorted(known)) or "nothing"),
            )


def _settings(optimizer: Any) -> tuple[dict[str, Any], list[str]]:
    """Returns an optimizer's scalar settings, and in words what cannot be had."""
    unknown = []
    try:
        config = dict(optimizer.get_config())
    except Exception as error:  # the program's own code, or that of its schedule
        first = (str(error).splitlines() or [""])[0]
        rate = getattr(optimizer, "_learning_rate", None)
        source = f" of its schedule {type(rate).__name__}" if callable(rate) else ""
        unknown.append(
            f"learning_rate (get_config(){source} fails: {type(error).__name__}: {first})"
        )
        config = _arguments(optimizer)
    known = {}
    for key, value in config.items():
        plain = (
            value.item() if isinstance(value, np.generic | np.ndarray) and not value.ndim else value
        )
        if not isinstance(key, str) or key == "learning_rate":
            continue
        if isinstance(plain, bool | int | float | None):
            known[key] = plain
        elif not _is_json(plain):
            unknown.append(f"{key} ({type(plain).__name__} is not JSON)")
    return known, unknown


def _arguments(optimizer: Any) -> dict[str, Any]:
    """Returns the attributes that have the names of the constructor's arguments, as in Keras."""
    names = (
        name
        for kind in type(optimizer).__mro__
        if "__init__" in vars(kind) and kind is not object
        for name in inspect.signature(vars(kind)["__init__"]).parameters
    )
    held = vars(optimizer)
    return {name: held[name] for name in names if name in held}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


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
    if type(schedule).__module__.split(".")[0] not in ("keras", "tf_keras"):
        return None  # the program's own, whatever its name
    if kind == "PolynomialDecay" and not schedule.cycle:
        return int(schedule.decay_steps)
    if kind == "CosineDecay":
        return int(schedule.decay_steps + (schedule.warmup_steps or 0))
    return None
