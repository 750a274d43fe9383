"""The compiled train step and the loop around it.

Owns the two functions that TensorFlow runs: the step, traced once, and a loop in the graph that
takes the number of steps as a tensor. Promises that results do not depend on where calls end, that
the end of the data is tested in the graph before anything of that step has run, and that the loop
stops right after a step with a non-finite output, or after the step during which another thread
asked it to. Refuses to know when a call should end.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainer import errors
from trainer.graph import bad_numbers, direct_call, metrics, specs


class Step:
    """A traced step.

    Args:
        step: takes a batch, returns a dict of scalar tensors and metrics.
        element_spec: nested `tf.TypeSpec` of one batch.
        jit_compile: use XLA.
        name: what the user calls it, for messages.

    Attributes:
        outputs: names and specs of the tensors that it returns.
        metrics: names and metrics: they are objects, of which the graph holds nothing.

    Raises:
        ValueError: what it returns is not a dict of numeric scalars and metrics.
    """

    def __init__(
        self, step: Callable[[Any], Any], element_spec: Any, *, jit_compile: bool, name: str
    ):
        self.metrics: dict[str, Any] = {}

        def traced(batch: Any) -> Any:
            return self._without_metrics(step(batch))

        function = tf.function(traced, jit_compile=jit_compile or None)
        try:
            self.function = function.get_concrete_function(element_spec)
        except Exception as error:
            _explain(error, name, element_spec)
            raise
        self.outputs = _checked(name, self.function.structured_outputs)

    def __call__(self, batch: Any) -> dict[str, tf.Tensor]:
        return dict(self.function(batch))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def _without_metrics(self, outputs: Any) -> Any:
        rest, self.metrics = metrics.parted(outputs)
        return rest


@dataclasses.dataclass(frozen=True)
class Call:
    """What one compiled call did.

    Args:
        steps: steps run.
        ended: the data ended before the limit was reached.
        finite: every output of every step was finite; otherwise the last step's was not.
        series: name to values[steps], in the dtype of the output.
    """

    steps: int
    ended: bool
    finite: bool
    series: Mapping[str, tf.Tensor]


class Loop:
    """A loop in the graph around a step.

    Args:
        step: the traced step.
        counter: int64 variable, one more after each step.
        iterator: an iterator like those that `run` will be given.
        bad: looks at the outputs: the loop ends after a step of which one is NaN or infinite.
    """

    def __init__(
        self, step: Step, counter: tf.Variable, iterator: Any, *, bad: bad_numbers.BadNumbers
    ):
        self._step = step
        self._bad_numbers = bad
        self._counter = counter
        self._spec, self._element_spec = iterator._type_spec, iterator.element_spec
        self._interrupted = tf.Variable(False, trainable=False, name="interrupted")
        self._interrupted.assign(False)  # the first time takes 14 ms, which no signal should wait
        self._is_interrupted = False
        self._limit: tuple[int, Any] = (0, None)
        self._ahead = {False: tf.constant(False), True: tf.constant(True)}
        specs = [tf.TensorSpec((), dtype) for dtype in (tf.resource, tf.int64, tf.bool)]
        function = tf.function(self._loop, autograph=False)
        self._looping = direct_call.Direct(function.get_concrete_function(*specs))

    def run(self, iterator: Any, limit: int, *, short_steps: bool = False) -> Call:
        """Runs steps on the batches of `iterator`.

        Args:
            iterator: the batches.
            limit: steps at most.
            short_steps: steps are so short that the way to them counts. Then each batch is drawn
                while the step before it runs, so that `interrupt` takes effect up to one step
                later, and a single step runs without a loop, in a function that is traced at its
                first use.
        """
        if short_steps and limit == 1:
            return self._run_one(iterator)
        if limit != self._limit[0]:
            self._limit = (limit, tf.constant(limit, tf.int64))
        ahead = self._ahead[short_steps]
        status, *results = self._looping(iterator._iterator_resource, self._limit[1], ahead)
        steps, ended, finite = status.numpy().tolist()
        series = dict(zip(self._step.outputs, results, strict=True))
        return Call(steps, bool(ended), bool(finite), series)

    def prepare(self, iterator: Any) -> None:
        """Has TensorFlow make everything ready to run, without a step or a batch.

        It takes long (0.1 s and more), and no step should be run because of a call that was still
        to be made ready when a signal came.

        Args:
            iterator: the batches.
        """
        no_step = tf.constant(0, tf.int64)
        self._looping(iterator._iterator_resource, no_step, self._ahead[False])

    def pass_over(self, iterator: Any) -> Call:
        """Draws a batch and counts its step without running it; its outputs are NaN, or zero."""
        if not iterator.get_next_as_optional().has_value():
            return Call(0, True, True, {})
        self._counter.assign_add(1)
        series = {
            name: tf.cast(tf.fill([1], float("nan") if spec.dtype.is_floating else 0.0), spec.dtype)
            for name, spec in self._step.outputs.items()
        }
        return Call(1, False, True, series)

    def interrupt(self) -> None:
        """Ends the call under way, or the next one, after the step under way; for any thread."""
        self._is_interrupted = True
        self._interrupted.assign(True)

    def resume(self) -> None:
        """Takes `interrupt` back."""
        if self._is_interrupted:
            self._is_interrupted = False
            self._interrupted.assign(False)

    def _run_one(self, iterator: Any) -> Call:
        batch = tf.raw_ops.IteratorGetNextAsOptional(
            iterator=iterator._iterator_resource,
            output_types=iterator._flat_output_types,
            output_shapes=iterator._flat_output_shapes,
        )
        if not tf.raw_ops.OptionalHasValue(optional=batch):
            return Call(0, True, True, {})
        finite, *results = self._single(batch)
        return Call(1, False, bool(finite), dict(zip(self._step.outputs, results, strict=True)))

    @functools.cached_property
    def _single(self) -> direct_call.Direct:
        def one(batch: tf.Tensor) -> list[tf.Tensor]:
            optional = tf.OptionalSpec(self._element_spec)._from_components([batch])
            new = self._step(optional.get_value())
            with tf.control_dependencies(list(new.values())):
                self._counter.assign_add(1)
            return [
                self._bad_numbers.in_graph(new),
                *(new[name][tf.newaxis] for name in self._step.outputs),
            ]

        function = tf.function(one, autograph=False)
        return direct_call.Direct(function.get_concrete_function(tf.TensorSpec((), tf.variant)))

    def _loop(self, resource: tf.Tensor, limit: tf.Tensor, ahead: tf.Tensor) -> list[tf.Tensor]:
        iterator = self._spec._from_components([resource])
        size = tf.cast(limit, tf.int32)
        series = {
            name: tf.TensorArray(spec.dtype, size=size, element_shape=())
            for name, spec in self._step.outputs.items()
        }

        def goes_on(done: Any, going: Any, finite: Any, batch: Any, series: Any) -> Any:
            return going & finite & batch.has_value()

        def one(done: Any, going: Any, finite: Any, batch: Any, series: Any) -> Any:
            new = self._step(batch.get_value())
            with tf.control_dependencies(list(new.values())):
                counted = self._counter.assign_add(1)  # counts only what has run to its end
            with tf.control_dependencies([self._gate(ahead, counted, done)]):
                # Only when its step is certain to run, unless the outputs of this one are not
                # finite, which leaves a state that is never saved.
                going = (done + 1 < limit) & ~self._interrupted.read_value()
            next_batch = self._draw(iterator, going)
            at = tf.cast(done, tf.int32)
            written = {name: series[name].write(at, value) for name, value in new.items()}
            return done + 1, going, self._bad_numbers.in_graph(new), next_batch, written

        begun = tf.constant(0, tf.int64), tf.constant(True), tf.constant(True)
        first = self._draw(iterator, limit > 0)  # one step at least, also when interrupted
        done, going, finite, _, series = tf.while_loop(
            goes_on, one, (*begun, first, series), parallel_iterations=1
        )
        status = [done, tf.cast(going & finite, tf.int64), tf.cast(finite, tf.int64)]
        return [tf.stack(status), *(series[name].stack()[:done] for name in self._step.outputs)]

    def _gate(self, ahead: tf.Tensor, counted: Any, done: tf.Tensor) -> tf.Tensor:
        """Returns a tensor that is there at once if `ahead`, and else after the step.

        TensorFlow lowers a `cond` to a merge that waits for the chosen branch alone, so that one
        graph serves both: drawn ahead, it is as fast as a graph without the gate (91 and 92 us for
        a step of 98 by hand); in turn, 7 us slower, which counts for short steps only.
        """
        with tf.control_dependencies([counted]):
            after = tf.identity(done)
        return tf.cond(ahead, lambda: tf.identity(done), lambda: tf.identity(after))

    def _draw(self, iterator: Any, going: tf.Tensor) -> tf.experimental.Optional:
        """Returns the next batch, or none: around the whole step, a `cond` takes 20 us."""
        none = tf.experimental.Optional.empty(self._element_spec)
        return tf.cond(going, iterator.get_next_as_optional, lambda: none)


def _explain(error: Exception, step: str, element_spec: Any) -> None:
    """Adds to an error raised while a step is traced what its author cannot see from it."""
    if isinstance(error, NotImplementedError) and f"must define {step}" in str(error):
        return
    errors.add_note(
        error, f"raised while {step} was traced with batch: {specs.written(element_spec)}"
    )
    if "tf.Variable" in str(error) and "creat" in str(error):
        errors.add_note(
            error, f"{step} is compiled once: make variables, layers and metrics in build()"
        )


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
        if numeric and value.shape.rank is None:
            raise ValueError(
                f"output {name!r} of {step} has a shape that is not known; if it is a scalar, say "
                "so with tf.ensure_shape(value, [])"
            )
        if not numeric or value.shape.rank != 0:
            raise ValueError(
                f"output {name!r} of {step} is {_shown(value)}; return a scalar, for example "
                "tf.reduce_mean(...), or a metric"
            )
    return dict(outputs)


def _shown(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype.name} of shape {value.shape}"
    return f"{value!r}" if value is None else type(value).__name__
