"""Names in a run folder.

Owns which name means what. Promises that every name this package makes can be told from a
stranger's, so that a sweep never touches what is not ours. Refuses to touch a file.

    ckpt-120                    a checkpoint of step 120, complete since it was renamed to this
    ckpt-120.tmp-1f2e3d4c       being written, or the leftover of a killed save
    ckpt-120.old-1f2e3d4c       the former checkpoint 120 while a new one takes its place
    ckpt-120.deleted-1f2e3d4c   being removed
    ckpt-120.damaged            set aside: could not be read
    ckpt-120.superseded         set aside: the run went back to an earlier step
"""

from __future__ import annotations

import re
import secrets

BUNDLE = "state"
INDEX = "state.index"
STATE_FILE = "checkpoint"
MANIFEST = "manifest.json"
PIN, BEST = "pinned", "best"  # empty files in a checkpoint's folder: never removed to make room
MARKS = (PIN, BEST)
LOCK = "LOCK"

_DATA = re.compile(rf"{BUNDLE}\.data-\d{{5}}-of-\d{{5}}")
_COMPLETE = re.compile(r"ckpt-(\d+)")
_OLD = re.compile(r"(ckpt-\d+)\.old-[0-9a-f]{8}")
_LEFTOVER = re.compile(r"(ckpt-\d+\.(tmp|old|deleted)|checkpoint\.tmp)-[0-9a-f]{8}")
_ASIDE = re.compile(r"ckpt-(\d+)\.(damaged|superseded)(-\d+)?")


def checkpoint(step: int) -> str:
    """Returns the name of a complete checkpoint."""
    return f"ckpt-{step}"


def is_data(name: str) -> bool:
    """Tells whether a name is that of a data file in a checkpoint's folder."""
    return _DATA.fullmatch(name) is not None


def is_own(name: str) -> bool:
    """Tells whether a name in a checkpoint's folder is one of ours."""
    return name in (MANIFEST, INDEX, *MARKS) or is_data(name)


def passing(name: str, purpose: str) -> str:
    """Returns a fresh name beside `name` for a folder that is not to stay."""
    return f"{name}.{purpose}-{secrets.token_hex(4)}"


def step_of(name: str) -> int | None:
    """Returns the step of a complete checkpoint's name, or None."""
    match = _COMPLETE.fullmatch(name)
    return int(match[1]) if match and checkpoint(int(match[1])) == name else None


def replaced(name: str) -> str | None:
    """Returns the name that an `.old-` folder had, or None."""
    match = _OLD.fullmatch(name)
    return match[1] if match else None


def is_leftover(name: str) -> bool:
    """Tells whether a name was made by `passing`."""
    return _LEFTOVER.fullmatch(name) is not None


def is_set_aside(name: str) -> bool:
    """Tells whether a name is that of a checkpoint set aside."""
    return _ASIDE.fullmatch(name) is not None
