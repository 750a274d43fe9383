"""Evaluation: a compiled pass over other data.

Owns the loop over an evaluation dataset, the mean of scalars over its batches, and the results of
metrics over all of it. Promises to leave what it was told to protect and what metrics hold as it
was, to end early if a stop signal leaves no time, and to warn of running results, whose mean is no
result. Refuses to touch the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import tensorflow as tf

from trainer import errors
from trainer.base.log import LOG
from trainer.data import cache_files, indexed, inexact
from trainer.graph import compiled, inspection, running_results
from trainer.run import metric_outputs, signals
from trainer.state import discovery, seeds


class Evaluator:
    """A compiled `eval_step` over a dataset.

    Args:
        eval_step: takes a batch, returns a dict of scalar tensors and metrics.
        iterator: an iterator like those that `run` will be given.
        state: the variables that the trainer saves.

    Attributes:
        apart: variables of its metrics that are no state: they were made while it was traced.

    Raises:
        ValueError: what `eval_step` returns is not a dict of numeric scalars and metrics.
    """

    def __init__(
        self, eval_step: Callable[[Any], Any], iterator: Any, state: Collection[discovery.Entry]
    ):
        self._step = compiled.Step(
            eval_step, iterator.element_spec, jit_compile=False, name="eval_step"
        )
        function = self._step.function
        for hidden in inspection.hidden_state(function):
            LOG.warning(
                "eval_step: evaluate() may give other values in a resumed run because of %s", hidden
            )
        writes = inspection.writes_variables(function)
        written = inspection.touched_variables(function) if writes else {}
        self._written = set(written)
        self._metrics = metric_outputs.Metrics("eval_step", self._step.metrics)
        known = {id(entry.variable) for entry in state}
        self.apart = [v for v in self._metrics.variables if id(v) not in known]
        _warn_of_running_results(function, written, state)
        self._stopped = tf.Variable(False, trainable=False, name="stopped")
        self._run = tf.function(self._pass, autograph=False).get_concrete_function(
            iterator, tf.TensorSpec((), tf.int64)
        )

    def run(
        self,
        iterator: Any,
        steps: int | None,
        protected: Iterable[discovery.Entry],
        grace_secs: float,
    ) -> dict[str, float]:
        """Returns the mean of each scalar, weighted by batch size, and the result of each metric.

        Args:
            iterator: gives the batches.
            steps: batches at most; None: all.
            protected: variables that have their values back afterwards, as those of metrics have.
            grace_secs: how long a stop signal leaves for the rest.

        Raises:
            ValueError: there was no batch, or a metric's result is no number.
            EvaluationStoppedError: a stop signal left no time for the rest.
        """
        variables = [entry.variable for entry in protected]
        before = [(v, v.read_value()) for v in variables if inspection.handles([v]) & self._written]
        before += self._metrics.read()
        try:
            self._metrics.reset()
            limit = tf.constant(tf.int64.max if steps is None else steps, tf.int64)
            self._stopped.assign(False)
            with signals.deadline(grace_secs, lambda: self._stopped.assign(True)):
                done, stopped, weight, sums = self._run(iterator, limit)
            if stopped:
                raise errors.EvaluationStoppedError(int(done), grace_secs)
            if not weight:
                raise ValueError("eval_dataset() gave no batch; give it at least one")
            means = {name: float(total / weight) for name, total in sums.items()}
            return means | {name: float(one) for name, one in self._metrics.values().items()}
        finally:
            metric_outputs.put_back(before)

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


def _warn_of_running_results(
    function: Any, written: Mapping[int, str], state: Collection[discovery.Entry]
) -> None:
    """Warns of outputs that tell of all batches so far: their mean over the batches is wrong."""
    names, seeds = dict(written), set()
    for entry in state:
        for handle in inspection.handles([entry.variable]):
            names[handle] = entry.name
            seeds |= {handle} if entry.kind == "seed" else set()
    for output, handles in running_results.running(function, seeds).items() if written else ():
        LOG.warning(
            "eval_step: output %r is computed from what the step wrote before (%s), so it tells of "
            "all batches so far, and evaluate() returns the mean of such running results, which is "
            "not the result; return the metric itself: {%r: self.<metric>} instead of its "
            "result(). Anything with result() and reset_state() is a metric",
            output,
            ", ".join(names.get(handle, "a variable").removesuffix(":0") for handle in handles),
            output,
        )
