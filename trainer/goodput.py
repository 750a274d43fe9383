"""Where the time of a run went.

Owns the arithmetic on the journal's events. Promises categories that add up to the wall time from
the first start to the last event, whatever ended the attempts. Refuses to read files.

    stepping    training that a checkpoint holds, or that ended the run as it should
    saving      training stood still for a save
    restoring   from the checkpoint to a state in memory
    starting    from the start of the process until the trainer is constructed, without the restore
    lost        training after the last checkpoint of an attempt that was killed or failed
    idle        no process

An attempt that was killed ends when the supervisor saw it end, or else at its last event.
"""

from __future__ import annotations

import dataclasses
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
        trained: when its trainer was constructed.
        snapshot: when the state of its last checkpoint was that of the run.
        restoring: seconds of the restore.
        saving: seconds that training stood still for saves.
        saved: whether it ended with all its work saved.
        steps: times and the steps that were done then, as far as the journal tells.
    """

    began: float
    ended: float
    trained: float
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
    steps_lost = []
    for number, attempt in enumerate(attempts):
        if number:
            secs["idle"] += max(0.0, attempt.began - attempts[number - 1].ended)
        trained = attempt.trained
        secs["restoring"] += attempt.restoring
        secs["starting"] += trained - attempt.began - attempt.restoring
        lost = 0.0
        if not attempt.saved:
            lost = attempt.ended - max(trained, attempt.snapshot or trained)
            steps_lost.append(round(lost * _rate(attempt)))
        saving = min(attempt.saving, attempt.ended - trained - lost)
        secs["lost"] += lost
        secs["saving"] += saving
        secs["stepping"] += attempt.ended - trained - lost - saving
    wall = attempts[-1].ended - attempts[0].began if attempts else 0.0
    return {
        "wall_secs": wall,
        "secs": secs,
        "goodput": secs["stepping"] / wall if wall else 0.0,
        "attempts": len(attempts),
        "interruptions": sum(not attempt.saved for attempt in attempts),
        "steps_lost": steps_lost,
    }


def _attempts(events: Sequence[dict[str, Any]]) -> list[_Attempt]:
    attempts: list[_Attempt] = []
    for event in events:
        kind, at = event["event"], float(event["time"])
        if kind == "start":
            began = at - float(event.get("process_secs") or 0.0)
            began = max(began, attempts[-1].ended if attempts else began)
            attempts.append(_Attempt(began, ended=at, trained=at, steps=[(at, 0)]))
        if not attempts:
            continue
        attempt = attempts[-1]
        if kind == "attempt":
            continue  # of the next process, before its start
        attempt.ended = max(attempt.ended, at)
        if kind == "restore":
            attempt.restoring = float(event["secs"])
            attempt.steps = [(attempt.trained, int(event["step"]))]
        elif kind == "save":
            attempt.saving += float(event["stall_secs"])
            attempt.snapshot = at - float(event["write_secs"])
            attempt.steps.append((attempt.snapshot, int(event["step"])))
        elif kind == "stop":
            attempt.saved = event.get("reason") in _SAVED
    return attempts


def _rate(attempt: _Attempt) -> float:
    """Returns steps a second between the first and the last step that the journal dates."""
    (first, begun), (last, ended) = attempt.steps[0], attempt.steps[-1]
    return (ended - begun) / (last - first) if last > first else 0.0
