"""Digests of a state, by which two runs are compared.

Owns the digest of a value. Promises that equal bytes of equal type and shape have equal digests,
and others have not. Refuses to compare: what is told apart, and in which words, is for `testing`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.state import names


def of_state(state: Mapping[str, Any]) -> dict[str, str]:
    """Returns the SHA-256 of each named part of a state that must be equal after a cut run.

    Args:
        state: name to value, all that a checkpoint holds.
    """
    return {
        name: _digest(value) for name, value in sorted(state.items()) if names.is_compared(name)
    }


def _digest(value: Any) -> str:
    array = np.asarray(value)
    content_of = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    head = f"{array.dtype.str} {array.shape} ".encode()
    return hashlib.sha256(head + content_of).hexdigest()
