"""The position in the training data, whatever the data come from.

Owns what all sources have in common: the iterator that the loop draws from, the number of batches
drawn, and where that is in a pass. Promises that how the position survives a restart is decided at
construction. Refuses to know about steps: a position is the number of batches drawn since the start
of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.data import inexact

POSITION, EPOCH, ITERATOR, START = "position", "epoch", "iterator", "epoch_start"
STATE, INDEXED = "state", "indexed"


class OtherPipelineError(Exception):
    """A saved iterator does not fit the pipeline."""


class Source:
    """The training data of one run.

    Attributes:
        iterator: what the loop draws from.
        element_spec: nested `tf.TypeSpec` of one batch.
        why_replayed: why the position cannot be saved, or None if it can.
        position: batches drawn since the start of the run.
        findings: what in the data makes a resumed run differ.
        pass_length: batches of one pass; None where that is not known.
        ahead: whether a batch may be drawn while the step before it runs.
        made: what `train_dataset` returned at first.
        pipeline: the `tf.data.Dataset` that this is, or leads to, at its beginning; None for data
            that come from Python.
        graph: what the pipeline is made of, a `GraphDef` without large values, where known.
    """

    iterator: Any
    element_spec: Any
    why_replayed: str | None = None
    findings = inexact.Findings()
    position = 0
    pass_length: int | None = None
    ahead = True
    made: Any = None
    pipeline: Any = None
    graph: Any = None

    def drawn(self, batches: int) -> None:
        """Takes note of batches drawn from `iterator`.

        Args:
            batches: how many.
        """
        self.position += batches

    def open_next_epoch(self) -> bool:
        """Opens the next pass after `iterator` has ended; returns False if there is none."""
        return False

    def reopen(self) -> None:
        """Makes the iterator anew, after an error; `restore` comes next and may do it itself."""

    def epoch(self, back: int = 0) -> tuple[int, int] | None:
        """Returns the pass of the last batch but `back`, from 1, and the batches of it so far.

        None where the length of a pass is not known.

        Args:
            back: batches before the last one drawn.
        """
        if self.pass_length is None:
            return None
        position = self.position - back
        before = max(0, position - 1)
        return before // self.pass_length + 1, min(position, before % self.pass_length + 1)

    @property
    def pass_steps(self) -> int | None:
        """Batches of one pass, as `epoch` counts them; None where that is not known."""
        return self.pass_length

    def own_seeds(self, planted: int) -> list[str]:
        """Returns what in the data mixes a seed of the program's own with the run's, in words.

        Args:
            planted: the run's seed, planted before the data were made.
        """
        return []

    def saved(self) -> dict[str, tf.Tensor]:
        """Returns the position, by name."""
        return {POSITION: tf.constant(self.position, tf.int64)}

    def restore(self, tensors: Mapping[str, tf.Tensor], *, by_count: bool) -> None:
        """Goes to the position that a checkpoint holds.

        Args:
            tensors: what `saved` returned.
            by_count: find it by the number of batches alone, whatever else was saved.

        Raises:
            OtherPipelineError: what was saved is the state of another pipeline.
        """
        raise NotImplementedError(f"{type(self).__name__} must define restore")
