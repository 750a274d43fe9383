"""Evaluation: a compiled pass over other data.

Owns the loop over an evaluation dataset and the mean over its batches. Promises to leave what it
was told to protect as it was, and to end early if a stop signal leaves no time. Refuses to touch
the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from trainer import errors
from trainer.base.log import LOG
from trainer.data import cache_files, indexed, inexact
from trainer.graph import compiled, inspection
from trainer.run import signals
from trainer.state import seeds


class Evaluator:
    """A compiled `eval_step` over a dataset.

    Args:
        eval_step: takes a batch, returns a dict of scalar tensors.
        iterator: an iterator like those that `run` will be given.

    Raises:
        ValueError: what `eval_step` returns is not a dict of numeric scalars.
    """

    def __init__(self, eval_step: Callable[[Any], Any], iterator: Any):
        self._step = compiled.Step(
            eval_step, iterator.element_spec, jit_compile=False, name="eval_step"
        )
        function = self._step.function
        for hidden in inspection.hidden_state(function):
            LOG.warning(
                "eval_step: evaluate() may give other values in a resumed run because of %s", hidden
            )
        writes = inspection.writes_variables(function)
        self._written = set(inspection.touched_variables(function)) if writes else set()
        self._stopped = tf.Variable(False, trainable=False, name="stopped")
        self._run = tf.function(self._pass, autograph=False).get_concrete_function(
            iterator, tf.TensorSpec((), tf.int64)
        )

    def run(
        self,
        iterator: Any,
        steps: int | None,
        protected: Iterable[tf.Variable],
        grace_secs: float,
    ) -> dict[str, float]:
        """Returns the mean of each output over the batches, weighted by batch size.

        Args:
            iterator: gives the batches.
            steps: batches at most; None: all.
            protected: variables that have their values back afterwards.
            grace_secs: how long a stop signal leaves for the rest.

        Raises:
            ValueError: there was no batch.
            EvaluationStoppedError: a stop signal left no time for the rest.
        """
        before = [(v, v.read_value()) for v in protected if inspection.handles([v]) & self._written]
        try:
            limit = tf.constant(tf.int64.max if steps is None else steps, tf.int64)
            self._stopped.assign(False)
            with signals.deadline(grace_secs, lambda: self._stopped.assign(True)):
                done, stopped, weight, sums = self._run(iterator, limit)
        finally:
            for variable, value in before:
                variable.assign(value)
        if stopped:
            raise errors.EvaluationStoppedError(int(done), grace_secs)
        if not weight:
            raise ValueError("eval_dataset() gave no batch; give it at least one")
        return {name: float(total / weight) for name, total in sums.items()}

    def _pass(self, iterator: Any, limit: tf.Tensor) -> Any:
        none = tf.experimental.Optional.empty(iterator.element_spec)

        def draw(done: Any) -> Any:
            stopped = self._stopped.read_value()
            going = (done < limit) & ~stopped
            return stopped, tf.cond(going, iterator.get_next_as_optional, lambda: none)

        def goes_on(done: Any, stopped: Any, batch: Any, weight: Any, sums: Any) -> Any:
            return batch.has_value()

        def one(done: Any, stopped: Any, batch: Any, weight: Any, sums: Any) -> Any:
            value = batch.get_value()
            size = tf.cast(_size(value), tf.float64)
            outputs = self._step(value)
            new = {k: sums[k] + size * tf.cast(outputs[k], tf.float64) for k in sums}
            with tf.control_dependencies(list(outputs.values())):
                return done + 1, *draw(done + 1), weight + size, new

        start = tf.constant(0, tf.int64)
        zeros = {name: tf.zeros((), tf.float64) for name in self._step.outputs}
        first = start, *draw(start), tf.zeros((), tf.float64), zeros
        done, stopped, _, weight, sums = tf.while_loop(goes_on, one, first, parallel_iterations=1)
        return done, stopped & (done < limit), weight, sums


def opened(dataset: Any, *, first: bool) -> Any:
    """Returns an iterator over an evaluation dataset.

    Args:
        dataset: what `eval_dataset` returned.
        first: whether to warn of what in it gives other batches in a resumed run.
    """
    if first:
        _look_at(dataset)
    return iter(dataset)


def _look_at(dataset: Any) -> None:
    if isinstance(dataset, indexed.Indexed):
        dataset = dataset.limited(1).dataset()
    if not isinstance(dataset, tf.data.Dataset):
        return
    if not seeds.can_lend_tensorflows():
        LOG.warning(
            "eval_dataset(): this version of TensorFlow does not let its seed be lent; give every "
            "shuffle in it a seed, or a resumed run may evaluate in another order"
        )
    cache_files.free(dataset)
    for text in inexact.findings(dataset).certain:
        LOG.warning(
            "eval_dataset(): evaluate() may give other values in a resumed run because of %s", text
        )


def _size(batch: Any) -> tf.Tensor:
    """Returns the number of rows of a batch."""
    first = tf.nest.flatten(batch)[0]
    if isinstance(first, tf.RaggedTensor):
        return first.nrows()
    if isinstance(first, tf.SparseTensor):
        return first.dense_shape[0]
    return tf.shape(first)[0] if first.shape.rank != 0 else tf.constant(1)
