"""The outputs of recent steps, one value per step.

Owns the values between the moment a compiled call returns and the moment the last hook that may ask
for them has been called. Promises that nothing is fetched from the device unless it is read, and
that the values not yet shown to a hook travel in the checkpoint, so that a hook sees the same
series in a cut run as in an unbroken one. Refuses to know about hooks: it is told which steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.run import metric_outputs


class _Chunk:
    """The outputs of the steps of one compiled call.

    Args:
        first: first step.
        last: last step.
        series: name to values[last - first + 1], on the device until read.
        secs: seconds of training when the call began and when it ended.
        metrics: name to value of metrics after the last step; empty once there are later steps.
    """

    def __init__(
        self,
        first: int,
        last: int,
        series: Mapping[str, Any],
        secs: tuple[float, float],
        metrics: Mapping[str, Any],
    ):
        self.first = first
        self.last = last
        self.series = series
        self.secs = secs
        self.metrics = metrics
        self._read: dict[str, npt.NDArray[Any]] = {}

    def values(self, name: str) -> npt.NDArray[Any]:
        """Returns the values of one output, fetched from the device once."""
        if name not in self._read:
            self._read[name] = np.asarray(self.series[name])
        return self._read[name]


class Series(Mapping[str, npt.NDArray[np.float32]]):
    """The values of steps `first` to `last` under each output's name, as `float32[n]`.

    Args:
        chunks: consecutive pieces of history.
        first: first step wanted.
        last: last step wanted.
        metrics: names of which only the value after a call is known.
    """

    def __init__(
        self, chunks: Sequence[_Chunk], first: int, last: int, metrics: Sequence[str] = ()
    ):
        self._chunks = [chunk for chunk in chunks if chunk.last >= first and chunk.first <= last]
        self._first = first
        self._last = last
        self._metrics = metrics

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        if name in self._metrics:
            raise KeyError(
                f"{name!r} is a metric, which has no value of each step; read ctx.outputs[{name!r}]"
            )
        if not any(name in chunk.series for chunk in self._chunks):
            raise KeyError(name)
        pieces = [
            _values(chunk, name)[max(self._first - chunk.first, 0) : self._last - chunk.first + 1]
            for chunk in self._chunks
        ]
        with np.errstate(over="ignore"):  # a float64 may be too large
            return np.concatenate(pieces, dtype=np.float32, casting="unsafe")

    def __iter__(self) -> Iterator[str]:
        return iter(self._chunks[-1].series if self._chunks else ())

    def __len__(self) -> int:
        return len(self._chunks[-1].series) if self._chunks else 0


def _values(chunk: _Chunk, name: str) -> npt.NDArray[Any]:
    """Returns the values of an output in a chunk; NaN where the program had no such output yet."""
    if name in chunk.series:
        return chunk.values(name)
    return np.full(chunk.last - chunk.first + 1, np.nan, np.float32)


class History:
    """Recent outputs: of scalars one value per step, of metrics the last.

    Args:
        metrics: the metrics among the outputs of a step.
    """

    def __init__(self, metrics: metric_outputs.Metrics) -> None:
        self._metrics = metrics
        self._names = metrics.names()
        self._chunks: list[_Chunk] = []

    def add(
        self,
        first: int,
        count: int,
        series: Mapping[str, Any],
        secs: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """Appends the outputs of a call that has just returned.

        Args:
            first: its first step.
            count: its steps.
            series: name to values[count], one per step.
            secs: seconds of training when it began and when it ended.
        """
        if count:
            metrics = metric_outputs.Reading(self._metrics, self._names) if self._names else {}
            self._append(first, count, series, secs, metrics)

    def outputs(self, step: int) -> Mapping[str, Any]:
        """Returns name to NumPy scalar of a step, each fetched when it is read first.

        Empty for a step that is not kept: before the first one, say.
        """
        found = self._of(step)
        return {} if found is None else Outputs(found, step)

    def secs(self, step: int) -> float:
        """Returns the seconds of training when a step was done, taking those of a call as equal."""
        chunk = self._of(step)
        if chunk is None:
            return 0.0
        begun, ended = chunk.secs
        share = (step - chunk.first + 1) / (chunk.last - chunk.first + 1)
        return begun + share * (ended - begun)

    def between(self, first: int, last: int) -> Series:
        """Returns the values of steps `first` to `last`, as far as they are here."""
        return Series(self._chunks, first, last, self._names)

    def forget_before(self, step: int) -> None:
        """Drops whole pieces that end before `step`, but the last."""
        kept = [chunk for chunk in self._chunks[:-1] if chunk.last >= step]
        self._chunks = kept + self._chunks[-1:]

    def pending(self, first: int, last: int) -> dict[str, npt.NDArray[np.float32]]:
        """Returns the values of steps `first` to `last` for the checkpoint."""
        return dict(self.between(first, last))

    def last_outputs(self, first: int, last: int) -> dict[str, npt.NDArray[Any]]:
        """Returns the values of steps `first` to `last`, as far as they are here, and of metrics.

        In the type that the step returned, for hooks to read right after a resume.
        """
        if not self._chunks:
            return {}
        found: dict[str, npt.NDArray[Any]] = {}
        for name, value in self.outputs(last).items():
            kept = self.between(first, last)[name] if name not in self._names else ()
            found[name] = np.asarray([*kept[:-1], value], np.asarray(value).dtype)
        return found

    def replace(
        self,
        last: int,
        series: Mapping[str, npt.NDArray[np.float32]],
        outputs: Mapping[str, npt.NDArray[Any]],
        secs: float = 0.0,
    ) -> None:
        """Takes what a checkpoint held in place of all that was here.

        Args:
            last: its step.
            series: name to values not yet shown to a hook, up to that step.
            outputs: name to values of the last steps, of metrics to that of the last, in the type
                that the step returned; empty in checkpoints of earlier versions.
            secs: seconds of training at that step.
        """
        self._chunks = []
        metrics = {name: outputs[name][-1] for name in self._names if name in outputs}
        series = {name: values for name, values in series.items() if name not in self._names}
        count = min((len(values) for values in series.values()), default=0)
        if not outputs:
            self._append(last - count + 1, count, series, (secs, secs), {})
            return
        shown = {name: values for name, values in outputs.items() if name not in metrics}
        few = min((len(values) for values in shown.values()), default=1)
        earlier = {name: values[: max(0, count - few)] for name, values in series.items()}
        self._append(last - count + 1, max(0, count - few), earlier, (secs, secs), {})
        self._append(last - few + 1, few, shown, (secs, secs), metrics)

    def _append(
        self,
        first: int,
        count: int,
        series: Mapping[str, Any],
        secs: tuple[float, float],
        metrics: Mapping[str, Any],
    ) -> None:
        if count:
            if self._chunks:
                self._chunks[-1].metrics = {}  # holds on to what variables held
            self._chunks.append(_Chunk(first, first + count - 1, series, secs, metrics))

    def _of(self, step: int) -> _Chunk | None:
        holding = (chunk for chunk in reversed(self._chunks) if chunk.first <= step <= chunk.last)
        return next(holding, None)


class Outputs(Mapping[str, Any]):
    """The outputs of one step as NumPy scalars; metrics are computed when they are read.

    Args:
        chunk: the outputs of the call that the step was in.
        step: the step.
    """

    def __init__(self, chunk: _Chunk, step: int):
        self._chunk = chunk
        self._index = step - chunk.first
        self._metrics = chunk.metrics if step == chunk.last else {}

    def __getitem__(self, name: str) -> Any:
        if name in self._metrics:
            return self._metrics[name]
        return self._chunk.values(name)[self._index]

    def __iter__(self) -> Iterator[str]:
        return itertools.chain(self._chunk.series, self._metrics)

    def __len__(self) -> int:
        return len(self._chunk.series) + len(self._metrics)
