"""The random generators of the process.

Owns the seed of a run and the state of the global generators: Python's, NumPy's, the one from which
TensorFlow takes the seeds of random operations outside graphs, and Keras's. Promises that a run
without a seed draws one and can be told it, and that a state taken back gives the same numbers.
Refuses to keep the state of a random operation inside a graph, or of one with a seed of its own
(`tf.random.uniform([], seed=1)`): it lives in kernels and cannot be read; the trainer names those
of a step at construction.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import secrets
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.state import names


@dataclasses.dataclass(frozen=True)
class States:
    """The states of the global generators at one moment; None for one that cannot be had.

    Args:
        python: Python's.
        numpy: NumPy's.
        tensorflow: the global seed, and the state of what gives each eager operation its own.
        keras: seed and counter of Keras's global generator; None if it was not used yet.
    """

    python: Any
    numpy: Any
    tensorflow: Any
    keras: tuple[int, ...] | None

    def texts(self, *, tensorflow: bool = True, keras: bool = True) -> dict[str, str]:
        """Returns the names in a checkpoint and JSON texts of them.

        Args:
            tensorflow: whether TensorFlow's is wanted.
            keras: whether Keras's is.
        """
        kind, key, *rest = self.numpy
        found = {
            names.PYTHON_RANDOM: self.python,
            names.NUMPY_RANDOM: [kind, np.asarray(key).tolist(), *rest],
        }
        found |= {names.TENSORFLOW_RANDOM: self.tensorflow} if tensorflow else {}
        found |= {names.KERAS_RANDOM: self.keras} if keras else {}
        return {name: json.dumps(state) for name, state in found.items()}

    def with_texts(self, texts: Mapping[str, str]) -> States:
        """Returns these states, but for those that are among texts of `texts`."""
        found: dict[str, Any] = {name: json.loads(text) for name, text in texts.items()}
        kind, key, *rest = found[names.NUMPY_RANDOM]
        tensorflow = found.get(names.TENSORFLOW_RANDOM)
        keras = found.get(names.KERAS_RANDOM, self.keras)
        return States(
            python=_python(found[names.PYTHON_RANDOM]),
            numpy=(kind, np.array(key, np.uint32), *rest),
            tensorflow=(tensorflow[0], _python(tensorflow[1])) if tensorflow else self.tensorflow,
            keras=tuple(keras) if keras else None,
        )

    def differing(self, other: States) -> list[str]:
        """Returns whose generators stand elsewhere than in `other`, in words."""
        numbers = zip(self.numpy, other.numpy, strict=True)
        pairs = {
            "Python's": self.python == other.python,
            "NumPy's": all(np.array_equal(one, two) for one, two in numbers),
            "TensorFlow's": self.tensorflow == other.tensorflow,
            "Keras's": self.keras == other.keras,
        }
        return [name for name, same in pairs.items() if not same]


def draw() -> int:
    """Returns a seed from 0 to 2**31 - 1."""
    return secrets.randbits(31)


def plant(seed: int) -> None:
    """Seeds TensorFlow, NumPy and Python; Keras then seeds its own from Python's, when used."""
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)
    _set_keras(None)


@contextlib.contextmanager
def lent(seed: int) -> Iterator[None]:
    """Plants the seed in all global generators, and gives them back as they were.

    Args:
        seed: the seed.
    """
    before, eager = capture(), _context()
    random.seed(seed)
    np.random.seed(seed)
    _set_keras(None)
    if eager is not None:
        # Not tf.random.set_seed: it also resets the eager kernels that were given a seed of their
        # own, and those the program may still draw from.
        eager._seed = seed
        eager._rng.setstate(random.Random(seed).getstate())
    try:
        yield
    finally:
        if eager is not None:
            eager._seed = before.tensorflow[0]
        install(before)


def can_lend_tensorflows() -> bool:
    """Tells whether `lent` can plant TensorFlow's seed and give it back (2.16 to 2.21: it can)."""
    return _context() is not None


def capture() -> States:
    """Returns the states of the global generators."""
    return States(random.getstate(), np.random.get_state(), _tensorflow(), _keras())


def install(states: States) -> None:
    """Takes back what `capture` returned."""
    random.setstate(states.python)
    np.random.set_state(states.numpy)
    _set_tensorflow(states.tensorflow)
    _set_keras(states.keras)


def _python(state: Any) -> Any:
    """Returns a state of a `random.Random` that was read from JSON."""
    version, internal, gauss = state
    return version, tuple(internal), gauss


def _context() -> Any:
    """Returns TensorFlow's eager context, or None if it keeps no generator as 2.16 to 2.21 do."""
    try:
        from tensorflow.python.eager import context

        found = context.context()
        return found if isinstance(found._rng, random.Random) else None
    except (ImportError, AttributeError):
        return None


def _tensorflow() -> Any:
    found = _context()
    return None if found is None else (found._seed, found._rng.getstate())


def _set_tensorflow(state: Any) -> None:
    found = _context()
    if state is None or found is None:
        return
    seed, internal = state
    if found._seed != seed:  # dear: it forgets the kernels that eager operations have made
        tf.random.set_seed(seed)
    found._rng.setstate(internal)


def _keras_home() -> tuple[Any, Any] | None:
    """Returns Keras's global attributes and the module of its seed generator, once imported."""
    home = sys.modules.get("keras.src.backend.common.global_state")
    maker = sys.modules.get("keras.src.random.seed_generator")
    known = hasattr(maker, "GLOBAL_SEED_GENERATOR") and hasattr(home, "set_global_attribute")
    return (home, maker) if known else None


def _keras() -> tuple[int, ...] | None:
    found = _keras_home()
    if found is None:
        return None
    home, maker = found
    generator = home.get_global_attribute(maker.GLOBAL_SEED_GENERATOR)
    return None if generator is None else tuple(np.asarray(generator.state).tolist())


def _set_keras(state: tuple[int, ...] | None) -> None:
    """Gives Keras's global generator a state; None: it is made anew when it is used."""
    found = _keras_home()
    if found is None:
        return
    home, maker = found
    generator = home.get_global_attribute(maker.GLOBAL_SEED_GENERATOR)
    if state is None:
        home.set_global_attribute(maker.GLOBAL_SEED_GENERATOR, None)
        return
    if generator is None:
        generator = maker.SeedGenerator(0, name="global_seed_generator")
        home.set_global_attribute(maker.GLOBAL_SEED_GENERATOR, generator)
    generator.state.assign(np.asarray(state))
