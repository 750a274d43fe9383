"""Seeds that Keras's `*_dataset_from_*` helpers draw with NumPy.

Owns telling a seed that such a helper drew from one that the user gave it: both are the same number
in the graph. NumPy's global generator keeps its last 624 words, used ones included, so the last
draws can be read from its state. Promises to look only where a pipeline has a function of those
helpers, and to accept a generator that the program seeded with a number. Refuses to draw.

What it cannot see: a seed below 1,000 (one draw in a thousand), which a user may well have given; a
draw more than 624 to 1,247 words ago; a generator seeded with a list, which looks unseeded. At a
restart another seed is refused whatever drew it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Words = Sequence[int]
State = tuple[Words, int]

_LENGTH, _SHIFT = 624, 397
_UPPER, _LOWER, _TWIST = 0x80000000, 0x7FFFFFFF, 0x9908B0DF
_SEEDS, _SEED_BITS = range(1000, 1_000_000), 0xFFFFF  # numpy.random.randint(1e6)
_MOST_BLOCKS = 500
_HELPERS = ("/keras/src/utils/", "/keras/utils/", "/tf_keras/src/utils/", "/keras/preprocessing/")


def state() -> State:
    """Returns the words of NumPy's global generator, and how many of them are used."""
    _, key, used, *_ = np.random.get_state()
    return [int(word) for word in np.asarray(key)], int(used)


def by_helper(dataset: Any, seeds: Sequence[int], before: State, after: State) -> list[int]:
    """Returns those of a pipeline's seeds that a helper of Keras drew before the trainer seeded.

    Args:
        dataset: the pipeline.
        seeds: the seeds of its stages.
        before: what `state` returned before the trainer seeded.
        after: what it returned after `train_dataset`.
    """
    suspect = [seed for seed in seeds if seed in _SEEDS]
    if not suspect or not _has_helper(dataset):
        return []
    outside, inside = _last_draws(before), _last_draws(after)
    found = [seed for seed in suspect if seed in outside and seed not in inside]
    return found if found and not _was_seeded(before[0]) else []


def _last_draws(state: State) -> set[int]:
    words, used = state
    return {_tempered(word) & _SEED_BITS for word in [*words[:used], *_block_before(words)]}


def _has_helper(dataset: Any) -> bool:
    waiting = [dataset]
    while waiting:
        stage = waiting.pop()
        waiting += stage._inputs()
        for value in vars(stage).values():
            code = getattr(getattr(value, "_func", None), "__code__", None)
            path = getattr(code, "co_filename", "").replace("\\", "/")
            if any(helper in path for helper in _HELPERS) and "dataset" in path:
                return True
    return False


def _was_seeded(words: Words) -> bool:
    """Tells whether a number was given to `numpy.random.seed`, and not long ago."""
    for _ in range(_MOST_BLOCKS):
        if all(
            words[place]
            == (1812433253 * (words[place - 1] ^ (words[place - 1] >> 30)) + place) & 0xFFFFFFFF
            for place in range(2, 20)
        ):
            return True
        words = _block_before(words)
    return False


def _block_before(words: Words) -> list[int]:
    """Returns the words that the generator held before these."""
    found = list(words)
    for place in reversed(range(_LENGTH)):
        high = _untwisted(found[place] ^ found[(place + _SHIFT) % _LENGTH])[0]
        low, odd = _untwisted(found[place - 1] ^ found[(place + _SHIFT - 1) % _LENGTH])
        found[place] = (high & _UPPER) | (low & _LOWER) | odd
    return found


def _untwisted(word: int) -> tuple[int, int]:
    odd = word >> 31
    return ((word ^ _TWIST if odd else word) << 1) & 0xFFFFFFFF, odd


def _tempered(word: int) -> int:
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)
