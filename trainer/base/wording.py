"""Words for names that are not known.

Owns the suggestion of a name that was meant. Promises silence where nothing is near. Refuses to
know what the names are for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NEAR, _NEARLY_AS_NEAR = 0.7, 0.1


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Returns the known names that were likely meant, the likeliest first.

    Args:
        name: what was given.
        known: the names that there are.
        most: how many to return at most.
    """
    plain, wanted = {_plain(other): other for other in known}, _plain(name)
    near = difflib.get_close_matches(wanted, plain, most, _NEAR)
    best = max((_likeness(wanted, other) for other in near), default=0.0)
    near = [other for other in near if _likeness(wanted, other) >= best - _NEARLY_AS_NEAR]
    words = set(wanted.split("_"))
    if len(name) > 3:  # "steps" is a part of many
        near += [o for o in plain if o not in near and words <= set(o.split("_"))]
    return [plain[other] for other in near[:most]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a sentence that names what was likely meant, with a space before it, or nothing.

    Args:
        name: what was given.
        known: the names that there are.
    """
    near = nearest(name, known)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _plain(name: str) -> str:
    return name.lower().strip("-").replace("-", "_")


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, other, one).ratio()
