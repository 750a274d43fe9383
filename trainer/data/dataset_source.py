"""A `tf.data` pipeline as the source of a run.

Owns the passes over a finite dataset and the decision how the position survives a restart: saved
with the checkpoint, or found again by drawing the same number of batches. Promises that it is made
at construction and told. Refuses to judge a pipeline (see `saveable`).

Three ways (see `saveable` for when each is exact):

    repeated in the graph   the iterator is saved
    pass by pass            the iterator is saved, and so is its state at the start of the pass
    replayed                nothing is saved but the number of batches
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainer.base.log import LOG
from trainer.data import cache_files, inexact, position, saveable, stages


class DatasetSource(position.Source):
    """A run's `tf.data.Dataset`.

    Args:
        make: returns the dataset; called again when the position has to be found by drawing, so
            it must return an equal one each time.
        epochs: passes over the dataset; None: without end.
        keep: "auto", "saved" or "replay": how to keep the position.

    Raises:
        ValueError: `make` returns no dataset, an empty one, or one whose position cannot be saved
            though `keep` asks for it.
    """

    def __init__(self, make: Callable[[], Any], epochs: int | None, keep: str = "auto"):
        self._make = make
        self._epochs = epochs
        self._keep = keep
        self.reopen()
        self.element_spec = self.iterator.element_spec
        self.findings = inexact.findings(self._dataset, self.graph)
        if self.why_replayed is None:
            size = len(tf.io.serialize_tensor(_serialize(self.iterator)).numpy())
            LOG.info("data position: saved with the checkpoint, about %s B now", f"{size:,}")
        else:
            LOG.warning(
                "data position: replayed by count (%s). After a restart the batches already used "
                "are drawn again and dropped: exact if the pipeline is deterministic, which cannot "
                "be known here, and uses no variable or generator that the trainer saves; it takes "
                "as long as drawing them took",
                self.why_replayed,
            )

    def reopen(self) -> None:
        """Opens the dataset at its beginning and decides how its position is kept."""
        dataset = self._make()
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
        cache_files.free(dataset)
        verdict = saveable.judge(dataset)
        if self.made is None:
            self.made = self.pipeline = dataset
            self.graph = verdict.graph
        once, times = saveable.without_repeat(dataset)
        if verdict.reason is not None and times != 1 and saveable.judge(once).reason is None:
            dataset, verdict = once, saveable.judge(once)
        else:
            times = 1
        self.why_replayed = self._decide(verdict.reason)
        self._passes = None if times is None or self._epochs is None else times * self._epochs
        endless = _is_endless(dataset)
        self._pass_by_pass = not verdict.repeat_in_graph and not endless
        if not self._pass_by_pass and not endless:
            dataset = dataset.repeat(self._passes)
        self._dataset = dataset
        length = int(once.cardinality())
        self.pass_length = length if length > 0 else None
        self._open_epoch(0)

    def drawn(self, batches: int) -> None:
        """Takes note of batches drawn from `iterator`."""
        super().drawn(batches)
        self._drawn_in_epoch += batches

    def epoch(self, back: int = 0) -> tuple[int, int] | None:
        """Returns the pass of the last batch but `back`, from 1, and the batches of it so far."""
        if self._pass_by_pass:
            return self._epoch + 1, self._drawn_in_epoch - back
        return super().epoch(back)

    def own_seeds(self, planted: int) -> list[str]:
        """Returns the stages with a seed of the program's own."""
        return stages.own_seeds(self._dataset, planted)

    @property
    def pass_steps(self) -> int | None:
        """Batches of one pass; None where that is not known."""
        if not self._pass_by_pass:
            return self.pass_length
        length = int(self._dataset.cardinality())
        return length if length > 0 else None

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
        counts = [self._epoch, self._drawn_in_epoch, self._passes or 0]
        tensors = super().saved() | {position.EPOCH: tf.constant(counts, tf.int64)}
        if self.why_replayed is None:
            tensors[position.ITERATOR] = _serialize(self.iterator)
        if self._start is not None:
            tensors[position.START] = self._start
        return tensors

    def restore(self, tensors: Mapping[str, tf.Tensor], *, by_count: bool) -> None:
        """Goes to the position that a checkpoint holds.

        Args:
            tensors: what `saved` returned.
            by_count: find it by drawing, whatever was saved.

        Raises:
            position.OtherPipelineError: what was saved is the state of another pipeline.
        """
        drawn = int(tensors[position.POSITION])
        if position.EPOCH not in tensors:  # the data came from another kind of source before
            self._replay(drawn)
            return
        epoch, drawn_in_epoch, passes = (int(number) for number in tensors[position.EPOCH])
        # An iterator repeated in the graph holds the number of passes: with another, it is no use.
        other = not self._pass_by_pass and passes != (self._passes or 0)
        other = other or (position.START in tensors) != self._pass_by_pass
        if by_count or other or self.why_replayed is not None or position.ITERATOR not in tensors:
            self._replay(drawn)
            return
        try:
            _deserialize(self.iterator, tensors[position.ITERATOR])
            if self._pass_by_pass:
                # Last: restoring sets the counters that the next pass is shuffled by to what they
                # were at the start of this one, also where `iterator` has lost them.
                self._start = tensors[position.START]
                _deserialize(iter(self._dataset), self._start)
        except tf.errors.OpError as error:
            raise position.OtherPipelineError(saveable.first_line(error)) from error
        self.position = drawn
        self._epoch, self._drawn_in_epoch = epoch, drawn_in_epoch

    def _decide(self, reason: str | None) -> str | None:
        """Returns why the position is replayed, or None if it is saved."""
        if self._keep == "replay":
            return reason or "data_position='replay'"
        if self._keep == "saved" and reason is not None:
            raise ValueError(
                f"data_position='saved' cannot be had: {reason}; change the pipeline, or leave "
                "data_position at 'auto' to have the batches drawn again after a restart"
            )
        return reason

    def _open_epoch(self, number: int) -> None:
        self._epoch, self._drawn_in_epoch = number, 0
        self.iterator = iter(self._dataset)
        saved = self._pass_by_pass and self.why_replayed is None
        self._start = _serialize(self.iterator) if saved else None

    def _replay(self, wanted: int) -> None:
        """Draws and drops `wanted` batches from the beginning, with signs of life."""
        self.position = 0
        self.reopen()
        if wanted:
            LOG.info("data position: drawing %d batches again to find it", wanted)
        draw = tf.function(_draw, autograph=False).get_concrete_function(
            self.iterator, tf.TensorSpec((), tf.int64)
        )
        chunk = 1
        said = begun = time.monotonic()
        while self.position < wanted:
            before = time.monotonic()
            some = min(chunk, wanted - self.position)
            count = int(draw(self.iterator, tf.constant(some, tf.int64)))
            self.drawn(count)
            if count < some and not self.open_next_epoch():
                LOG.warning("data position: the data ended before batch %d", wanted)
                return
            now = time.monotonic()
            chunk = max(1, min(2 * chunk, int(count / max(now - before, 1e-9))))
            if now - said >= 5:
                said = now
                rate = self.position / (now - begun)
                LOG.info(
                    "data position: %d of %d batches, %.3g batches/s, %.0f s left",
                    self.position,
                    wanted,
                    rate,
                    (wanted - self.position) / rate,
                )


def _is_endless(dataset: tf.data.Dataset) -> bool:
    return int(dataset.cardinality()) == int(tf.data.INFINITE_CARDINALITY)


def _serialize(iterator: Any) -> tf.Tensor:
    return tf.raw_ops.SerializeIterator(
        resource_handle=iterator._iterator_resource, external_state_policy=saveable.IGNORE
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
