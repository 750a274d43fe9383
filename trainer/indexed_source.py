"""Training data that is addressed by number, as the source of a run.

Owns the way from a number of batches to an iterator that goes on there. Promises that this takes as
long at any number. Refuses to know the order of the examples (see `data`).
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from trainer import data, position
from trainer.log import LOG


class IndexedSource(position.Source):
    """A run's `trainer.data.Indexed`.

    Args:
        indexed: what `train_dataset` returned.
        epochs: passes at most; None: as many as `indexed` says.
    """

    def __init__(self, indexed: data.Indexed, epochs: int | None):
        self._indexed = indexed.limited(epochs)
        self.pass_length = len(indexed)
        self._open()
        self.element_spec = self.iterator.element_spec
        LOG.info(
            "data position: the number of batches, 8 B (%d examples, %d batches a pass)",
            indexed.size,
            self.pass_length,
        )

    def restore(self, tensors: Mapping[str, tf.Tensor], *, by_count: bool) -> None:
        """Goes to the position that a checkpoint holds; a seed or a size may be another now."""
        del by_count  # there is nothing else
        self.position = int(tensors[position.POSITION])
        self._open()

    def _open(self) -> None:
        self.iterator = iter(self._indexed.dataset(self.position))
