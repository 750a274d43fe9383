"""A Python object with a state of its own as the source of a run.

Owns the way from an iterator with `get_state` and `set_state` (the convention of stateful loaders,
Grain's among them) to batches in the graph. Promises that nothing is drawn ahead, so that the state
saved is that of the last batch trained on, and that a batch is drawn only when the step before it
has run to its end, so that an iterator may ask the model. Refuses states that are neither JSON nor
bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.base.log import LOG
from trainer.data import position


def opened(made: Any) -> Any:
    """Returns an iterator over an object if that keeps a state that can be set, else None."""
    iterator = iter(made) if hasattr(made, "__iter__") else None
    stateful = hasattr(iterator, "get_state") and hasattr(iterator, "set_state")
    return iterator if stateful else None


class PythonSource(position.Source):
    """A run's iterable with `get_state()` and `set_state(state)`.

    Args:
        make: returns the object; called again for each restore.
        made: what it returned at first.
        iterator: the first pass over that.
        epochs: passes over it; None: without end. An object that is its own iterator has one pass.
        keep: "replay" to draw the batches again after a restart; else the state is saved.

    Raises:
        ValueError: it gives no batch, its state is neither JSON nor bytes, or it cannot be
            iterated over so often.
    """

    ahead = False  # a batch made by acting depends on the weights, which that step still changes

    def __init__(
        self,
        make: Callable[[], Any],
        made: Any,
        iterator: Any,
        *,
        epochs: int | None,
        keep: str,
    ):
        self._make, self._object, self._python = make, made, iterator
        self.made = made
        self._passes = epochs
        self.why_replayed = "data_position='replay'" if keep == "replay" else None
        self._epoch = self._drawn_in_epoch = 0
        if made is iterator and epochs not in (None, 1):
            raise ValueError(
                f"epochs={epochs} needs data that can be gone through again, and train_dataset() "
                f"returned an iterator ({type(made).__name__}); return an iterable that makes one"
            )
        fresh = _encode(self._python.get_state())
        try:
            first = next(self._python)
        except StopIteration:
            raise ValueError("train_dataset() gave no batch; give it at least one") from None
        if isinstance(first, list):
            raise ValueError(
                "train_dataset() gave a list as its batch; give a tuple or a dict of arrays"
            )
        self._spec = tf.nest.map_structure(_spec, first)
        self._python.set_state(_decode(fresh))
        self._open_dataset()
        self.element_spec = self.iterator.element_spec
        name = type(self._python).__name__
        if self.why_replayed is None:
            LOG.info("data position: the state of %s, %d B now", name, len(fresh))
        else:
            LOG.info("data position: %s is drawn from again by count (%s)", name, self.why_replayed)

    def drawn(self, batches: int) -> None:
        """Takes note of batches drawn from `iterator`."""
        super().drawn(batches)
        self._drawn_in_epoch += batches

    def epoch(self, back: int = 0) -> tuple[int, int] | None:
        """Returns the pass of the last batch but `back`, from 1, and the batches of it so far."""
        return self._epoch + 1, self._drawn_in_epoch - back

    def open_next_epoch(self) -> bool:
        """Opens the next pass after `iterator` has ended; returns False if there is none."""
        used_up = self._passes is not None and self._epoch + 1 >= self._passes
        if used_up or not self._drawn_in_epoch or self._object is self._python:
            return False
        self._python = iter(self._object)
        self._epoch, self._drawn_in_epoch = self._epoch + 1, 0
        self._open_dataset()
        return True

    def saved(self) -> dict[str, tf.Tensor]:
        """Returns the position, by name."""
        counts = tf.constant([self._epoch, self._drawn_in_epoch, 0], tf.int64)
        tensors = super().saved() | {position.EPOCH: counts}
        if self.why_replayed is None:
            tensors[position.STATE] = tf.constant(_encode(self._python.get_state()))
        return tensors

    def restore(self, tensors: Mapping[str, tf.Tensor], *, by_count: bool) -> None:
        """Goes to the position that a checkpoint holds.

        Args:
            tensors: what `saved` returned.
            by_count: draw the batches again, whatever state was saved.
        """
        self._object = self._make()
        self._python = iter(self._object)
        self._epoch = self._drawn_in_epoch = 0
        self.position = int(tensors[position.POSITION])
        if by_count or self.why_replayed is not None or position.STATE not in tensors:
            self._draw_again()
        else:
            epoch, self._drawn_in_epoch, _ = (int(n) for n in tensors[position.EPOCH])
            while self._epoch < epoch:  # an object may count its passes, to shuffle each anew
                self._python = iter(self._object)
                self._epoch += 1
            self._python.set_state(_decode(bytes(np.asarray(tensors[position.STATE]).item())))
        self._open_dataset()

    def _draw_again(self) -> None:
        LOG.info("data position: drawing %d batches again to find it", self.position)
        left = self.position
        while left:
            if next(self._python, None) is not None:
                left -= 1
                self._drawn_in_epoch += 1
            elif not self.open_next_epoch():
                LOG.warning("data position: the data ended before batch %d", self.position)
                return

    def _open_dataset(self) -> None:
        python = self._python

        def draw() -> Iterator[Any]:
            yield from python

        # No prefetch, not even the one that the autotuner adds: the state must not run ahead.
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.inject_prefetch = False
        dataset = tf.data.Dataset.from_generator(draw, output_signature=self._spec)
        self.iterator = iter(dataset.with_options(options))


def _spec(value: Any) -> tf.TensorSpec:
    """Leaves the leading dimension open: the last batch of a pass may be short."""
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        raise ValueError(
            f"train_dataset() gave a {type(value).__name__}; return dense arrays from Python, or "
            "make the dataset with tf.data"
        )
    tensor = tf.convert_to_tensor(value)
    shape = tensor.shape if tensor.shape.rank == 0 else [None, *tensor.shape[1:]]
    return tf.TensorSpec(shape, tensor.dtype)


def _encode(state: Any) -> bytes:
    if isinstance(state, bytes):
        return json.dumps({"bytes": base64.b64encode(state).decode()}).encode()
    try:
        return json.dumps({"json": state}).encode()
    except TypeError as error:
        raise ValueError(
            f"the data's get_state() returned what is neither JSON nor bytes ({error}); return a "
            "dict of numbers and texts, or bytes"
        ) from error


def _decode(content: bytes) -> Any:
    state = json.loads(content)
    return state["json"] if "json" in state else base64.b64decode(state["bytes"])
