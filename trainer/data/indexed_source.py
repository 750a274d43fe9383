"""Training data that is addressed by number, as the source of a run.

Owns the way from a number of batches to an iterator that goes on there. Promises that this takes as
long at any number. Refuses to know the order of the examples (see `data`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from trainer.base.log import LOG
from trainer.data import indexed, inexact, position, saveable


class IndexedSource(position.Source):
    """A run's `trainer.data.Indexed`.

    Args:
        indexed: what `train_dataset` returned.
        epochs: passes at most; None: as many as `indexed` says.
    """

    def __init__(self, indexed: indexed.Indexed, epochs: int | None):
        self._indexed = indexed.limited(epochs)
        self.pass_length = len(indexed)
        self._open()
        self.element_spec = self.iterator.element_spec
        verdict = saveable.judge(self._dataset)
        self.made, self.pipeline, self.graph = indexed, self._dataset, verdict.graph
        reason = verdict.reason
        self.findings = inexact.findings(self._dataset, self.graph, name="Indexed")
        if reason is not None:
            LOG.warning(
                "the batches of Indexed do not depend on their number alone (%s), so a resumed run "
                "may differ: let map_fn draw by tf.random.stateless_* from the seed that it is "
                "given, and mark a tf.numpy_function in lookup as stateful=False",
                reason,
            )
        LOG.info(
            "data position: the number of batches (%d examples, %d batches a pass)",
            indexed.size,
            self.pass_length,
        )

    def restore(self, tensors: Mapping[str, tf.Tensor], *, by_count: bool) -> None:
        """Goes to the position that a checkpoint holds.

        Args:
            tensors: what `saved` returned.
            by_count: makes no difference: there is nothing else.
        """
        self.position = int(tensors[position.POSITION])
        if position.INDEXED in tensors:
            self._say_what_changed(np.asarray(tensors[position.INDEXED]).tolist())
        self._open()

    def saved(self) -> dict[str, tf.Tensor]:
        """Returns the position, by name, and what the order depends on."""
        order = list(self._indexed.order().values())
        return super().saved() | {position.INDEXED: tf.constant(order, tf.int64)}

    def _say_what_changed(self, before: list[int]) -> None:
        changed = [
            f"{name} was {old}, now {new}"
            for old, (name, new) in zip(before, self._indexed.order().items(), strict=True)
            if old != new
        ]
        if changed:
            LOG.warning(
                "the order of the data is another one from batch %d on: %s; examples of this pass "
                "may come twice or not at all",
                self.position,
                ", ".join(changed),
            )

    def _open(self) -> None:
        self._dataset = self._indexed.dataset(self.position)
        self.iterator = iter(self._dataset)
