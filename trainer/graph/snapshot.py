"""The values of many variables at one instant, without stopping for a copy.

Owns the reading. Promises that later changes of the variables never show in it: TensorFlow
copies a buffer before it changes one that somebody else holds; for every kind of variable this is
tried out, not assumed, and where it does not hold, the values are copied when they are read.
Refuses to know what the variables are for.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.graph import direct_call

_TOGETHER = 50  # variables that are read by one call


class Reader:
    """Reads a list of variables; nothing may change them meanwhile.

    Plain variables of the same type are read together, so many at a time that the way into the
    graph does not count (3 instead of 8 us a variable), by one function that takes any of them:
    one that names each variable takes 2 ms a variable to compile at each start.

    Args:
        variables: the variables, all of the default graph's device or another.
    """

    def __init__(self, variables: Sequence[Any]):
        self._variables = list(variables)
        self._groups: list[tuple[list[int], list[Any], direct_call.Direct]] | None = None
        self._single: list[tuple[int, bool]] = []

    def __call__(self) -> list[tf.Tensor]:
        """Returns their values, all of one instant."""
        if self._groups is None:
            self._groups = self._group()
        values = {index: _read(self._variables[index], shared) for index, shared in self._single}
        for indices, handles, read in self._groups:
            values |= zip(indices, read(*handles), strict=True)
        return [values[index] for index in range(len(values))]

    def _group(self) -> list[tuple[list[int], list[Any], direct_call.Direct]]:
        kinds = collections.defaultdict(list)
        for index, variable in enumerate(self._variables):
            if shares_safely(variable):
                kinds[variable.dtype].append(index)
            else:
                self._single.append((index, False))
        groups = []
        for dtype, indices in kinds.items():
            for start in range(0, len(indices), _TOGETHER):
                group = indices[start : start + _TOGETHER]
                if len(group) < _TOGETHER:
                    self._single += [(index, True) for index in group]
                else:
                    handles = [self._variables[index].handle for index in group]
                    groups.append((group, handles, _reader(dtype)))
        return groups


def shares_safely(variable: Any) -> bool:
    """Tells whether a value read from such a variable may be kept without copying it.

    Args:
        variable: the variable; it is not touched.
    """
    if not isinstance(variable, _plain_class()):
        return False  # spread over devices, or wrapped: what a read returns is not ours to assume
    return _tried(variable.dtype, variable.device)


def _read(variable: Any, shared: bool) -> tf.Tensor:
    if shared:
        return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
    return tf.raw_ops.DeepCopy(x=variable.read_value())


@functools.cache
def _reader(dtype: tf.DType) -> direct_call.Direct:
    """Returns a function of `_TOGETHER` handles of variables that returns their values."""

    def read(*handles: tf.Tensor) -> list[tf.Tensor]:
        return [tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype) for handle in handles]

    handles = [tf.TensorSpec((), tf.resource)] * _TOGETHER
    return direct_call.Direct(tf.function(read, autograph=False).get_concrete_function(*handles))


@functools.cache
def _plain_class() -> Any:
    return type(tf.Variable(0))


@functools.cache
def _tried(dtype: tf.DType, device: str) -> bool:
    """Changes a scratch variable of this kind in every way there is, under a value read before."""
    with tf.device(device):
        scratch = tf.Variable(tf.zeros([2, 4], dtype))
        return all(_unharmed(scratch, change) for change in changes(scratch))


def changes(variable: Any) -> list[Callable[[], Any]]:
    """Returns functions that change a variable, in place if TensorFlow can.

    Args:
        variable: of rank 2; what it holds does not matter.
    """
    ways = [lambda: variable.assign(tf.ones_like(variable))]
    if variable.dtype.is_floating or variable.dtype.is_integer or variable.dtype.is_complex:
        rows = tf.IndexedSlices(tf.ones([1, variable.shape[1]], variable.dtype), [0])
        ways.append(lambda: variable.assign_add(tf.ones_like(variable)))
        ways.append(lambda: variable.scatter_add(rows))
    return ways


def _unharmed(variable: Any, change: Callable[[], Any]) -> bool:
    before = _read(variable, True)
    remembered = before.numpy()  # a copy
    try:
        change()
    except (tf.errors.OpError, TypeError):
        return False  # no such kernel here: nothing is known, so copy
    return bool(np.array_equal(before.numpy(), remembered))
