"""The stages of a `tf.data` pipeline as Python objects.

Owns the walk over them, those inside of wrappers too: their names, their functions, what those use
from outside, and which stages have a seed that the program wrote. Promises to draw nothing and to
copy no data. Refuses to judge (see `saveable`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from trainer.graph import inspection

_MOST = 2**31 - 1
_MOST_STAGES = 1000


def walk(dataset: Any) -> Iterator[Any]:
    """Yields a pipeline's stages, the last one first, those inside of wrappers too.

    Args:
        dataset: the pipeline.
    """
    left, seen = [dataset], set()
    while left:
        stage = left.pop()
        if stage is None or id(stage) in seen:
            continue
        seen.add(id(stage))
        yield stage
        inside = [getattr(stage, name, None) for name in ("_impl", "_dataset")]
        left += [other for other in inside if hasattr(other, "_variant_tensor")]
        left += stage._inputs()


def functions(stage: Any) -> list[Any]:
    """Returns the concrete functions that a stage calls.

    Args:
        stage: one of those of `walk`.
    """
    found = [getattr(value, "function", None) for value in list(vars(stage).values())]
    return [function for function in found if hasattr(function, "captured_inputs")]


def label(stage: Any) -> str:
    """Returns the name of the method that made a stage, and its function's where that has one.

    Args:
        stage: one of those of `walk`.
    """
    name = re.sub(r"^_*(Parallel)?|Dataset(V\d)?$", "", type(stage).__name__)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    for value in list(vars(stage).values()):
        called = getattr(getattr(value, "_func", None), "__name__", "<lambda>")
        if hasattr(value, "function") and called != "<lambda>":
            return f"{name}({called})"
    return name


def used(dataset: tf.data.Dataset) -> list[str]:
    """Returns what the functions of a pipeline use from outside, in words: layers and variables."""
    handles: dict[int, str] = {}
    for stage in walk(dataset):
        for value in vars(stage).values():
            function = getattr(value, "function", None)
            for handle in getattr(function, "captured_inputs", ()):
                if handle.dtype == tf.resource:
                    handles[id(handle)] = ""
            if hasattr(function, "captured_inputs"):
                handles |= inspection.touched_variables(function)
    layers = inspection.layers_of(handles)
    named = [f"layer {layers[handle]}" for handle in handles if handle in layers]
    named += [
        f"variable {name}" for handle, name in handles.items() if handle not in layers and name
    ]
    return list(dict.fromkeys(named))


def own_seeds(dataset: tf.data.Dataset, planted: int) -> list[str]:
    """Returns the stages with a seed of the program's own, such as "shuffle(seed=42)".

    TensorFlow gives a stage two seeds, the planted one and the stage's own; where the program gives
    none, it draws the second from a generator of Python's that it seeds with the first.

    Args:
        dataset: the pipeline.
        planted: what `tf.random.set_seed` was given before the pipeline was made.
    """
    numbers = random.Random(planted)
    drawn = {numbers.randint(0, _MOST) % _MOST for _ in range(_MOST_STAGES)}
    found = []
    for stage in walk(dataset):
        seeds = [getattr(stage, name, None) for name in ("_seed", "_seed2")]
        if not all(isinstance(seed, tf.Tensor) for seed in seeds):
            continue
        first, second = (int(seed) for seed in seeds)  # type: ignore[arg-type]
        if first == planted % _MOST and second not in drawn:
            name = type(stage).__name__.strip("_").removesuffix("Dataset").lower()
            found.append(f"{name}(seed={second})")
    return list(dict.fromkeys(reversed(found)))
