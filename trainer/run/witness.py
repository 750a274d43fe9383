"""What a run tells the proof that watches it.

Owns the report of one run: what construction warned of, the outputs of each step, how the run ended
and in which state. Promises to do nothing where no proof watches (see `base.probe`), to change
nothing of the run, and to take its state before the hooks' `end`. Refuses to judge.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer import errors
from trainer.base import probe
from trainer.graph import compiled, inspection
from trainer.run import preflight
from trainer.run.parts import Parts
from trainer.state import digest, names

_PLAIN = (bool, int, float, str, bytes, list, tuple, dict, set, type(None), np.ndarray, np.generic)


class Witness:
    """Watches one `train()`, which is about to begin.

    Args:
        parts: the trainer's parts.
    """

    def __init__(self, parts: Parts):
        self._parts = parts
        self._on = probe.job() is not None
        if self._on:
            os.makedirs(self._folder(), exist_ok=True)
            self._warnings = probe.heard()
            self._before = self._forgotten()
            self._begun = time.time()

    def saw(self, call: compiled.Call) -> None:
        """Notes the outputs of a call, and may be the last thing that the process does."""
        if not self._on:
            return
        step = self._parts.progress.step
        if call.steps:
            series = {name: _plain(values) for name, values in call.series.items()}
            line = {"first": step - call.steps + 1, "outputs": series}
            with open(self._path("outputs"), "a") as file:
                file.write(json.dumps(line) + "\n")
        probe.at(probe.STEP, self._parts.store.folder, step)

    def state(self) -> Mapping[str, Any] | None:
        """Returns the state in which a run ends, if anybody wants to know."""
        return self._parts.content.collect() if self._on else None

    def tell(
        self,
        state: Mapping[str, Any] | None = None,
        *,
        reason: str | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Reports how a run ended.

        Args:
            state: what `state` returned, unless an error ended the run.
            reason: of the end.
            error: what ended it instead.
        """
        if not self._on:
            return
        parts, step = self._parts, self._parts.progress.step
        probe.at_end(parts.store.folder, step)
        if state is not None:
            compared = {n: _dumpable(v) for n, v in state.items() if names.is_compared(n)}
            np.savez(self._path("npz"), **compared)
        after = self._forgotten()
        certain, possible = self._suspects()
        report = {
            "begun": self._begun,
            "secs": parts.stopwatch.read() / max(1, step),  # of a step
            "step": step,
            "reason": reason,
            "error": None if error is None else errors.brief(error),
            "digests": None if state is None else digest.of_state(state),
            "hidden": certain,
            "possible": possible,
            "warnings": self._warnings,
            "forgotten": {
                key: changed
                for key, now in after.items()
                if (changed := [n for n in now if now[n] != self._before.get(key, {}).get(n)])
            },
        }
        with open(self._path("json"), "w") as file:
            json.dump(report, file)

    def _suspects(self) -> tuple[list[str], list[str]]:
        """Returns what certainly makes a resumed run differ, and what may."""
        step, source = self._parts.compiled_step.function, self._parts.progress.source
        certain, possible = preflight.suspects(step, source)
        return (
            [f"{where}: {what}" for where, what in certain],
            [f"{where}: {what}" for where, what in possible],
        )

    def _forgotten(self) -> dict[str, dict[str, str]]:
        """Returns the attributes, as texts, of the program's hooks that keep no state."""
        stateless = self._parts.hooks.stateless()
        return {
            key: {n: repr(v) for n, v in inspection.vars_of(hook).items() if isinstance(v, _PLAIN)}
            for key, hook in self._parts.hooks
            if key in stateless and not type(hook).__module__.startswith("trainer.")
        }

    def _folder(self) -> str:
        job = probe.job()
        assert job is not None
        return f"{job.folder}.told"

    def _path(self, end: str) -> str:
        return os.path.join(self._folder(), f"{probe.run_of(self._parts.store.folder)}.{end}")


def _plain(values: Any) -> list[Any]:
    array = np.asarray(values)
    return (array if array.dtype.kind in "biuf" else array.astype(np.float64)).tolist()  # type: ignore[no-any-return]


def _dumpable(value: Any) -> Any:
    """Returns a value in a type that NumPy writes and reads without pickling."""
    array = np.asarray(value)
    if array.dtype == object:
        return np.array([_text(item) for item in array.reshape(-1)]).reshape(array.shape)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
