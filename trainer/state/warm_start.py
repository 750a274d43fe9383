"""Warm start: initial values from elsewhere for a run that has no checkpoint.

Owns the kinds of source: a run folder, one checkpoint of ours, a TensorFlow checkpoint with the
same names, and a Keras weights file. Promises that only weights are taken, every one of them or
none, and that the log says what starts anew. Refuses a SavedModel, and to touch the source.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.base.log import LOG
from trainer.checkpoints import file_names, reading
from trainer.checkpoints import files as files_module
from trainer.checkpoints import store as checkpoint_store
from trainer.state import variables as variables_module


def load(variables: variables_module.State, source: str, attributes: Mapping[str, Any]) -> None:
    """Takes initial weights from `source`.

    Args:
        variables: the program's variables.
        source: path of the source.
        attributes: the trainer's attributes, among them the one Keras model for a weights file.

    Raises:
        ValueError: there is nothing at `source`, or nothing that can be read as weights.
        CheckpointMismatchError: it lacks weights of the program, or has them in other shapes.
    """
    if not tf.io.gfile.exists(source) and not tf.io.gfile.exists(f"{source}.index"):
        raise ValueError(
            f"init_from={source!r} does not exist; name a checkpoint or a weights file"
        )
    if source.endswith((".h5", ".keras")):
        _keras_model(attributes, source).load_weights(source)
    else:
        tensors = _tensors(source)
        weights = [n for n in variables.names("variable") if not n.startswith("trainer/")]
        described = {
            name: shape
            for name, shape in variables_module.describe(tensors).items()
            if name in weights
        }
        others = [name for name in variables.entries if name not in weights]
        variables.check(source, described, but=others)
        variables.assign({name: tensors[name] for name in described})
    LOG.info(
        "initial weights from %s; step, optimizer, metrics, random state, data position and hooks "
        "start anew",
        source,
    )


def _tensors(source: str) -> Mapping[str, Any]:
    files = files_module.for_path(source)
    if files.exists(files.join(source, "saved_model.pb")):
        raise ValueError(
            f"init_from={source!r} is a SavedModel, whose names are not the program's; save the "
            "weights with model.save_weights('x.weights.h5') and name that file"
        )
    if files.exists(files.join(source, file_names.MANIFEST)):
        return reading.read(files, source)[1]
    runs = checkpoint_store.Store(source)
    newest = runs.newest()
    if newest is not None:
        return runs.read(newest.step)[1]
    return _tensorflow_checkpoint(source)


def _tensorflow_checkpoint(source: str) -> Mapping[str, Any]:
    prefix = source
    if tf.io.gfile.isdir(source):
        prefix = tf.train.latest_checkpoint(source) or ""
    try:
        reader = tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, ValueError) as error:
        raise ValueError(
            f"init_from={source!r} holds no checkpoint that can be read ({_line(error)}); name a "
            "run folder, a checkpoint or a .weights.h5 file"
        ) from error
    return {
        name: tf.constant(reader.get_tensor(name))
        for name in reader.get_variable_to_shape_map()
        if not name.startswith("_")
    }


def _keras_model(attributes: Mapping[str, Any], source: str) -> Any:
    models = {
        name: value
        for name, value in attributes.items()
        if hasattr(value, "load_weights") and hasattr(value, "variables")
    }
    if len(models) != 1:
        raise ValueError(
            f"init_from={source!r} is a Keras weights file and the trainer has "
            f"{len(models)} Keras models ({', '.join(models) or 'none'}); it must have exactly one"
        )
    if not os.path.isfile(source):
        raise ValueError(f"init_from={source!r} is not a file")
    return next(iter(models.values()))


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
