"""The shortest way from Python into a compiled function.

Owns how the loop is called. A concrete function binds, flattens and packs what it is given in
Python, which takes longer than a small step; as one operation on tensors that are ready it starts
in a tenth of that. Promises the same results, and errors with the lines of the user's program.
Refuses structures: tensors go in and come out.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import tensorflow as tf


class Direct:
    """A concrete function, called with as little as possible in between.

    Where that was not tried out (devices other than CPUs, a TensorFlow that is made otherwise), it
    is called as TensorFlow does.

    Args:
        function: the concrete function; its arguments and results are tensors.
    """

    def __init__(self, function: Any):
        self._function = function
        self._captured = list(function.captured_inputs)
        self._types = [output.dtype for output in function.outputs]
        self._config = None if _other_devices() else _config(function)

    def __call__(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """Returns the results, in the order in which the function returned them."""
        if self._config is None:
            return list(tf.nest.flatten(self._function(*tensors)))
        try:
            results: list[tf.Tensor] = tf.raw_ops.StatefulPartitionedCall(
                args=[*tensors, *self._captured],
                Tout=self._types,
                f=self._function,
                config_proto=self._config,
            )
        except tf.errors.OpError as error:
            _explain(error, self._function._inference_function)
            raise
        return results


def _other_devices() -> bool:
    return any(device.device_type != "CPU" for device in tf.config.list_logical_devices())


def _config(function: Any) -> bytes | None:
    """Returns TensorFlow's settings for functions, or None where it keeps them elsewhere."""
    try:
        config: bytes = function._inference_function.graph_call_attrs["config_proto"]
    except (AttributeError, KeyError):
        return None
    return config


def _explain(error: tf.errors.OpError, function: Any) -> None:
    """Adds to an error the lines of the program that made the operation that failed.

    TensorFlow does that for a function that it called itself: it follows the names of functions in
    the message down from the outermost. Those that lead to the innermost are missing here.
    """
    named = re.findall(r"{{function_node (\S+?)}}", error.message)
    way = next((way for name in named if (way := _way_to(name, function))), None)
    if way is None:
        return
    names = " ".join(f"{{{{function_node {name}}}}}" for name in way)
    error._message = f"{names} {error.message.split('}} ', 1)[-1]}"
    explains = sys.modules[type(function).__module__].InterpolateRuntimeError(function)
    explains.__exit__(type(error), error, None)


def _way_to(name: str, function: Any) -> list[str] | None:
    """Returns the names of the functions from an outer one to the one called `name`, or None."""
    own = function.name.decode()
    if own == name:
        return [own]
    for child in function.children:
        way = _way_to(name, child)
        if way is not None:
            return [own, *way]
    return None
