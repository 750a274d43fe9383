"""The outputs of recent steps, one value per step.

Owns the values between the moment a compiled call returns and the moment the last hook that may ask
for them has been called. Promises that nothing is fetched from the device unless it is read, and
that the values not yet shown to a hook travel in the checkpoint, so that a hook sees the same
series in a cut run as in an unbroken one. Refuses to know about hooks: it is told which steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class _Chunk:
    first: int  # step of the first value
    last: int
    series: Mapping[str, Any]  # name to float32[last - first + 1], on the device until read


class Series(Mapping[str, npt.NDArray[np.float32]]):
    """The values of steps `first` to `last` under each output's name, as `float32[n]`.

    Args:
        chunks: consecutive pieces of history.
        first: first step wanted.
        last: last step wanted.
    """

    def __init__(self, chunks: Sequence[_Chunk], first: int, last: int):
        self._chunks = [chunk for chunk in chunks if chunk.last >= first and chunk.first <= last]
        self._first = first
        self._last = last

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        pieces = [
            np.asarray(chunk.series[name])[
                max(self._first - chunk.first, 0) : self._last - chunk.first + 1
            ]
            for chunk in self._chunks
        ]
        if not pieces:
            raise KeyError(name)
        return np.concatenate(pieces)

    def __iter__(self) -> Iterator[str]:
        return iter(self._chunks[-1].series if self._chunks else ())

    def __len__(self) -> int:
        return len(self._chunks[-1].series) if self._chunks else 0


class History:
    """Recent per-step outputs."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []

    def add(self, first: int, count: int, series: Mapping[str, Any]) -> None:
        """Appends the values of `count` steps from step `first` on: name to float32[count]."""
        if count:
            self._chunks.append(_Chunk(first, first + count - 1, series))

    def between(self, first: int, last: int) -> Series:
        """Returns the values of steps `first` to `last`, as far as they are here."""
        return Series(self._chunks, first, last)

    def forget_before(self, step: int) -> None:
        """Drops whole pieces that end before `step`."""
        self._chunks = [chunk for chunk in self._chunks if chunk.last >= step]

    def pending(self, first: int, last: int) -> dict[str, npt.NDArray[np.float32]]:
        """Returns the values of steps `first` to `last` for the checkpoint."""
        return dict(self.between(first, last))

    def replace(self, last: int, series: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Takes the series that a checkpoint of step `last` held in place of all that was here."""
        self._chunks = []
        count = min((len(values) for values in series.values()), default=0)
        self.add(last - count + 1, count, series)


class Outputs(Mapping[str, Any]):
    """The outputs of one step as NumPy scalars, each fetched when it is read first.

    Args:
        tensors: name to scalar tensor.
    """

    def __init__(self, tensors: Mapping[str, Any]):
        self._tensors = tensors
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = np.asarray(self._tensors[name])[()]
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
