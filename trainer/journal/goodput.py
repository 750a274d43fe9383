"""Where the time of a run went.

Owns the arithmetic on the journal's events: what became of the time, and how often runs fail.
Promises categories that add up to the wall time from the first start to the last event, whatever
ended the attempts and wherever the wall clock jumped. Refuses to read files.

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
import math
import statistics
from collections.abc import Sequence
from typing import Any

from trainer.journal.reasons import Reason

CATEGORIES = ("stepping", "saving", "restoring", "starting", "lost", "idle")


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
        over: whether it is known to have ended.
        idle: seconds between one `train()` of it and the next.
        steps: times and the steps that were done then, as far as the journal tells.
        last_seen: the step at its last heartbeat; None: not known.
    """

    began: float
    ended: float
    started: float | None = None
    trained: float | None = None
    snapshot: float | None = None
    restoring: float = 0.0
    saving: float = 0.0
    saved: bool = False
    over: bool = False
    idle: float = 0.0
    steps: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    last_seen: int | None = None


def report(
    events: Sequence[dict[str, Any]],
    *,
    running: bool = False,
    beat: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns what became of the time.

    Args:
        events: the journal's, in order.
        beat: the last heartbeat.
        running: whether the last process is there still: then what it has not yet saved is no loss.

    Returns:
        "wall_secs"; "secs": category to seconds; "goodput": share of "stepping"; "attempts";
        "interruptions": attempts that ended with work unsaved; "steps_lost": per interruption, up
        to its last heartbeat, or else estimated from the steps a second of that attempt, or else of
        the others.
    """
    attempts = _attempts(events)
    if beat is not None and attempts:
        _seen(attempts[-1], beat, float("inf"))
    if running and attempts and not attempts[-1].over:
        attempts[-1].saved = True
    secs = dict.fromkeys(CATEGORIES, 0.0)
    for number, attempt in enumerate(attempts):
        secs["idle"] += attempt.idle
        if number:
            secs["idle"] += max(0.0, attempt.began - attempts[number - 1].ended)
        done = attempt.ended - attempt.idle
        trained = done if attempt.trained is None else attempt.trained
        lost = _lost(attempt)
        saving = min(attempt.saving, done - trained - lost)
        restoring = min(attempt.restoring, trained - attempt.began)
        secs["restoring"] += restoring
        secs["starting"] += trained - attempt.began - restoring
        secs["lost"] += lost
        secs["saving"] += saving
        secs["stepping"] += done - trained - lost - saving
    wall = attempts[-1].ended - attempts[0].began if attempts else 0.0
    cut = [attempt for attempt in attempts if not attempt.saved]
    usual = statistics.median([rate for a in attempts if (rate := _rate(a))] or [0.0])
    return {
        "wall_secs": wall,
        "secs": secs,
        "goodput": secs["stepping"] / wall if wall else 0.0,
        "attempts": len(attempts),
        "interruptions": len(cut),
        "steps_lost": [_steps_lost(attempt, usual) for attempt in cut],
    }


def failures(events: Sequence[dict[str, Any]]) -> tuple[int, float]:
    """Returns how many runs failed or were killed while they trained, and for how long all trained.

    Args:
        events: the journal's, in order.
    """
    trained = [attempt for attempt in _attempts(events) if attempt.trained is not None]
    secs = sum(attempt.ended - (attempt.trained or 0.0) - attempt.idle for attempt in trained)
    return sum(not attempt.saved for attempt in trained), secs


def _attempts(events: Sequence[dict[str, Any]]) -> list[_Attempt]:
    attempts: list[_Attempt] = []
    now, before = 0.0, None
    for event in events:
        now = _later(now, before, event)
        last = attempts[-1] if attempts else None
        if event["event"] == "attempt":
            attempts.append(_Attempt(now, now))
        elif event["event"] == "start" and (last is None or last.started is not None):
            if last is not None and isinstance(event.get("last_seen"), dict):
                _seen(last, event["last_seen"], now)
            began = now - number(event, "process_secs")
            attempts.append(_Attempt(began if last is None else max(began, last.ended), now))
        if attempts:
            _take_in(attempts[-1], event, now)
        before = event
    return attempts


def _later(now: float, before: dict[str, Any] | None, event: dict[str, Any]) -> float:
    """Returns the time of an event, on a clock that nobody sets.

    Within a process the monotonic clock tells, whatever becomes of the wall clock; from one to the
    next only the wall clock is left.
    """
    gone = number(event, "clock") - number(before or {}, "clock")
    same = before is not None and "clock" in before and "clock" in event
    if same and gone >= 0 and event["event"] not in ("attempt", "start", "ended", "rewind"):
        return now + gone
    return max(now, number(event, "time"))


def _take_in(attempt: _Attempt, event: dict[str, Any], now: float) -> None:
    kind = event["event"]
    if kind == "rewind":
        return  # `rollback` may write it long after; within a run other lines follow at once
    if attempt.over and kind != "ended":
        attempt.idle += now - attempt.ended
    attempt.ended = now
    attempt.over = kind in ("stop", "ended") or (attempt.over and kind != "train")
    if kind == "start":
        attempt.started = now
    elif kind == "train":
        if attempt.trained is not None and attempt.saved:
            attempt.snapshot = now  # a further train() of the process loses nothing before it
        attempt.trained = now if attempt.trained is None else attempt.trained
        attempt.steps = attempt.steps or [(now, int(number(event, "step")))]
        attempt.saved = False
    elif kind == "restore":
        attempt.restoring += number(event, "secs")
    elif kind == "save":
        attempt.saving += number(event, "stall_secs")
        attempt.snapshot = now - number(event, "write_secs")
        attempt.steps.append((attempt.snapshot, int(number(event, "step"))))
    elif kind == "stop":
        attempt.saved = event.get("reason") in list(Reason)


def number(event: dict[str, Any], name: str) -> float:
    """Returns a number of an event, or 0: a line that somebody spoilt is no reason to fail.

    Args:
        event: the event.
        name: what belongs to it.
    """
    value = event.get(name)
    try:
        found = float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return 0.0
    return found if math.isfinite(found) else 0.0


def _seen(attempt: _Attempt, beat: dict[str, Any], until: float) -> None:
    """Takes in the last heartbeat of an attempt that left no other word."""
    if attempt.over or attempt.trained is None:
        return
    attempt.last_seen = int(number(beat, "step"))
    attempt.ended = max(attempt.ended, min(number(beat, "time"), until))


def _steps_lost(attempt: _Attempt, usual: float) -> int:
    estimated = round(_lost(attempt) * (_rate(attempt) or usual))
    if attempt.last_seen is None or not attempt.steps:
        return estimated
    return max(0, attempt.last_seen - attempt.steps[-1][1])


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
