"""Where the time of a run went.

Owns the arithmetic on the journal's events: what became of the time, and how often runs fail.
Promises categories that add up to the wall time from the first start to the last event, whatever
ended the attempts. Refuses to read files.

    stepping    training that a checkpoint holds, or that ended the run as it should
    saving      training stood still for a save
    restoring   from the checkpoint to a state in memory
    starting    from the start of the process until it trains, without the restore
    lost        training after the last checkpoint of an attempt that was killed or failed
    idle        no process

An attempt that was killed ends when the supervisor saw it end, or else at its last event.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

CATEGORIES = ("stepping", "saving", "restoring", "starting", "lost", "idle")
_SAVED = (  # reasons of a stop after which nothing is lost
    *("finished", "already_finished", "stopped", "out_of_data", "time_budget"),
    *("preempted", "interrupted"),
)


@dataclasses.dataclass
class _Attempt:
    """One process.

    Args:
        began: when the process began.
        ended: when it ended.
        started: when its trainer was constructed; None: it did not come so far.
        trained: when it began to train.
        snapshot: when the state of its last checkpoint was that of the run.
        restoring: seconds of the restore.
        saving: seconds that training stood still for saves.
        saved: whether it ended with all its work saved.
        steps: times and the steps that were done then, as far as the journal tells.
    """

    began: float
    ended: float
    started: float | None = None
    trained: float | None = None
    snapshot: float | None = None
    restoring: float = 0.0
    saving: float = 0.0
    saved: bool = False
    steps: list[tuple[float, int]] = dataclasses.field(default_factory=list)


def report(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns what became of the time.

    Args:
        events: the journal's, in order.

    Returns:
        "wall_secs"; "secs": category to seconds; "goodput": share of "stepping"; "attempts";
        "interruptions": attempts that ended with work unsaved; "steps_lost": per interruption,
        estimated from the steps a second of that attempt where nothing else is known.
    """
    attempts = _attempts(events)
    secs = dict.fromkeys(CATEGORIES, 0.0)
    for number, attempt in enumerate(attempts):
        if number:
            secs["idle"] += max(0.0, attempt.began - attempts[number - 1].ended)
        trained = attempt.ended if attempt.trained is None else attempt.trained
        lost = _lost(attempt)
        saving = min(attempt.saving, attempt.ended - trained - lost)
        secs["restoring"] += attempt.restoring
        secs["starting"] += trained - attempt.began - attempt.restoring
        secs["lost"] += lost
        secs["saving"] += saving
        secs["stepping"] += attempt.ended - trained - lost - saving
    wall = attempts[-1].ended - attempts[0].began if attempts else 0.0
    cut = [attempt for attempt in attempts if not attempt.saved]
    usual = statistics.median([rate for a in attempts if (rate := _rate(a))] or [0.0])
    return {
        "wall_secs": wall,
        "secs": secs,
        "goodput": secs["stepping"] / wall if wall else 0.0,
        "attempts": len(attempts),
        "interruptions": len(cut),
        "steps_lost": [round(_lost(attempt) * (_rate(attempt) or usual)) for attempt in cut],
    }


def failures(events: Sequence[dict[str, Any]]) -> tuple[int, float]:
    """Returns how many runs failed or were killed while they trained, and for how long all trained.

    Args:
        events: the journal's, in order.
    """
    trained = [attempt for attempt in _attempts(events) if attempt.trained is not None]
    secs = sum(attempt.ended - (attempt.trained or 0.0) for attempt in trained)
    return sum(not attempt.saved for attempt in trained), secs


def _attempts(events: Sequence[dict[str, Any]]) -> list[_Attempt]:
    attempts: list[_Attempt] = []
    for event in events:
        kind, at = event["event"], float(event["time"])
        if kind == "attempt":
            attempts.append(_Attempt(at, at))
        elif kind == "start" and (not attempts or attempts[-1].started is not None):
            began = at - float(event.get("process_secs") or 0.0)
            attempts.append(_Attempt(max(began, attempts[-1].ended if attempts else began), at))
        if attempts:
            _take_in(attempts[-1], event, kind, at)
    return attempts


def _take_in(attempt: _Attempt, event: dict[str, Any], kind: str, at: float) -> None:
    attempt.ended = max(attempt.ended, at)
    if kind == "start":
        attempt.started = at
    elif kind == "train":
        attempt.trained = at if attempt.trained is None else attempt.trained
        attempt.steps = attempt.steps or [(at, int(event["step"]))]
        attempt.saved = False
    elif kind == "restore":
        attempt.restoring += float(event["secs"])
    elif kind == "save":
        attempt.saving += float(event["stall_secs"])
        attempt.snapshot = at - float(event["write_secs"])
        attempt.steps.append((attempt.snapshot, int(event["step"])))
    elif kind == "stop":
        attempt.saved = event.get("reason") in _SAVED


def _lost(attempt: _Attempt) -> float:
    if attempt.saved or attempt.trained is None:
        return 0.0
    return attempt.ended - max(attempt.trained, attempt.snapshot or attempt.trained)


def _rate(attempt: _Attempt) -> float:
    """Returns steps a second between the first and the last step that the journal dates."""
    if len(attempt.steps) < 2:
        return 0.0
    (first, begun), (last, ended) = attempt.steps[0], attempt.steps[-1]
    return (ended - begun) / (last - first) if last > first else 0.0
