"""Metrics among the outputs of a step.

Owns what counts as a metric, and `Metric`, which says when one starts anew. Promises that what a
step returns is parted while it is traced, so that nothing of a metric is in the graph but what the
step does with it. Refuses to read, reset or save one (see `run.metric_outputs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_RESETS = ("never", "epoch")


class Metric:
    """A metric as an output of `train_step`, with a word on when it starts anew.

        def build(self):
            self.accuracy = trainer.Metric(tf.keras.metrics.Mean(), reset="epoch")

        def train_step(self, batch):
            ...
            self.accuracy.update_state(hits)
            return {"loss": loss, "accuracy": self.accuracy}

    State is named as if the metric itself were the attribute. A metric that is returned as it is
    never starts anew by itself.

    Args:
        metric: a Keras metric, or anything with `result()` and `reset_state()`.
        reset: "never"; or "epoch": before the first step of each pass over the data, so that it is
            still there after the last one.

    Raises:
        ValueError: it is no metric, or `reset` is neither of the two.
    """

    def __init__(self, metric: Any, *, reset: str = "never"):
        if not is_metric(metric):
            raise ValueError(
                f"trainer.Metric({metric!r}): give it a metric: an object with result() and "
                "reset_state(), such as tf.keras.metrics.Mean()"
            )
        if reset not in _RESETS:
            raise ValueError(f"reset must be 'never' or 'epoch', got {reset!r}")
        self.metric = metric
        self.reset = reset

    def update_state(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the metric's.

        Args:
            args: what it takes.
            kwargs: what it takes.
        """
        return self.metric.update_state(*args, **kwargs)

    def result(self) -> Any:
        """Returns the metric's result so far."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Starts anew."""
        self.metric.reset_state()


def is_metric(value: Any) -> bool:
    """Tells whether a value is a metric: of Keras 3, of tf_keras, or one that is like them."""
    if isinstance(value, type | tf.Tensor | tf.Variable):
        return False
    methods = (getattr(value, name, None) for name in ("result", "reset_state"))
    return all(callable(method) for method in methods)


def parted(outputs: Any) -> tuple[Any, dict[str, Any]]:
    """Returns what a step returned without its metrics, and the metrics by name.

    Args:
        outputs: what it returned, be it right or not.
    """
    if not isinstance(outputs, Mapping):
        return outputs, {}
    found = {name: value for name, value in outputs.items() if is_metric(value)}
    if not found:
        return outputs, {}
    return {name: value for name, value in outputs.items() if name not in found}, found
