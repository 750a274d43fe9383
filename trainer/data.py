"""The position in the training data.

Owns the iterator that the loop draws from, the passes over a finite dataset, and the decision how
the position survives a restart: saved with the checkpoint, or found again by drawing the same
number of batches. Promises that the decision is made at construction. Refuses to know about steps:
a position is the number of batches drawn since the start of the run.

Three ways (see `pipeline` for when each is exact):

    repeated in the graph   the iterator is saved
    pass by pass            the iterator is saved, and so is its state at the start of the pass
    replayed                nothing is saved but the number of batches
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainer import pipeline
from trainer.log import LOG

_POSITION, _EPOCH, _ITERATOR, _START = "position", "epoch", "iterator", "epoch_start"


class OtherPipelineError(Exception):
    """A saved iterator does not fit the pipeline."""


class Source:
    """The training data of one run.

    Args:
        make: returns the dataset; called again when the position has to be found by drawing, so
            it must return an equal one each time.
        epochs: passes over the dataset; None: without end.

    Raises:
        ValueError: `make` returns no dataset, or an empty one.

    Attributes:
        iterator: what the loop draws from.
        element_spec: nested `tf.TypeSpec` of one batch.
        reason: why the position cannot be saved, or None if it can.
        position: batches drawn since the start of the run.
    """

    def __init__(self, make: Callable[[], Any], epochs: int | None):
        self._make = make
        self._epochs = epochs
        self.position = 0
        self.iterator: Any
        self._open_run()
        self.element_spec = self.iterator.element_spec
        if self.reason is not None:
            LOG.warning(
                "data position: cannot be saved with the checkpoint (%s). After a restart the "
                "batches already used are drawn again and dropped: exact if the pipeline is "
                "deterministic and uses no variable or generator that the trainer saves, and it "
                "takes as long as drawing them took",
                self.reason,
            )

    def drawn(self, batches: int) -> None:
        """Takes note of batches drawn from `iterator`."""
        self.position += batches
        self._drawn_in_epoch += batches

    def open_next_epoch(self) -> bool:
        """Opens the next pass after `iterator` has ended.

        Returns:
            False if there is none: the passes are used up, or the last one gave no batch.
        """
        used_up = self._passes is not None and self._epoch + 1 >= self._passes
        if not self._pass_by_pass or used_up or not self._drawn_in_epoch:
            return False
        self._open_epoch(self._epoch + 1)
        return True

    def saved(self) -> dict[str, tf.Tensor]:
        """Returns the position, by name."""
        tensors = {
            _POSITION: tf.constant(self.position, tf.int64),
            _EPOCH: tf.constant([self._epoch, self._drawn_in_epoch, self._passes or 0], tf.int64),
        }
        if self.reason is None:
            tensors[_ITERATOR] = _serialize(self.iterator)
        if self._start is not None:
            tensors[_START] = self._start
        return tensors

    def restore(self, tensors: Mapping[str, tf.Tensor], *, by_count: bool) -> None:
        """Goes to the position that a checkpoint holds.

        Args:
            tensors: what `saved` returned.
            by_count: find it by drawing, whatever was saved.

        Raises:
            OtherPipelineError: what was saved is the state of another pipeline.
        """
        position = int(tensors[_POSITION])
        epoch, drawn_in_epoch, passes = (int(number) for number in tensors[_EPOCH])
        # An iterator repeated in the graph holds the number of passes: with another, it is no use.
        other = not self._pass_by_pass and passes != (self._passes or 0)
        other = other or (_START in tensors) != self._pass_by_pass
        if by_count or other or self.reason is not None or _ITERATOR not in tensors:
            self._replay(position)
            return
        try:
            _deserialize(self.iterator, tensors[_ITERATOR])
            if self._pass_by_pass:
                # Last: restoring sets the counters that the next pass is shuffled by to what they
                # were at the start of this one, also where `iterator` has lost them.
                self._start = tensors[_START]
                _deserialize(iter(self._dataset), self._start)
        except tf.errors.OpError as error:
            raise OtherPipelineError(pipeline.first_line(error)) from error
        self.position = position
        self._epoch, self._drawn_in_epoch = epoch, drawn_in_epoch

    def _open_run(self) -> None:
        """Opens the dataset at its beginning and decides how its position is kept."""
        dataset = self._make()
        if not isinstance(dataset, tf.data.Dataset):
            raise ValueError(
                f"train_dataset() returned {type(dataset).__name__}; return a tf.data.Dataset"
            )
        if int(dataset.cardinality()) == 0:
            raise ValueError(
                "train_dataset() returned an empty dataset (0 batches); give it at least one batch "
                "(a batch size above the number of examples with drop_remainder=True gives none)"
            )
        if self._epochs is not None and _is_endless(dataset):
            raise ValueError(
                f"epochs={self._epochs} needs a finite dataset, and train_dataset() returned one "
                "without end; leave out its .repeat(), or give max_steps instead of epochs"
            )
        verdict = pipeline.judge(dataset)
        once, times = pipeline.without_repeat(dataset)
        if verdict.reason is not None and times != 1 and pipeline.judge(once).reason is None:
            dataset, verdict = once, pipeline.judge(once)
        else:
            times = 1
        self.reason = verdict.reason
        self._passes = None if times is None or self._epochs is None else times * self._epochs
        endless = _is_endless(dataset)
        self._pass_by_pass = not verdict.repeat_in_graph and not endless
        if not self._pass_by_pass and not endless:
            dataset = dataset.repeat(self._passes)
        self._dataset = dataset
        self._open_epoch(0)

    def _open_epoch(self, number: int) -> None:
        self._epoch, self._drawn_in_epoch = number, 0
        self.iterator = iter(self._dataset)
        self._start = _serialize(self.iterator) if self._pass_by_pass else None

    def _replay(self, position: int) -> None:
        """Draws and drops `position` batches from the beginning, with signs of life."""
        self.position = 0
        self._open_run()
        if position:
            LOG.info("data position: drawing %d batches again to find it", position)
        draw = tf.function(_draw, autograph=False).get_concrete_function(
            self.iterator, tf.TensorSpec((), tf.int64)
        )
        chunk = 1
        said = begun = time.monotonic()
        while self.position < position:
            before = time.monotonic()
            wanted = min(chunk, position - self.position)
            count = int(draw(self.iterator, tf.constant(wanted, tf.int64)))
            self.drawn(count)
            if count < wanted and not self.open_next_epoch():
                LOG.warning("data position: the data ended before batch %d", position)
                return
            now = time.monotonic()
            chunk = max(1, min(2 * chunk, int(count / max(now - before, 1e-9))))
            if now - said >= 5:
                said = now
                left = (now - begun) / self.position * (position - self.position)
                LOG.info(
                    "data position: %d of %d batches, %.0f s left", self.position, position, left
                )


def _is_endless(dataset: tf.data.Dataset) -> bool:
    return int(dataset.cardinality()) == int(tf.data.INFINITE_CARDINALITY)


def _serialize(iterator: Any) -> tf.Tensor:
    return tf.raw_ops.SerializeIterator(
        resource_handle=iterator._iterator_resource, external_state_policy=pipeline.FAIL
    )


def _deserialize(iterator: Any, state: tf.Tensor) -> None:
    tf.raw_ops.DeserializeIterator(resource_handle=iterator._iterator_resource, serialized=state)


def _draw(iterator: Any, count: tf.Tensor) -> tf.Tensor:
    def goes_on(done: Any, ended: Any) -> Any:
        return (done < count) & ~ended

    def one(done: Any, ended: Any) -> Any:
        has_value = iterator.get_next_as_optional().has_value()
        return done + tf.cast(has_value, tf.int64), ~has_value

    start = (tf.constant(0, tf.int64), tf.constant(False))
    return tf.while_loop(goes_on, one, start, parallel_iterations=1)[0]
