"""What one checkpoint holds.

Owns the list of everything that decides the future of a run, and its names in a checkpoint:

    trainer/step                  completed steps (a variable)
    <attribute path>              every other variable of the program
    trainer/hooks/<key>/<path>    variables of hooks
    trainer/hooks/<key>           JSON text: what a hook's get_state returned
    trainer/data/position         int64: batches drawn
    trainer/data/epoch            int64[3]: passes completed, batches of this one, passes asked for
    trainer/data/iterator         variant: the iterator, where it can be saved
    trainer/data/epoch_start      variant: the iterator at the start of the pass, where needed
    trainer/data/state            text: the state of a Python source
    trainer/data/indexed          int64[5]: what the order of an Indexed depends on
    trainer/history/<output>      float32[n]: values not yet shown to a hook
    trainer/optimizers            JSON text: settings of optimizers that are no variables
    trainer/random/python, numpy  JSON text: the global generators
    trainer/stop                  JSON text: who asked the run to stop, or null
    trainer/left_out              JSON text: steps whose batches are left out; absent if none is
    trainer/secs                  float64: seconds of training

Promises that all of it is of one step, and that nothing changes before all of it has been checked.
Refuses to read or write files.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import errors
from trainer.base import clock
from trainer.base.log import LOG
from trainer.data import position
from trainer.hooks import hook_list
from trainer.run import history
from trainer.state import optimizer_settings, seeds
from trainer.state import variables as variables_module

_HOOK, _HISTORY, _DATA = "trainer/hooks/", "trainer/history/", "trainer/data/"
_LEFT_OUT = "trainer/left_out"

# Differ between an unbroken run and a cut one of equal state: a time, how far a prefetch has got.
NOT_COMPARED = ("trainer/secs", _DATA + "iterator", _DATA + "epoch_start")


@dataclasses.dataclass
class Content:
    """The parts of a checkpoint.

    Args:
        variables: the variables.
        source: the training data.
        hooks: the hooks.
        history: recent outputs.
        stopwatch: seconds of training.
        optimizers: names and Keras optimizers.
        stop: which hook asked the run to stop, why, and at which target; None if none did.
        left_out: steps whose batches are drawn and not trained on, ascending.
    """

    variables: variables_module.State
    source: position.Source
    hooks: hook_list.HookList
    history: history.History
    stopwatch: clock.Stopwatch
    optimizers: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    stop: dict[str, Any] | None = None
    left_out: list[int] = dataclasses.field(default_factory=list)

    def collect(self, step: int) -> dict[str, Any]:
        """Returns name to tensor of everything, after `step` completed steps."""
        tensors: dict[str, Any] = dict(self.variables.values())
        tensors |= {_DATA + name: tensor for name, tensor in self.source.saved().items()}
        texts = {_HOOK + key: text for key, text in self.hooks.states().items()}
        texts["trainer/optimizers"] = json.dumps(optimizer_settings.settings(self.optimizers))
        texts["trainer/random/python"] = seeds.python_state()
        texts["trainer/random/numpy"] = seeds.numpy_state()
        texts["trainer/stop"] = json.dumps(self.stop, sort_keys=True)
        if self.left_out:
            texts[_LEFT_OUT] = json.dumps(self.left_out)
        tensors |= {name: tf.constant(text) for name, text in texts.items()}
        tensors["trainer/secs"] = tf.constant(self.stopwatch.read(), tf.float64)
        pending = self.history.pending(self.hooks.history_start(step), step)
        tensors |= {_HISTORY + name: tf.constant(values) for name, values in pending.items()}
        return tensors

    def check(
        self,
        path: str,
        names: list[str],
        described: variables_module.Described,
        tensors: Mapping[str, Any],
    ) -> None:
        """Compares the variables and the settings of optimizers with those of a checkpoint.

        A hook that only one side has is no mismatch: results do not depend on which hooks watch.

        Args:
            path: folder of the checkpoint, for the message.
            names: names of the variables in it.
            described: name to dtype and shape of all that it holds.
            tensors: all that it holds.

        Raises:
            CheckpointMismatchError: they differ.
        """
        ours = {_hook_of(name) for name in self.variables.entries} - {None}
        theirs = {_hook_of(name) for name in names} - {None}
        lonely = ours ^ theirs
        for key in sorted(str(key) for key in lonely):
            LOG.info(
                "hook %s: only %s has it; its variables %s",
                key,
                *(
                    ("the program", "start anew")
                    if key in ours
                    else ("the checkpoint", "are not used")
                ),
            )
        shared = {name: described[name] for name in names if _hook_of(name) not in lonely}
        self.variables.check(
            path, shared, but=[name for name in self.variables.entries if _hook_of(name) in lonely]
        )
        self._check_settings(path, tensors)

    def apply(self, path: str, step: int, tensors: Mapping[str, Any]) -> None:
        """Takes everything back, after `check`.

        Args:
            path: folder of the checkpoint, for the message.
            step: completed steps of the checkpoint.
            tensors: what `collect` returned.

        Raises:
            CheckpointMismatchError: the saved iterator is that of another pipeline.
        """
        # First: this is the only part that can still turn out not to fit.
        iterator = _DATA + "iterator"
        try:
            self.source.restore(_below(_DATA, tensors), by_count=self.variables.is_kept(iterator))
        except position.OtherPipelineError as error:
            advice = f"keep_program_values=('{iterator}',) draws as many batches again instead"
            line = f"{iterator}: train_dataset() is another pipeline now ({error}); {advice}"
            raise errors.CheckpointMismatchError(path, [], [], [line]) from error
        self.variables.assign(tensors)
        self.stopwatch.before = float(tensors["trainer/secs"])
        self.stop = json.loads(_text(tensors["trainer/stop"]))
        self.left_out = json.loads(_text(tensors[_LEFT_OUT])) if _LEFT_OUT in tensors else []
        series = {name: np.asarray(value) for name, value in _below(_HISTORY, tensors).items()}
        self.history.replace(step, series)
        # Last: what was restored until here may have drawn from the global generators.
        seeds.set_python_state(_text(tensors["trainer/random/python"]))
        seeds.set_numpy_state(_text(tensors["trainer/random/numpy"]))

    def _check_settings(self, path: str, tensors: Mapping[str, Any]) -> None:
        present = optimizer_settings.settings(self.optimizers)
        counters = {name: f"{name}/iterations" for name in present}
        steps = {name: int(tensors[key]) for name, key in counters.items() if key in tensors}
        optimizer_settings.compare(
            path, json.loads(_text(tensors["trainer/optimizers"])), present, steps
        )

    def hook_state(self, key: str, tensors: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the state that a checkpoint holds for a hook, or None."""
        text = tensors.get(_HOOK + key)
        return None if text is None else hook_list.decode(_text(text))


def of_hooks(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a checkpoint holds for hooks."""
    return {name: tensor for name, tensor in tensors.items() if name.startswith(_HOOK)}


def _below(head: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(head): tensor for name, tensor in tensors.items() if name.startswith(head)
    }


def _hook_of(name: str) -> str | None:
    return name.removeprefix(_HOOK).split("/")[0] if name.startswith(_HOOK) else None


def _text(tensor: Any) -> str:
    return bytes(np.asarray(tensor).item()).decode()
