"""Numbers that are not finite: where they are found, and what is made of them.

Owns the look at the outputs of a step, in the graph, the look at variables, on the host, and the
judgement of both. Promises that a variable which held an infinity before training began (a best
value so far, say) may keep it, and that nothing is looked at where the run was told to ignore bad
numbers. Refuses to go back (see `run.rollback`) or to keep a state from being saved
(`run.checkpoint_writer` asks here first).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer import errors

_CHUNK = 1 << 18  # values looked at together when they are checked: a megabyte of float32


class BadNumbers:
    """The judgement of one run.

    Args:
        ignored: whether nothing is looked at (`on_nonfinite="ignore"`).
    """

    def __init__(self, *, ignored: bool = False):
        self.ignored = ignored
        self._from_the_start: set[str] = set()

    def accept(self, values: Mapping[str, Any]) -> None:
        """Takes note of variables as the program made them: those not finite now may stay so.

        Args:
            values: of variables, by name.
        """
        self._from_the_start |= set(non_finite(values))

    def in_state(self, values: Mapping[str, Any]) -> list[str]:
        """Returns the names of values that are not finite and should be.

        Args:
            values: of variables, by name.
        """
        if self.ignored:
            return []
        return sorted(set(non_finite(values)) - self._from_the_start)

    def in_graph(self, outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns, as a tensor, whether every output of a step is finite."""
        floating = [v for v in outputs.values() if v.dtype.is_floating and not self.ignored]
        wide = [v if v.dtype.size >= 4 else tf.cast(v, tf.float32) for v in floating]
        finite = [tf.math.is_finite(v) for v in wide]
        return tf.reduce_all(tf.stack(finite)) if finite else tf.constant(True)


def error_of_step(
    step: int, series: Mapping[str, tf.Tensor], newest: int | None
) -> errors.NonFiniteError:
    """Returns the error for a call whose last step had an output that is not finite.

    Args:
        step: that step.
        series: name to values of the steps of the call.
        newest: step of the newest checkpoint, for the message.
    """
    bad = {
        name: float(values[-1])
        for name, values in series.items()
        if values.dtype.is_floating and not np.isfinite(float(values[-1]))
    }
    name = next(iter(bad))
    return errors.NonFiniteError(step, name, bad[name], newest)


def non_finite(values: Mapping[str, Any]) -> list[str]:
    """Returns the names of the tensors that hold a NaN or an infinity.

    Args:
        values: name to tensor; only floating-point and complex ones are looked at.
    """
    return [
        name
        for name, value in values.items()
        if (value.dtype.is_floating or value.dtype.is_complex) and not _all_finite(value)
    ]


def _all_finite(tensor: tf.Tensor) -> bool:
    flat = _view(tensor).reshape(-1)
    return all(
        bool(np.isfinite(flat[start : start + _CHUNK]).all())
        for start in range(0, flat.size, _CHUNK)
    )


def _view(tensor: tf.Tensor) -> npt.NDArray[Any]:
    """Returns the values without copying them, where NumPy knows their type."""
    try:
        return np.asarray(memoryview(tensor))
    except (ValueError, tf.errors.UnimplementedError):
        return np.asarray(tensor)  # bfloat16 and smaller: a buffer cannot name their format
