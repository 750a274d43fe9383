"""Looking at a run folder and putting it in order, from the command line.

Owns the commands `list`, `show`, `verify`, `diff`, `rollback`, `pin`, `unpin`, `prune` and
`report`: what they find, as data and as text. Promises that reading needs no lock and never sees
half a checkpoint, and that those which change something own the folder while they do. Refuses to
import TensorFlow where no tensor is read.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from typing import Any

from trainer import errors
from trainer.checkpoints import lock
from trainer.checkpoints import store as checkpoint_store
from trainer.fingerprint import compare, describe
from trainer.journal import goodput, heartbeat, journal

_UNMARKED = {"pinned": False, "best": False}


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a command found.

    Args:
        data: for `--json`.
        text: for a reader.
        status: 0 as asked, 1 a finding.
    """

    data: Any
    text: str
    status: int = 0


def list_checkpoints(folder: str) -> Answer:
    """Lists the checkpoints, whole, damaged and set aside.

    Args:
        folder: the run folder.
    """
    store = _existing(folder)
    best = store.best()
    rows = [_row(store, step, step == best) for step in store.numbered()]
    rows += [{"name": name, "state": "set aside", **_UNMARKED} for name in store.set_aside()]
    lines = [("NAME", "SIZE", "AGE", "TRAINED", "STATE")]
    for row in rows:
        state = ", ".join([row["state"], *(mark for mark in _UNMARKED if row[mark])])
        lines.append(
            (
                row["name"],
                _size(row.get("bytes")),
                _age(row.get("written_at")),
                _secs(row.get("trained_secs")),
                state,
            )
        )
    text = _table(lines) if rows else f"no checkpoint in {folder}"
    return Answer(rows, text, 1 if any("damaged" in row["state"] for row in rows) else 0)


def _row(store: checkpoint_store.Store, step: int, best: bool) -> dict[str, Any]:
    row = {"name": f"ckpt-{step}", "step": step, "pinned": store.is_pinned(step), "best": best}
    try:
        found = store.manifest(step)
    except errors.DamagedCheckpointError as error:
        return row | {"state": f"damaged: {error.reason}"}
    return row | {
        "state": "complete",
        "bytes": found.bytes,
        "trained_secs": found.trained_secs,
        "written_at": found.written_at,
    }


def show(folder: str, step: int | None) -> Answer:
    """Shows what a checkpoint says of itself.

    Args:
        folder: the run folder.
        step: which one; None: the newest.
    """
    store = _existing(folder)
    found = store.manifest(_chosen(store, step))
    data = dataclasses.asdict(found)
    head = [
        ("step", str(found.step)),
        ("size", _size(found.bytes)),
        ("written", f"{_age(found.written_at)} ago"),
        ("trained", _secs(found.trained_secs)),
        ("seed", str(found.seed)),
        ("versions", ", ".join(f"{k} {v}" for k, v in sorted(found.versions.items()))),
    ]
    made_of = describe.rows(found.fingerprint)
    variables = set(found.variables)
    rows = [("NAME", "DTYPE", "SHAPE", "KIND")]
    for name, (dtype, shape) in sorted(found.tensors.items()):
        rows.append((name, dtype, str(list(shape)), "variable" if name in variables else "other"))
    tables: list[Any] = [head, [("MADE OF", ""), *made_of], rows] if made_of else [head, rows]
    return Answer(data, "\n\n".join(_table(table) for table in tables))


def verify(folder: str, step: int | None) -> Answer:
    """Reads checkpoints to the last bit.

    Args:
        folder: the run folder.
        step: which one; None: all.
    """
    store = _existing(folder)
    rows: list[dict[str, Any]] = []
    for number in [step] if step is not None else store.numbered():
        _chosen(store, number)
        try:
            found, _ = store.read(number)
            rows.append({"step": number, "state": "verified", "bytes": found.bytes})
        except errors.DamagedCheckpointError as error:
            rows.append({"step": number, "state": f"damaged: {error.reason}"})
    bad = [row for row in rows if row["state"] != "verified"]
    lines = [(f"ckpt-{row['step']}", _size(row.get("bytes")), row["state"]) for row in rows]
    text = _table(lines) if rows else f"no checkpoint in {folder}"
    return Answer(rows, text, 1 if bad or not rows else 0)


