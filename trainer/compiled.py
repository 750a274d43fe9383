"""The compiled train step and the loop around it.

Owns the two functions that TensorFlow runs: the step, traced once, and a loop in the graph that
takes the number of steps as a tensor. Promises that results do not depend on where calls end, that
the end of the data is tested in the graph before anything of that step has run, and that the loop
stops right after a step with a non-finite output. Refuses to know when a call should end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf


class Step:
    """A traced step.

    Args:
        step: takes a batch, returns a dict of scalar tensors.
        element_spec: nested `tf.TypeSpec` of one batch.
        jit_compile: use XLA.
        name: what the user calls it, for messages.

    Raises:
        ValueError: what it returns is not a dict of numeric scalars.
    """

    def __init__(
        self, step: Callable[[Any], Any], element_spec: Any, *, jit_compile: bool, name: str
    ):
        function = tf.function(step, jit_compile=jit_compile or None)
        self.function = function.get_concrete_function(element_spec)
        self.outputs = _checked(name, self.function.structured_outputs)

    def __call__(self, batch: Any) -> dict[str, tf.Tensor]:
        return dict(self.function(batch))


@dataclasses.dataclass(frozen=True)
class Call:
    """What one compiled call did.

    Args:
        steps: steps run.
        ended: the data ended before the limit was reached.
        finite: every output of every step was finite; otherwise the last step's was not.
        outputs: name to the last step's value, a scalar tensor.
        series: name to float32[steps].
    """

    steps: int
    ended: bool
    finite: bool
    outputs: Mapping[str, tf.Tensor]
    series: Mapping[str, tf.Tensor]


class Loop:
    """A loop in the graph around a step.

    Args:
        step: the traced step.
        counter: int64 variable, one more after each step.
        iterator: an iterator like those that `run` will be given.
    """

    def __init__(self, step: Step, counter: tf.Variable, iterator: Any):
        self._step = step
        self._counter = counter
        self._run = tf.function(self._loop, autograph=False).get_concrete_function(
            iterator, tf.TensorSpec((), tf.int64)
        )

    def run(self, iterator: Any, limit: int) -> Call:
        """Runs at most `limit` steps on the batches of `iterator`."""
        done, ended, finite, outputs, series = self._run(iterator, tf.constant(limit, tf.int64))
        return Call(int(done), bool(ended), bool(finite), outputs, series)

    def _loop(self, iterator: Any, limit: tf.Tensor) -> Any:
        names = list(self._step.outputs)
        outputs = {name: tf.zeros((), spec.dtype) for name, spec in self._step.outputs.items()}
        series = {
            name: tf.TensorArray(tf.float32, size=tf.cast(limit, tf.int32), element_shape=())
            for name in names
        }
        start = (tf.constant(0, tf.int64), tf.constant(False), tf.constant(True), outputs, series)

        def goes_on(done: Any, ended: Any, finite: Any, outputs: Any, series: Any) -> Any:
            return (done < limit) & ~ended & finite

        def one(done: Any, ended: Any, finite: Any, outputs: Any, series: Any) -> Any:
            batch = iterator.get_next_as_optional()

            def step() -> Any:
                new = self._step(batch.get_value())
                with tf.control_dependencies(list(new.values())):
                    self._counter.assign_add(1)  # counts only what has run to its end
                written = {
                    name: series[name].write(
                        tf.cast(done, tf.int32), tf.cast(new[name], tf.float32)
                    )
                    for name in names
                }
                return done + 1, ended, _all_finite(new), new, written

            def stop() -> Any:
                return done, tf.constant(True), finite, outputs, series

            return tf.cond(batch.has_value(), step, stop)

        # One iteration at a time: a batch must not be drawn before it is certain to be used.
        done, ended, finite, outputs, series = tf.while_loop(
            goes_on, one, start, parallel_iterations=1
        )
        stacked = {name: series[name].stack()[:done] for name in names}
        return done, ended, finite, outputs, stacked


_MOST = 1_000_000  # steps in one call: bounds the memory for their outputs


class Pace:
    """Chooses how many steps one call may run, so that Python has its turn every so often.

    Attributes:
        most: steps in one call at most.

    Args:
        cap: steps in one call at most, as the user set it; None: as many as fit into `secs`.
        secs: seconds that a call should take at most, when there is no cap.
    """

    def __init__(self, cap: int | None, secs: float = 0.2):
        self.most = min(cap or _MOST, _MOST)
        self._cap = cap
        self._secs = secs
        self._limit = 1  # the first call shows how long a step takes

    def limit(self, until_boundary: int) -> int:
        """Returns the number of steps for the next call."""
        return min(until_boundary, self.most, self._cap or self._limit)

    def took(self, steps: int, secs: float) -> None:
        """Takes note of a call of `steps` steps that took `secs` seconds."""
        if steps and secs > 0:
            fitting = int(steps * self._secs / secs)
            self._limit = max(1, min(fitting, 8 * self._limit, self.most))


def _all_finite(outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    floating = [value for value in outputs.values() if value.dtype.is_floating]
    finite = [tf.math.is_finite(tf.cast(value, tf.float32)) for value in floating]
    return tf.reduce_all(tf.stack(finite)) if finite else tf.constant(True)


def _checked(step: str, outputs: Any) -> dict[str, tf.TypeSpec]:
    if not isinstance(outputs, Mapping):
        raise ValueError(
            f"{step} returned {_shown(outputs)}; return a dict of scalars such as {{'loss': loss}}"
        )
    for name, value in outputs.items():
        if not isinstance(name, str):
            raise ValueError(f"{step} returned the key {name!r}; name its outputs with texts")
        numeric = isinstance(value, tf.Tensor | tf.TensorSpec) and (
            value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool
        )
        if not numeric or value.shape.rank != 0:
            raise ValueError(
                f"output {name!r} of {step} is {_shown(value)}; return a scalar, for example "
                "tf.reduce_mean(...)"
            )
    return dict(outputs)


def _shown(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype.name} of shape {value.shape}"
    return f"{value!r}" if value is None else type(value).__name__
