"""The trainers of one process, beside each other.

Owns the list of those that live. Promises that no variable is trained by two of them: each would
save what the other has made of it, and neither would resume where it was. Refuses to keep a trainer
alive; one that is closed, or whose folder a newer trainer of this process has taken over, has none.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

from trainer import errors
from trainer.graph import inspection
from trainer.run.parts import Parts

_LOCK = threading.Lock()
_LIVING: list[weakref.ref[Parts]] = []


def join(parts: Parts) -> None:
    """Takes a trainer up among the living.

    Args:
        parts: its parts.

    Raises:
        TrainerError: a variable of it is that of another which is not closed.
    """
    if _shared(parts) is not None:
        gc.collect()  # a trainer is a ring of references: one that nobody has may still be there
    shared = _shared(parts)
    if shared is not None:
        name, other = shared
        raise errors.TrainerError(
            f"the variable {name!r} belongs to another trainer of this process as well, in "
            f"{other.store.folder}: each would save what the other has made of it; make the "
            "model in build(), or close() that trainer first"
        )
    with _LOCK:
        _LIVING[:] = [found for found in _LIVING if found() is not None]
        _LIVING.append(weakref.ref(parts))


def _shared(parts: Parts) -> tuple[str, Parts] | None:
    """Returns the name of a variable that another living trainer has too, and that trainer."""
    mine = _handles(parts)
    for other in _others(parts):
        common = [name for handle, name in mine.items() if handle in _handles(other)]
        if common:
            return common[0], other
    return None


def _others(parts: Parts) -> Iterator[Parts]:
    with _LOCK:
        found = [reference() for reference in _LIVING]
    for other in found:
        if other is not None and other.store.folder != parts.store.folder and _goes_on(other):
            yield other


def _goes_on(parts: Parts) -> bool:
    try:
        parts.store.check_owned()
    except errors.ModelDirInUseError:
        return False
    return True


def _handles(parts: Parts) -> dict[int, str]:
    entries = parts.content.variables.entries
    return {
        handle: name
        for name, entry in entries.items()
        for handle in inspection.handles([entry.variable])
    }
