"""Training data that is addressed by number: `trainer.data.Indexed`, and sources for it.

Owns the order of the examples. Promises that each batch is a pure function of the seed and the
batch's number, so that a resume takes as long at any step and its state is that number alone; that
every pass has another order and holds each example once; and that the order does not depend on how
many devices share a batch. Refuses to keep examples, or to shuffle them, in a buffer.

The order is a pseudo-random permutation that is computed, not stored: TensorFlow's `index_shuffle`
(a block cipher walked within the range; tensorflow/core/kernels/random_index_shuffle.h).
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.base import arguments

_ORDER, _MAP = 0, 1  # streams of random numbers that come from one seed
_numbers = itertools.count()  # of the objects made, and of the looks at how many there are


class Indexed:
    """Batches of a source that can give any of its examples by number.

    Args:
        source: nested arrays or tensors with one common leading dimension; or an object with
            `__len__` and `lookup(indices)`, which takes int64[B] and returns the batch with
            TensorFlow operations.
        batch_size: examples in a batch.
        seed: seed of the order and of `map_fn`, from 0; None: the run's.
        shuffle: whether each pass has an order of its own; else it is the source's.
        drop_remainder: whether to leave out the examples of a pass that do not fill a batch.
        map_fn: takes a batch and an int32[2] seed that belongs to this batch alone, for
            `tf.random.stateless_*`; returns the batch to train on.
        epochs: passes over the source; None: as many as the run needs.

    Raises:
        ValueError: the arguments do not fit each other or the source.

    Attributes:
        size: examples in the source.
    """

    def __init__(
        self,
        source: Any,
        *,
        batch_size: int,
        seed: int | None = None,
        shuffle: bool = True,
        drop_remainder: bool = True,
        map_fn: Callable[[Any, tf.Tensor], Any] | None = None,
        epochs: int | None = None,
    ):
        self._source = source if hasattr(source, "lookup") else _Arrays(source)
        self.size = len(self._source)
        self._batch_size = arguments.whole("batch_size", batch_size, 1)
        # The global generator is planted with the run's seed before `train_dataset` is called.
        self._drew_seed, self._number = seed is None, next(_numbers)
        self._seed = random.getrandbits(31) if seed is None else arguments.whole("seed", seed, 0)
        self._shuffle = shuffle
        self._drop_remainder = drop_remainder
        self._map_fn = map_fn
        self._epochs = None if epochs is None else arguments.whole("epochs", epochs, 1)
        if not self.size:
            raise ValueError("the source of Indexed is empty; give it at least one example")
        if drop_remainder and self._batch_size > self.size:
            raise ValueError(
                f"batch_size={batch_size} is more than the {self.size} examples of the source, and "
                "drop_remainder=True leaves out what does not fill a batch: lower batch_size, or "
                "set drop_remainder=False"
            )

    def __len__(self) -> int:
        """Returns the batches of one pass."""
        whole, rest = divmod(self.size, self._batch_size)
        return whole if self._drop_remainder or not rest else whole + 1

    def __iter__(self) -> Any:
        """Returns an iterator over one pass."""
        return iter(self.limited(1).dataset())

    def order(self) -> dict[str, int]:
        """Returns what the order of the examples depends on, by the names of the arguments."""
        return {
            "size": self.size,
            "batch_size": self._batch_size,
            "seed": self._seed,
            "shuffle": int(self._shuffle),
            "drop_remainder": int(self._drop_remainder),
        }

    def drew_seed_before(self, moment: int) -> bool:
        """Tells whether it took its seed from Python's generator, before a moment.

        Args:
            moment: what `moment()` returned then.
        """
        return self._drew_seed and self._number < moment

    def limited(self, epochs: int | None) -> Indexed:
        """Returns the same with at most so many passes.

        Args:
            epochs: passes at most; None: as many as before.
        """
        if epochs is None or (self._epochs is not None and self._epochs <= epochs):
            return self
        other = copy.copy(self)
        other._epochs = epochs
        return other

    def dataset(self, start: int = 0, *, share: tuple[int, int] = (0, 1)) -> tf.data.Dataset:
        """Returns the batches from number `start` on, over all passes.

        Args:
            start: number of the first batch, from 0.
            share: (i, n) for the i-th, from 0, of n consecutive equal parts of each batch.

        Raises:
            ValueError: the batches cannot be shared out so, or `lookup` returns something else.
        """
        part, parts = share
        if self._batch_size % parts or not 0 <= part < parts:
            raise ValueError(
                f"share={share} does not fit batch_size={self._batch_size}; choose a batch size "
                "that is a multiple of the number of parts"
            )
        end = np.iinfo(np.int64).max if self._epochs is None else self._epochs * len(self)
        return (
            tf.data.Dataset.range(start, max(start, end))
            .map(
                lambda number: self._batch(number, part, self._batch_size // parts),
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            .prefetch(tf.data.AUTOTUNE)
        )

    def _batch(self, number: tf.Tensor, part: int, share: int) -> Any:
        """Returns one part of batch `number`, `share` examples of it; traced."""
        per_pass = tf.constant(len(self), tf.int64)
        first = (number % per_pass) * self._batch_size + part * share
        places = first + tf.range(share, dtype=tf.int64)
        last = tf.constant(self.size - 1, tf.int64)
        indices = self._indices(tf.minimum(places, last), last, number // per_pass)
        if not self._drop_remainder:
            indices = indices[: tf.maximum(last + 1 - first, 0)]
        batch = self._source.lookup(indices)
        batch = tf.nest.map_structure(_checker(indices), batch)
        if self._map_fn is None:
            return batch
        return self._map_fn(batch, self._random(_MAP, number))

    def _indices(self, places: tf.Tensor, last: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """Returns which example stands at each place of a pass."""
        if not self._shuffle:
            return places
        seed = self._random(_ORDER, epoch)
        return tf.random.experimental.index_shuffle(places, seed=seed, max_index=last)

    def _random(self, stream: int, number: tf.Tensor) -> tf.Tensor:
        """Returns the int32[2] seed of one pass or batch."""
        seed = tf.constant([self._seed, stream], tf.int32)
        return tf.random.fold_in(seed, number)


def moment() -> int:
    """Returns a number that parts what was made until now from what is made later."""
    return next(_numbers)


class _Arrays:
    """Nested arrays with one common leading dimension."""

    def __init__(self, arrays: Any):
        leaves = tf.nest.flatten(arrays)
        for leaf in leaves:
            if isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
                raise ValueError(
                    f"the source of Indexed has a {type(leaf).__name__}; give dense arrays, or an "
                    "object with __len__ and lookup(indices)"
                )
        sizes = {np.shape(leaf)[:1] for leaf in leaves}
        if not leaves or () in sizes:
            raise ValueError(
                f"the source of Indexed must be nested arrays, or an object with __len__ and "
                f"lookup(indices); got {type(arrays).__name__}"
                + (" with a value that has no leading dimension" if leaves else " with no array")
            )
        if len(sizes) > 1:
            raise ValueError(
                "the arrays of Indexed have different leading dimensions: "
                f"{sorted(size[0] for size in sizes)}"
            )
        self._size = int(sizes.pop()[0])
        self._tensors = tf.nest.map_structure(tf.convert_to_tensor, arrays)

    def __len__(self) -> int:
        return self._size

    def lookup(self, indices: tf.Tensor) -> Any:
        """Returns the rows at int64[B]."""
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, indices), self._tensors)


def _checker(indices: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that checks the leading dimension of what `lookup` returned."""

    def check(leaf: Any) -> Any:
        rank = leaf.shape.rank
        if rank is not None and not leaf.shape[:1].is_compatible_with(indices.shape):
            raise ValueError(
                f"lookup(indices) returned a tensor of shape {leaf.shape} for indices of shape "
                f"{indices.shape}; its leading dimension must be that of the indices"
            )
        if rank is None or not isinstance(leaf, tf.Tensor):
            return leaf
        return tf.ensure_shape(leaf, [*indices.shape, *leaf.shape[1:]])  # where it shows late

    return check
