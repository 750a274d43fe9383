"""What `train_dataset` may return, and which source it makes.

Owns the choice. Promises a clear error for anything else. Refuses to know how a source keeps its
position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer import data, dataset_source, indexed_source, position, python_source


def open_source(make: Callable[[], Any], epochs: int | None, keep: str) -> position.Source:
    """Returns the source of a run.

    Args:
        make: returns what `train_dataset` returns, an equal one at each call.
        epochs: passes over the data; None: without end.
        keep: "auto", "saved" or "replay": how the position is kept, where there is a choice.

    Raises:
        ValueError: `make` returns something else, or nothing to train on.
    """
    made = make()
    if isinstance(made, data.Indexed):
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
