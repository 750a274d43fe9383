"""What a proof says of two ends that differ.

Owns the comparison of what runs reported, and its words. Promises to name the first thing that
differs, with its two values. Refuses to run anything, and needs no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.base import digests
from trainer.state import names
from trainer.testing.prove_lives import Told

_LONGEST = 60  # letters of a text that are shown


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first thing that differs.

    Args:
        name: what differs: a name of the state, or of the end.
        expected: what the unbroken run has, in short.
        seen: what the other has.
        step: the first step of which an output differs, or None.
        output: that output, or None.
    """

    name: str
    expected: str
    seen: str
    step: int | None = None
    output: str | None = None

    def lines(self, other: str) -> list[str]:
        """Returns the difference in words.

        Args:
            other: what the other run is called.
        """
        found = [f"{self.name} differs first: unbroken {self.expected}, {other} {self.seen}"]
        if self.step is not None:
            found.append(f"the first step whose outputs differ is {self.step}: {self.output}")
        return found


def difference(expected: Told, seen: Told) -> Difference | None:
    """Returns the first thing in which two ends differ, or None."""
    if list(expected.runs) != list(seen.runs) and {*expected.runs} != {*seen.runs}:
        return Difference("the runs", ", ".join(expected.runs), ", ".join(seen.runs))
    for run in expected.runs:
        found = _difference_of_run(expected, seen, run)
        if found is not None:
            name = found.name if len(expected.runs) == 1 else f"{run}: {found.name}"
            return dataclasses.replace(found, name=name, **_first_output(expected, seen, run))
    if expected.status != seen.status:
        return Difference("the exit status", str(expected.status), str(seen.status))
    return None


def _difference_of_run(expected: Told, seen: Told, run: str) -> Difference | None:
    one, two = expected.runs[run], seen.runs[run]
    if one["step"] != two["step"]:
        return Difference("the step of the end", _end(one), _end(two))
    # A run that was killed after its last save has nothing left to do, and says so.
    if one["reason"] != two["reason"] and two["reason"] != "already_finished":
        return Difference("the reason of the end", _end(one), _end(two))
    name = _first_name(one["digests"], two["digests"])
    if name is None:
        return None
    return Difference(name, *_values(expected.values(run), seen.values(run), name))


def _first_name(expected: Mapping[str, str], seen: Mapping[str, str]) -> str | None:
    """Returns the first name that differs: the program's own before those that follow from them."""
    for own in (True, False):
        ours, theirs = (
            {name: d for name, d in side.items() if name.startswith(names.OWN) is not own}
            for side in (expected, seen)
        )
        name = digests.first_difference(ours, theirs)
        if name is not None:
            return name
    return None


def _end(report: Mapping[str, Any]) -> str:
    return f"{report['step']} ({str(report['reason']).replace('_', ' ')})"


def _first_output(expected: Told, seen: Told, run: str) -> dict[str, Any]:
    ours, theirs = expected.outputs(run), seen.outputs(run)
    for step in sorted({*ours} & {*theirs}):
        for name in sorted({*ours[step]} & {*theirs[step]}):
            one, two = ours[step][name], theirs[step][name]
            if repr(one) != repr(two):  # a NaN is equal to itself here
                return {"step": step, "output": f"{name!r}, {one!r} and {two!r}"}
    return {}


def _values(one: str, two: str, name: str) -> tuple[str, str]:
    ours, theirs = _read(one, name), _read(two, name)
    if ours is None or theirs is None:
        return tuple("absent" if v is None else _kind(v) for v in (ours, theirs))  # type: ignore[return-value]
    if (ours.dtype.kind, ours.shape) != (theirs.dtype.kind, theirs.shape):
        return _kind(ours), _kind(theirs)
    if ours.dtype.kind in "US":
        at = next(i for i in np.ndindex(ours.shape) if ours[i] != theirs[i])
        return _texts(str(ours[at]), str(theirs[at]))
    at = _first(ours, theirs)
    place = f"[{', '.join(map(str, at))}] = " if at else "= "
    return f"{_kind(ours)} {place}{ours[at]!s}", f"{_kind(theirs)} {place}{theirs[at]!s}"


def _read(path: str, name: str) -> Any:
    if not os.path.exists(path):
        return None
    with np.load(path) as values:
        return values[name] if name in values.files else None


def _kind(value: Any) -> str:
    if value.dtype.kind in "US":
        return "text"
    return f"{value.dtype.name}{list(value.shape) if value.shape else ''}"


def _first(one: Any, two: Any) -> tuple[int, ...]:
    """Returns the index of the first element whose bytes differ."""
    rows = [
        np.ascontiguousarray(value).reshape(-1).view(np.uint8).reshape(value.size, -1)
        for value in (one, two)
    ]
    differs = (rows[0] != rows[1]).any(axis=1)
    return tuple(int(i) for i in np.unravel_index(int(differs.argmax()), one.shape))


def _texts(one: str, two: str) -> tuple[str, str]:
    """Returns two texts from shortly before the place where they part."""
    pairs = enumerate(zip(one, two, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(one), len(two)))
    start = max(0, at - _LONGEST // 3)
    return tuple(  # type: ignore[return-value]
        ("…" if start else "") + text[start : start + _LONGEST] for text in (one, two)
    )


def suspects(expected: Told) -> list[str]:
    """Returns what may be the cause of a difference, the likeliest first.

    Args:
        expected: what the unbroken run reported.
    """
    found = []
    for report in expected.runs.values():
        found += [f"construction warned: {text}" for text in report["warnings"]]
    for report in expected.runs.values():
        found += [
            f"hook {key} keeps no state (it has no get_state), and its {', '.join(names)} changed "
            "during the run"
            for key, names in report["forgotten"].items()
        ]
    for report in expected.runs.values():
        found += [f"perhaps {text}" for text in report["possible"]]
    return list(dict.fromkeys(found))
