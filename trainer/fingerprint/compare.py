"""How grave a difference between two fingerprints is.

Owns the levels. Promises that equal programs differ in nothing, and that each difference is one
line in the user's words. Refuses to log or to raise: construction does.

    part       what differs                                               level
    data       the order: seeds of a stage, the size or place of a         refused, unless
               shuffle, files in another order                             `keep_program_values` has
                                                                           "trainer/data/order"
    data       batch size, rows, values, files, functions, other stages    warning
    step       a constant, an operation, how they are put together         warning
    settings   jit_compile, data_position, epochs, on_nonfinite; a flag    warning
               of the program
    settings   any other field of the config                               info
    machine    TensorFlow, Keras, intra-op threads, instruction set,       warning
               oneDNN's and XLA's switches, devices, op determinism
    machine    Python, NumPy                                               info

What an `Indexed` says itself when its order changes, the steps that a run goes to, a folder, a
host, the processors, parallel calls and prefetches are no difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from trainer.fingerprint import words

REFUSED, WARNING, INFO = "refused", "warning", "info"

_DECIDE = {"jit_compile", "data_position", "epochs", "on_nonfinite"}
# How long a run is and where it begins; said elsewhere where it matters.
_UNSAID = {"max_steps", "resume", "seed", "intra_op_threads", "keep_program_values", "init_from"}
_HARMLESS = {"Python", "NumPy"}


@dataclasses.dataclass(frozen=True)
class Difference:
    """One difference.

    Args:
        level: `REFUSED`, `WARNING` or `INFO`.
        text: what differs, from the former to the present.
    """

    level: str
    text: str


def differences(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    lines: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {},
) -> list[Difference]:
    """Returns how a program differs from a former one.

    Args:
        before: the fingerprint of the former.
        now: the present one.
        lines: takes the former step, returns where operations of the present one stand.
    """
    found: list[Difference] = []
    if "step" in before and "step" in now and before["step"]["digest"] != now["step"]["digest"]:
        where = lines(before["step"])
        texts = words.step_changes(before["step"], now["step"], where)
        found += [Difference(WARNING, f"train_step: {text}") for text in texts]
    if "data" in before and "data" in now:
        order, rest = words.data_changes(before["data"], now["data"])
        found += [Difference(REFUSED, f"train_dataset: {text}") for text in order]
        found += [Difference(WARNING, f"train_dataset: {text}") for text in rest]
    found += _of_settings(before.get("settings", {}), now.get("settings", {}))
    machines = before.get("machine", {}), now.get("machine", {})
    for name, one, two in _changed(*machines):
        level = INFO if name in _HARMLESS else WARNING
        found.append(Difference(level, f"{name} {one} -> {two}"))
    return found


def _of_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    found = []
    for name, one, two in _changed(before.get("flags", {}), now.get("flags", {})):
        found.append(Difference(WARNING, f"flag --{name} {one} -> {two}"))
    # A field that one of them does not know is one of another version.
    configs = [part.get("config", {}) for part in (before, now)]
    known = configs[0].keys() & configs[1].keys() - _UNSAID
    shared = ({name: part[name] for name in known} for part in configs)
    for name, one, two in _changed(*shared):
        found.append(Difference(WARNING if name in _DECIDE else INFO, f"{name} {one} -> {two}"))
    return found


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [
        (name, before.get(name, "unset"), now.get(name, "unset"))
        for name in sorted({*before, *now})
        if before.get(name, "unset") != now.get(name, "unset")
    ]
