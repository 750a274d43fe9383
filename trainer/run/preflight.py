"""What construction refuses, and what it warns of.

Owns the refusals of arguments and of a folder that does not fit what was asked, and the warnings of
what no checkpoint can hold (for variables see `state_coverage`). Promises that each says what was
seen and what to do. Refuses to change anything.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer import config, errors
from trainer.base.log import LOG
from trainer.checkpoints import store as checkpoint_store
from trainer.data import position
from trainer.graph import compiled, inspection


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


def hidden_state(step: compiled.Step, source: position.Source) -> None:
    """Warns of what makes a resumed run differ, in the step and in the data.

    Args:
        step: the traced step.
        source: the training data.
    """
    certain, possible = suspects(step.function, source)
    for where, what in certain:
        LOG.warning("%s: a resumed run will differ because of %s", where, what)
    for where, what in possible:
        LOG.info("%s: %s", where, what)


def suspects(
    step: Any, source: position.Source
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns where and what makes a resumed run differ, and what does if the program lets it.

    Args:
        step: the train step as a concrete function.
        source: the training data.
    """
    certain = [("train_step", str(hidden)) for hidden in inspection.hidden_state(step)]
    certain += [("train_dataset()", text) for text in source.findings.certain]
    return certain, [("train_dataset()", text) for text in source.findings.possible]


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
