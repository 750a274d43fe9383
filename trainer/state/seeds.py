"""The random generators of the process.

Owns the seed of a run and the state of Python's and NumPy's global generators. Promises that a run
without a seed draws one and can be told it. Refuses to keep TensorFlow's op-level random state
(`tf.random.uniform` and its like): it lives in kernels and cannot be read; the trainer names such
operations at construction.
"""

from __future__ import annotations

import contextlib
import json
import random
import secrets
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context


def draw() -> int:
    """Returns a seed from 0 to 2**31 - 1."""
    return secrets.randbits(31)


def plant(seed: int) -> None:
    """Seeds TensorFlow, NumPy and Python."""
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)


@contextlib.contextmanager
def lent(seed: int) -> Iterator[None]:
    """Plants the seed in all global generators, and gives them back as they were.

    Args:
        seed: the seed.
    """
    python, numbers = random.getstate(), np.random.get_state()
    # Not tf.random.set_seed: it also resets the eager kernels that were given a seed of their own,
    # and those the program may still draw from.
    eager = vars(context.context())
    before = {name: eager[name] for name in ("_seed", "_rng") if name in eager}
    random.seed(seed)
    np.random.seed(seed)
    if can_lend_tensorflows():
        eager.update(_seed=seed, _rng=random.Random(seed))
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
        if can_lend_tensorflows():
            eager.pop("_rng", None)
            eager.update(before)


def can_lend_tensorflows() -> bool:
    """Tells whether `lent` can plant TensorFlow's seed and give it back (2.16 to 2.21: it can)."""
    return "_seed" in vars(context.context())


def python_state() -> str:
    """Returns the state of Python's global generator as JSON text."""
    return json.dumps(random.getstate())


def numpy_state() -> str:
    """Returns the state of NumPy's global generator as JSON text."""
    kind, key, position, has_gauss, gauss = np.random.get_state()
    return json.dumps([kind, np.asarray(key).tolist(), position, has_gauss, gauss])


def set_python_state(text: str) -> None:
    """Takes back what `python_state` returned."""
    version, internal, gauss = json.loads(text)
    random.setstate((version, tuple(internal), gauss))


def set_numpy_state(text: str) -> None:
    """Takes back what `numpy_state` returned."""
    kind, key, position, has_gauss, gauss = json.loads(text)
    np.random.set_state((kind, np.array(key, np.uint32), position, has_gauss, gauss))
