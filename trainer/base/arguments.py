"""Checks of numbers that a user gave.

Owns what counts as a number and as a whole number (NumPy's do, booleans do not), and how one is
written on a command line. Promises messages
that name the argument, the rule and the value. Refuses to know what the number is for.
"""

from __future__ import annotations

import decimal
import numbers
from typing import Any

_MOST_DIGITS = 300  # what a float can hold


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
        raise ValueError(
            f"{name} must be a whole number of at least 1 or None, got {value!r}{_as_whole(value)}"
        )
    return int(value)


def whole_in(text: str) -> int:
    """Returns the whole number that a text says: 1000000, 1_000_000, 1e6 and 0x10 are some.

    Args:
        text: what was written.

    Raises:
        ValueError: it is no number, or not a whole one.
    """
    plain = text.strip().lower()
    try:
        if plain.lstrip("+-").startswith(("0x", "0o")):
            return int(plain, 0)
        number = decimal.Decimal(plain)
    except (ValueError, decimal.InvalidOperation):
        number = decimal.Decimal("nan")
    if not number.is_finite():
        raise ValueError("it must be a whole number, such as 1000000, 1_000_000 or 1e6")
    if number.adjusted() > _MOST_DIGITS:
        raise ValueError("it is too large for a whole number")
    if number != number.to_integral_value():
        raise ValueError(f"it must be a whole number, such as {int(number)} or {int(number) + 1}")
    return int(number)


def number_in(text: str) -> float:
    """Returns the number that a text says: 0.5, 1_000_000 and 1e6 are some.

    Args:
        text: what was written.

    Raises:
        ValueError: it is no number.
    """
    try:
        return float(text)
    except ValueError:
        raise ValueError("it must be a number, such as 0.5, 1_000_000 or 1e6") from None


def _as_whole(value: Any) -> str:
    """Says how a whole number is written that was given as a float, such as 1e6."""
    if isinstance(value, float) and value.is_integer() and value >= 1:
        return f": write {int(value)}"
    return ""
