"""What construction refuses, and what it warns of.

Owns the refusals: of arguments, of a folder that does not fit what was asked, of a step that uses
state which no checkpoint would hold. Promises that each says what was seen and what to do. Refuses
to change anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer import config, errors
from trainer.base.log import LOG
from trainer.checkpoints import store as checkpoint_store
from trainer.data import position
from trainer.graph import compiled, inspection, way
from trainer.state import variables as variables_module


def settings(value: Any) -> config.TrainerConfig:
    """Returns a config, or raises `ValueError` for anything else."""
    if not isinstance(value, config.TrainerConfig):
        raise ValueError(f"config must be a trainer.TrainerConfig, got {value!r}")
    return value


def one_device(value: Any) -> tf.distribute.Strategy:
    """Returns a strategy of one device, or raises `ValueError`."""
    if value is None:
        return tf.distribute.get_strategy()
    default = type(tf.distribute.get_strategy())
    if not isinstance(value, tf.distribute.OneDeviceStrategy | default):
        raise ValueError(
            f"strategy {type(value).__name__} is not available in this version: it trains on one "
            "device, with strategy=None or a tf.distribute.OneDeviceStrategy"
        )
    return value


def resume(store: checkpoint_store.Store, wanted: str) -> None:
    """Refuses before anything is made, be it a folder."""
    if store.holds("saved_model.pb"):
        raise ValueError(
            f"model_dir {store.folder!r} is a SavedModel, not a run; name another folder, and save "
            "weights with model.save_weights('x.weights.h5') to start from with init_from"
        )
    steps = store.recoverable() if wanted != "auto" else []
    if wanted == "required" and not steps:
        raise errors.CheckpointError(
            f"resume='required' and no checkpoint was found in {store.folder}; check the name of "
            "the folder, or use resume='auto' to start from nothing"
        )
    if wanted == "never" and steps:
        raise errors.CheckpointError(
            f"resume='never' and {store.folder} holds checkpoints {steps}; use resume='auto' to go "
            "on from the newest, or another model_dir for a new run"
        )


def coverage(
    step: compiled.Step,
    variables: variables_module.State,
    attributes: Mapping[str, Any],
    elsewhere: Mapping[str, Any] | None = None,
) -> None:
    """Checks that every variable which the step touches would be saved.

    Args:
        step: the traced step.
        variables: what would be saved.
        attributes: the trainer's, to tell where a forgotten variable is.
        elsewhere: what else the program's methods may have it from, by what it is.

    Raises:
        StateCoverageError: some would not.
    """
    held = inspection.handles(entry.variable for entry in variables.entries.values())
    touched = inspection.touched_variables(step.function)
    missing = {handle: name for handle, name in touched.items() if handle not in held}
    if missing:
        ways = {
            handle: [way.way_to(handle, roots) for roots in (attributes, elsewhere or {})]
            for handle in missing
        }
        advice = [f"{name}: {_advice(*ways[handle])}" for handle, name in missing.items()]
        raise errors.StateCoverageError(list(missing.values()), advice)


def hidden_state(step: compiled.Step) -> None:
    """Warns of operations whose state no checkpoint can hold.

    Args:
        step: the traced step.
    """
    for hidden in inspection.hidden_state(step.function):
        LOG.warning("train_step: a resumed run will differ because of %s", hidden)


def own_seeds(source: position.Source, drawn: int) -> None:
    """Says where the program gave the data a seed and the run none, which fixes no order.

    Args:
        source: the training data.
        drawn: seed of the run, which was drawn.
    """
    stages = source.own_seeds(drawn)
    if stages:
        LOG.info(
            "the order of the data is another one in each fresh run: TensorFlow mixes the seed of "
            "%s with the run's, and that was drawn (%d); set seed=... in the config to fix both",
            ", ".join(stages),
            drawn,
        )


def _advice(found: way.Way | None, elsewhere: way.Way | None) -> str:
    nothing = "no attribute leads to it; write self.<name> = <what holds it> in build()"
    if found is not None and found.kind == "function":
        return f"{nothing} (the function {found.holder} alone holds it: {found.path})"
    if found is not None and found.kind:
        article = "an" if found.kind[0].lower() in "aeiou" else "a"
        return (
            f"in attribute {found.holder} ({found.kind}), which cannot be looked into: "
            f"{found.path} leads to it, through {article} {found.kind}; make it a tf.Module, list "
            "or dict with texts as keys, or write self.<name> = <the variable>"
        )
    if elsewhere is not None:
        return (
            f"it is {elsewhere.path}, no attribute; write self.<name> = <the variable> in build()"
        )
    return nothing
