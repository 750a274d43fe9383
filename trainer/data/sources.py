"""What `train_dataset` may return, and which source it makes.

Owns the choice, and what becomes of the sources that are open when the process ends. Promises a
clear error for anything else. Refuses to know how a source keeps its position.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.data import dataset_source, indexed, indexed_source, position, python_source

_open: weakref.WeakSet[position.Source] = weakref.WeakSet()


def open_source(make: Callable[[], Any], epochs: int | None, keep: str) -> position.Source:
    """Returns the source of a run.

    Args:
        make: returns what `train_dataset` returns, an equal one at each call.
        epochs: passes over the data; None: without end.
        keep: "auto", "saved" or "replay": how the position is kept, where there is a choice.

    Raises:
        ValueError: `make` returns something else, or nothing to train on.
    """
    source = _opened(make, epochs, keep)
    _open.add(source)
    _at_exit()
    return source


def _opened(make: Callable[[], Any], epochs: int | None, keep: str) -> position.Source:
    made = make()
    if isinstance(made, indexed.Indexed):
        return indexed_source.IndexedSource(made, epochs)
    if isinstance(made, tf.data.Dataset):
        return dataset_source.DatasetSource(_first(made, make), epochs, keep)
    iterator = python_source.opened(made)
    if iterator is not None:
        return python_source.PythonSource(make, made, iterator, epochs=epochs, keep=keep)
    raise ValueError(
        f"train_dataset() returned {type(made).__name__}; return a tf.data.Dataset, a "
        "trainer.data.Indexed, or an iterable with get_state() and set_state(state)"
    )


def _first(made: Any, make: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a function that gives `made` at its first call, so that nothing is made twice."""
    left = [made]
    return lambda: left.pop() if left else make()


@functools.cache
def _at_exit() -> None:
    atexit.register(_keep_iterators)


def _keep_iterators() -> None:
    """Keeps the interpreter from destroying iterators at its end, where nothing needs that.

    TensorFlow 2.21 may take up to a minute for it: the destructor waits for the autotuner's thread,
    which now and then misses the call to end. A process that was asked to stop has no such time.
    """
    for source in _open:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(source.iterator._iterator_resource))