def diff(folder: str, one: int, two: int) -> Answer:
    """Compares the tensors of two checkpoints, and the programs that wrote them.

    Args:
        folder: the run folder.
        one: a step.
        two: another.
    """
    import numpy as np

    store = _existing(folder)
    (first, values), (second, others) = (store.read(_chosen(store, n)) for n in (one, two))
    rows = _programs(first.fingerprint, second.fingerprint)
    for name in sorted({*first.tensors, *second.tensors}):
        if name not in second.tensors or name not in first.tensors:
            only = one if name in first.tensors else two
            rows.append({"name": name, "what": f"only in ckpt-{only}"})
        elif tuple(first.tensors[name]) != tuple(second.tensors[name]):
            rows.append({"name": name, "what": f"{first.tensors[name]} and {second.tensors[name]}"})
        elif first.tensors[name][0] != "variant":
            rows += _difference(name, np.asarray(values[name]), np.asarray(others[name]))
    lines = [("NAME", "DIFFERENCE"), *((row["name"], row["what"]) for row in rows)]
    text = _table(lines) if rows else f"ckpt-{one} and ckpt-{two} are equal"
    return Answer(rows, text, 1 if rows else 0)


def rollback(folder: str, step: int) -> Answer:
    """Sets aside every checkpoint after a step, so that the next start goes on from it.

    Args:
        folder: the run folder.
        step: a verified checkpoint's.
    """
    with _owned(folder) as store:
        store.read(_chosen(store, step))
        aside = store.rewind(step)
        journal.Journal(store.files, folder).note("rewind", step=step, set_aside=aside)
    text = f"the next start goes on from step {step}; set aside: {aside or 'none'}"
    return Answer({"step": step, "set_aside": aside}, text)


def pin(folder: str, step: int, *, on: bool) -> Answer:
    """Pins a checkpoint, so that it is never removed, or takes the pin off.

    Args:
        folder: the run folder.
        step: the checkpoint's.
        on: whether to pin it.
    """
    store = _existing(folder)
    store.pin(_chosen(store, step), on=on)
    return Answer({"step": step, "pinned": on}, f"ckpt-{step} is {'' if on else 'not '}pinned")


def prune(folder: str, keep: int | None) -> Answer:
    """Removes leftovers and checkpoints set aside, and all but the newest if asked.

    Args:
        folder: the run folder.
        keep: newest checkpoints to keep, beside the pinned ones; None: all.
    """
    with _owned(folder) as store:
        removed = store.prune(keep)
    text = "\n".join(f"removed {name}" for name in removed) or "nothing to remove"
    return Answer({"removed": removed}, text)


def report(folder: str) -> Answer:
    """Tells where the time of a run went.

    Args:
        folder: the run folder.
    """
    store = _existing(folder)
    owner = lock.living_owner(folder)
    events, beat = journal.read(store.files, folder), heartbeat.read(store.files, folder)
    found = goodput.report(events, running=owner is not None, beat=beat)
    if not found["attempts"]:
        return Answer(found, f"no start in the journal of {folder}", 1)
    lines = [("WHERE THE TIME WENT", "SECONDS", "SHARE")]
    for name, secs in found["secs"].items():
        lines.append((name, f"{secs:.1f}", f"{100 * secs / (found['wall_secs'] or 1.0):.1f} %"))
    lines.append(("wall time", f"{found['wall_secs']:.1f}", "100.0 %"))
    lost = found["steps_lost"]
    mean = f", about {sum(lost) / len(lost):.1f} steps lost at each" if lost else ""
    text = (
        f"{_table(lines)}\ngoodput {found['goodput']:.3f} over {found['attempts']} attempts, "
        f"{found['interruptions']} interruptions{mean}"
    )
    return Answer(found, text)


def _existing(folder: str) -> checkpoint_store.Store:
    store = checkpoint_store.Store(folder)
    if not store.files.is_folder(folder):
        raise ValueError(f"there is no folder {folder!r}")
    return store


def _owned(folder: str) -> checkpoint_store.Store:
    store = _existing(folder)
    store.own()
    return store


def _chosen(store: checkpoint_store.Store, step: int | None) -> int:
    steps = store.numbered()
    if step is None and steps:
        return steps[-1]
    if step is None or step not in steps:
        raise ValueError(f"there is no checkpoint {step} in {store.folder}; there are {steps}")
    return step


def _programs(one: Any, two: Any) -> list[dict[str, Any]]:
    """Returns how the programs differ that wrote two checkpoints, where both say so."""
    if one is None or two is None:
        return []
    differences = compare.differences(one, two)
    return [{"name": "program", "what": d.text, "level": d.level} for d in differences]


def _difference(name: str, one: Any, two: Any) -> list[dict[str, Any]]:
    if one.tobytes() == two.tobytes() and one.dtype != object:
        return []
    if one.dtype.kind in "fiu" and one.size:
        most = float(abs(one.astype("float64") - two.astype("float64")).max())
        return [{"name": name, "what": f"at most {most:.6g}", "most": most}]
    return [] if (one == two).all() else [{"name": name, "what": "another value"}]


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _size(size: int | None) -> str:
    if size is None:
        return "-"
    amount = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _age(written_at: float | None) -> str:
    return "-" if written_at is None else _secs(max(0.0, time.time() - written_at))


def _secs(secs: float | None) -> str:
    if secs is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if secs >= size:
            return f"{secs / size:.1f} {unit}"
    return f"{secs:.1f} s"
