"""The metrics among the outputs of a step: their values, and when they start anew.

Owns the way from a metric to numbers with names. Promises that a value is of the step that it is
shown for, whatever became of the metric since, and that a metric with `reset="epoch"` starts anew
right before the first step of a pass, on a batch that is there: neither kills nor the ends of
compiled calls show in it. Refuses to update one: the step does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import errors
from trainer.data import position
from trainer.graph import metrics, snapshot
from trainer.state import discovery

Values = list[tuple[tf.Variable, tf.Tensor]]


class Metrics:
    """The metrics that a step returned.

    Args:
        step: what the user calls the step, for messages.
        found: name of the output to the metric.

    Attributes:
        variables: all that they hold.
    """

    def __init__(self, step: str, found: Mapping[str, Any]):
        self._step = step
        self._found = dict(found)
        self._each_pass = [
            metric
            for metric in found.values()
            if isinstance(metric, metrics.Metric) and metric.reset == "epoch"
        ]
        self.variables = _variables(self._found.values())
        self._reader = snapshot.Reader(self.variables)

    def __bool__(self) -> bool:
        return bool(self._found)

    def names(self) -> list[str]:
        """Returns the names of the values, and so checks that each metric has a result.

        Raises:
            ValueError: a result is no number and no dict of numbers.
        """
        return list(self.values())

    def values(self) -> dict[str, Any]:
        """Returns name to NumPy scalar: what the metrics' `result()` is now.

        Raises:
            ValueError: a result is no number and no dict of numbers.
        """
        values = {}
        for name, metric in self._found.items():
            try:
                result = metric.result()
            except Exception as error:
                errors.add_note(error, f"raised by result() of output {name!r} of {self._step}")
                raise
            nested = isinstance(result, Mapping)
            for key, one in result.items() if nested else [("", result)]:
                values[f"{name}/{key}" if nested else name] = self._number(name, key, one)
        return values

    def reset(self) -> None:
        """Has all of them start anew."""
        for metric in self._found.values():
            metric.reset_state()

    def read(self) -> Values:
        """Returns what their variables hold now."""
        return list(zip(self.variables, self._reader(), strict=True))

    @contextlib.contextmanager
    def holding(self, values: Values) -> Iterator[None]:
        """For the time of a `with`, has their variables hold what `read` returned."""
        now = self.read()
        put_back(values)
        try:
            yield
        finally:
            put_back(now)

    def check_passes(self, source: position.Source) -> None:
        """Refuses to have metrics start anew with each pass where no pass shows.

        Args:
            source: the training data.

        Raises:
            ValueError: there are such metrics, and it is not known where a pass ends.
        """
        if self._each_pass and source.epoch() is None:
            raise ValueError(
                "trainer.Metric(reset='epoch') needs data that know where a pass ends, and "
                "train_dataset() returned data of unknown or no length; state the number of "
                "batches with dataset.apply(tf.data.experimental.assert_cardinality(n)), or use "
                "reset='never' and reset it in a hook"
            )

    def end_of_pass(self, source: position.Source) -> int | None:
        """Returns how many batches are left of the pass, if a metric starts anew after it.

        None also where the data themselves end a call there.

        Args:
            source: the training data.
        """
        if not self._each_pass or source.pass_length is None:
            return None
        return source.pass_length - source.position % source.pass_length

    def begin_pass(self, source: position.Source) -> Values:
        """Has metrics start anew if the next batch is the first of a pass.

        Args:
            source: the training data.

        Returns:
            What to `put_back` if there was no such batch.
        """
        found = source.epoch() if self._each_pass else None
        if found is None or found[1] not in (0, source.pass_length):
            return []
        before = self.read()
        for metric in self._each_pass:
            metric.reset_state()
        return before

    def _number(self, name: str, key: str, value: Any) -> Any:
        array = np.asarray(value)
        if array.shape != () or array.dtype.kind not in "fiub" + "V":  # V: bfloat16 and its like
            what = f"{name}/{key}" if key else name
            raise ValueError(
                f"output {what!r} of {self._step} is a metric whose result() is {array.dtype} of "
                f"shape {array.shape}; return one number (in Keras, average='macro' or 'micro', or "
                "a metric for each class), or let result() return a dict of numbers: each becomes "
                f"'{name}/<key>'"
            )
        return array[()]


class Reading(Mapping[str, Any]):
    """The values of metrics after one step, computed when one is read first.

    Args:
        of: the metrics, as that step left them.
        names: the names of their values.
    """

    def __init__(self, of: Metrics, names: list[str]):
        self._of = of
        self._names = names
        self._at = of.read()
        self._values: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        if self._values is None:
            if name not in self._names:
                raise KeyError(name)
            with self._of.holding(self._at):
                self._values = self._of.values()
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def put_back(values: Values) -> None:
    """Has variables hold what they held when they were read."""
    for variable, value in values:
        variable.assign(value)


def _variables(found: Iterable[Any]) -> list[tf.Variable]:
    """Returns what metrics hold, those of plain classes included."""
    attributes: list[tuple[str, Any]] = []
    for metric in found:
        attributes.append(("metric", metric))
        inner = metric.metric if isinstance(metric, metrics.Metric) else metric
        attributes += getattr(inner, "__dict__", {}).items()
    return [entry.variable for entry in discovery.discover(attributes).entries]
