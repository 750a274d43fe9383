"""Checks of numbers that a user gave.

Owns what counts as a number and as a whole number (NumPy's do, booleans do not). Promises messages
that name the argument, the rule and the value. Refuses to know what the number is for.
"""

from __future__ import annotations

import numbers
from typing import Any


def is_number(value: Any) -> bool:
    """Tells whether a value is a real number."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole(value: Any, least: int, below: float = float("inf")) -> bool:
    """Tells whether a value is a whole number from `least` to less than `below`."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return whole and least <= int(value) < below


def whole(name: str, value: Any, least: int) -> int:
    """Returns a whole number that an int32 can hold.

    Args:
        name: of the argument, for the message.
        value: what was given.
        least: the lowest that is allowed.

    Raises:
        ValueError: it is something else.
    """
    if not is_whole(value, least, 2**31):
        raise ValueError(f"{name} must be a whole number from {least} to 2**31 - 1, got {value!r}")
    return int(value)


def count(name: str, value: Any) -> int | None:
    """Returns a number of things, or None for "not given".

    Args:
        name: of the argument, for the message.
        value: what was given.

    Raises:
        ValueError: it is neither None nor a whole number of at least 1.
    """
    if value is None:
        return None
    if not is_whole(value, 1):
        raise ValueError(f"{name} must be a whole number of at least 1 or None, got {value!r}")
    return int(value)
