"""What one checkpoint holds.

Owns the list of everything that decides the future of a run. Promises that all of it is of one
step, and that nothing changes before all of it has been checked. Refuses to read or write files.
The names, from the table in `state.names`:

"""

from __future__ import annotations

import base64
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
from trainer.hooks import hook_list, state_text
from trainer.run import hook_settings
from trainer.run.progress import Progress
from trainer.state import generators, names, optimizer_settings
from trainer.state import variables as variables_module

__doc__ = f"{__doc__}{names.table()}"

Output = list[str]  # the name of a type, and the bytes of values in base 64


@dataclasses.dataclass
class Content:
    """The parts of a checkpoint.

    Args:
        variables: the variables.
        progress: where the run is.
        hooks: the hooks.
        stopwatch: seconds of training.
        generators: the trainer's states of the global generators.
        settings: those of the hooks, which tell hooks of one class apart.
        optimizers: names and Keras optimizers.
        hook_tensors: what the checkpoint restored last held for hooks, for those that come later.
        stop: which hook asked the run to stop, why, and at which target; None if none did.
        left_out: steps whose batches are drawn and not trained on, ascending.
    """

    variables: variables_module.State
    progress: Progress
    hooks: hook_list.HookList
    stopwatch: clock.Stopwatch
    generators: generators.Generators
    settings: hook_settings.HookSettings
    optimizers: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    hook_tensors: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stop: dict[str, Any] | None = None
    left_out: list[int] = dataclasses.field(default_factory=list)

    def collect(self) -> dict[str, Any]:
        """Returns name to tensor of everything."""
        tensors: dict[str, Any] = dict(self.variables.values())
        tensors |= {
            names.DATA + name: tensor for name, tensor in self.progress.source.saved().items()
        }
        states = self.hooks.states()
        texts = {names.HOOKS + key: text for key, text in states.items()}
        with_variables = {_hook_of(name) for name in self.variables.entries}
        settings = self.settings.text({*states, *with_variables})
        if settings is not None:
            texts[names.HOOK_SETTINGS] = settings
        texts[names.OPTIMIZERS] = json.dumps(optimizer_settings.settings(self.optimizers))
        texts |= self.generators.texts()
        texts[names.STOP] = json.dumps(self.stop, sort_keys=True)
        if self.variables.patterns:
            texts[names.KEPT] = json.dumps(sorted(self.variables.patterns))
        if self.left_out:
            texts[names.LEFT_OUT] = json.dumps(self.left_out)
        tensors |= {name: tf.constant(text) for name, text in texts.items()}
        tensors[names.SECS] = tf.constant(self.stopwatch.read(), tf.float64)
        step = self.progress.step
        pending = self.progress.history.pending(self.hooks.history_start(step), step)
        tensors |= {names.HISTORY + name: tf.constant(values) for name, values in pending.items()}
        return tensors

    def check(
        self,
        path: str,
        held: list[str],
        described: variables_module.Described,
        tensors: Mapping[str, Any],
    ) -> None:
        """Compares the variables and the settings of optimizers with those of a checkpoint.

        A hook that only one side has is no mismatch: results do not depend on which hooks watch.

        Args:
            path: folder of the checkpoint, for the message.
            held: names of the variables in it.
            described: name to dtype and shape of all that it holds.
            tensors: all that it holds.

        Raises:
            CheckpointMismatchError: they differ.
        """
        written_with = json.loads(_text(tensors[names.KEPT])) if names.KEPT in tensors else []
        self.variables.restoring_from(written_with)
        ours = {_hook_of(name) for name in self.variables.entries} - {None}
        theirs = {_hook_of(name) for name in held} - {None}
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
        shared = {name: described[name] for name in held if _hook_of(name) not in lonely}
        self.variables.check(
            path, shared, but=[name for name in self.variables.entries if _hook_of(name) in lonely]
        )
        self._check_settings(path, tensors)
        self._check_states(path, tensors)
        if names.HOOK_SETTINGS in tensors:
            self.settings.warn_if_moved(json.loads(_text(tensors[names.HOOK_SETTINGS])))

    def last_outputs(self) -> dict[str, Output]:
        """Returns what hooks may read of the last step: it follows from the rest, and is no state.

        Name to the name of the type and the bytes of the values, in base 64.
        """
        step = self.progress.step
        last = self.progress.history.last_outputs(self.hooks.outputs_start(step), step)
        return {name: _as_text(value) for name, value in last.items()}

    def apply(
        self, path: str, step: int, tensors: Mapping[str, Any], outputs: Mapping[str, Output]
    ) -> None:
        """Takes everything back, after `check`.

        Args:
            path: folder of the checkpoint, for the message.
            step: completed steps of the checkpoint.
            tensors: what `collect` returned.
            outputs: what `last_outputs` returned.

        Raises:
            CheckpointMismatchError: the saved iterator is that of another pipeline.
        """
        # First: this is the only part that can still turn out not to fit.
        iterator = names.ITERATOR
        try:
            self.progress.source.restore(
                _below(names.DATA, tensors), by_count=self.variables.is_kept(iterator)
            )
        except position.OtherPipelineError as error:
            advice = f"keep_program_values=('{iterator}',) draws as many batches again instead"
            line = f"{iterator}: train_dataset() is another pipeline now ({error}); {advice}"
            raise errors.CheckpointMismatchError(path, [], [], [line]) from error
        self.variables.assign(tensors)
        self.stopwatch.go_to(float(tensors[names.SECS]))
        self.stop = json.loads(_text(tensors[names.STOP]))
        self.left_out = (
            json.loads(_text(tensors[names.LEFT_OUT])) if names.LEFT_OUT in tensors else []
        )
        series = {name: np.asarray(value) for name, value in _below(names.HISTORY, tensors).items()}
        last = {name: _from_text(text) for name, text in outputs.items()}
        self.progress.history.replace(step, series, last, self.stopwatch.before)
        self.hook_tensors = {n: t for n, t in tensors.items() if n.startswith(names.HOOKS)}
        # Last: what was restored until here may have drawn from the global generators.
        self.generators.take(
            {name: _text(t) for name, t in tensors.items() if name.startswith(names.RANDOM)}
        )

    def _check_settings(self, path: str, tensors: Mapping[str, Any]) -> None:
        present = optimizer_settings.settings(self.optimizers)
        counters = {name: f"{name}/iterations" for name in present}
        steps = {name: int(tensors[key]) for name, key in counters.items() if key in tensors}
        optimizer_settings.compare(
            path, json.loads(_text(tensors[names.OPTIMIZERS])), present, steps
        )

    def _check_states(self, path: str, tensors: Mapping[str, Any]) -> None:
        """Refuses states of hooks that cannot be read, before anything has changed."""
        lines = []
        for key, _ in self.hooks:
            try:
                if names.HOOKS + key in tensors:
                    state_text.decode(_text(tensors[names.HOOKS + key]))
            except ValueError as error:
                lines.append(f"the state of hook {key} cannot be read: {error}")
        if lines:
            raise errors.CheckpointMismatchError(path, [], [], lines)

    def hook_state(self, key: str) -> dict[str, Any] | None:
        """Returns the state that the checkpoint restored last holds for a hook, or None."""
        text = self.hook_tensors.get(names.HOOKS + key)
        return None if text is None else state_text.decode(_text(text))


def _below(head: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(head): tensor for name, tensor in tensors.items() if name.startswith(head)
    }


def _hook_of(name: str) -> str | None:
    return name.removeprefix(names.HOOKS).split("/")[0] if name.startswith(names.HOOKS) else None


def _as_text(value: Any) -> Output:
    array = np.asarray(value)
    return [tf.as_dtype(array.dtype).name, base64.b64encode(array.tobytes()).decode()]


def _from_text(text: Output) -> Any:
    dtype, content = text
    return np.frombuffer(base64.b64decode(content), tf.as_dtype(dtype).as_numpy_dtype)


def _text(tensor: Any) -> str:
    return bytes(np.asarray(tensor).item()).decode()
