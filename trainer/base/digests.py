"""Named digests: comparing two states without having both in memory.

Owns the comparison. Promises to need nothing but the standard library. Refuses to compute the
digest of a value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def combined(digests: Mapping[str, str]) -> str:
    """Returns one SHA-256 over named digests.

    Args:
        digests: name to digest.
    """
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def first_difference(expected: Mapping[str, str], seen: Mapping[str, str]) -> str | None:
    """Returns the first name, in order, whose digest differs or is on one side only, or None.

    Args:
        expected: name to digest.
        seen: name to digest.
    """
    return next(
        (name for name in sorted({*expected, *seen}) if expected.get(name) != seen.get(name)), None
    )
