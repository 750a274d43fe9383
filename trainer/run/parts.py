"""What a trainer is made of, and what moves it between checkpoints.

Owns the parts, which stay the same for a trainer's life, and the ways from a checkpoint into them.
Promises that a checkpoint is taken back completely or not at all. Refuses to make the parts (see
`construction`) or to choose a checkpoint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.base import clock, probe
from trainer.base.log import LOG
from trainer.checkpoints import store as checkpoint_store
from trainer.fingerprint import program as fingerprint
from trainer.graph import bad_numbers, compiled, inspection
from trainer.hooks import hook_list
from trainer.hooks.hook import Hook
from trainer.journal import journal
from trainer.run import content
from trainer.run.progress import Progress
from trainer.state import discovery, names


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a trainer is made of.

    Args:
        program: the user's trainer: its methods and attributes.
        store: the checkpoints.
        journal: the run's diary.
        seed: seed of the run.
        progress: where the run is; all that moves is in it.
        compiled_step: the traced step.
        loop: the loop around it.
        hooks: the hooks.
        content: all that a checkpoint holds.
        stopwatch: seconds of training.
        bad_numbers: what is made of numbers that are not finite.
        fingerprint: what the program is made of.
        apart: variables that an evaluation made for itself: they are no state.
    """

    program: Any
    store: checkpoint_store.Store
    journal: journal.Journal
    seed: int
    progress: Progress
    compiled_step: compiled.Step
    loop: compiled.Loop
    hooks: hook_list.HookList
    content: content.Content
    stopwatch: clock.Stopwatch
    bad_numbers: bad_numbers.BadNumbers
    fingerprint: fingerprint.Fingerprint
    apart: list[Any] = dataclasses.field(default_factory=list)


def user_attributes(program: Any) -> Iterator[tuple[str, Any]]:
    """Yields the attributes that a user gave a trainer, by the names under which they are saved."""
    for name, value in vars(program).items():
        if name.isidentifier():  # the trainer's own are not (see `inside`)
            yield name.lstrip("_"), value


def find_state(parts: Parts) -> None:
    """Finds what is to be saved, now that all of it exists."""
    found = _discover(parts)
    known = set(parts.content.variables.entries)
    parts.content.variables = parts.content.variables.renewed(found.entries)
    parts.content.optimizers = found.optimizers
    values = parts.content.variables.values()
    parts.bad_numbers.accept({name: v for name, v in values.items() if name not in known})


def late_variables(parts: Parts) -> list[str]:
    """Returns the names of variables made after construction: no checkpoint holds them."""
    found = [entry.name for entry in _discover(parts).entries]
    return [name for name in found if name not in parts.content.variables.entries]


def take_back(parts: Parts, path: str, found: checkpoint_store.Found) -> None:
    """Checks a checkpoint against the program and takes all of it back, but for hooks' states.

    Args:
        parts: the trainer's parts.
        path: folder of the checkpoint, for messages.
        found: what it holds.

    Raises:
        CheckpointMismatchError: it is of another program; no value was changed.
    """
    manifest, tensors = found
    parts.fingerprint.check(path, manifest.fingerprint)
    parts.content.check(path, manifest.variables, manifest.tensors, tensors)
    probe.at(probe.RECOVERY, parts.store.folder, 0, f"of step {manifest.step}, before its values")
    parts.content.apply(path, manifest.step, tensors, manifest.outputs or {})
    parts.progress.go_to(manifest.step)
    probe.at(probe.RECOVERY, parts.store.folder, 0, f"of step {manifest.step}, after its values")
    restored = {name: tensors[name] for name in manifest.variables}
    bad = parts.bad_numbers.in_state(restored)
    if bad:
        LOG.warning(
            "checkpoint %d holds values that are not finite: %s; it cannot be saved again so. Go "
            "back to an older one with restore(), or `python -m trainer rollback`",
            manifest.step,
            ", ".join(bad),
        )


def go_back(parts: Parts, step: int) -> None:
    """Restores an older checkpoint and sets the newer ones aside.

    Args:
        parts: the trainer's parts.
        step: of the checkpoint.

    Raises:
        ValueError: there is no such checkpoint.
    """
    store = parts.store
    store.check_owned()
    steps = store.numbered()
    if step not in steps:
        raise ValueError(
            f"there is no checkpoint {step!r} in {store.folder}; choose one of {steps}"
        )
    take_back(parts, store.path(step), store.read(step))
    later = store.rewind(step)
    for key, hook in parts.hooks:
        give_state(parts, key, hook)
    LOG.info("went back to checkpoint %d; set aside: %s", step, later or "none")
    parts.journal.note("rewind", step=step, set_aside=later)


def give_state(parts: Parts, key: str, hook: Hook) -> None:
    """Gives a hook the state that the checkpoint restored last holds for it, if it holds one."""
    saved = parts.content.hook_state(key)
    if saved is not None:
        parts.hooks.give(key, saved)


def saved_variables_of_hooks(parts: Parts, known: set[str]) -> Mapping[str, Any]:
    """Returns what that checkpoint holds for variables of hooks that were not known before.

    Args:
        parts: the trainer's parts.
        known: names of the variables that were.
    """
    held = parts.content.hook_tensors
    return {
        name: held[name]
        for name in parts.content.variables.entries
        if name not in known and name in held
    }


def _discover(parts: Parts) -> discovery.Found:
    def attributes() -> Iterator[tuple[str, Any]]:
        yield names.STEP, parts.progress.counter
        yield from user_attributes(parts.program)
        for key, hook in parts.hooks:
            for name, value in inspection.vars_of(hook).items():
                yield f"{names.HOOKS}{key}/{name.lstrip('_')}", value

    found = discovery.discover(attributes())
    apart = {id(variable) for variable in parts.apart}
    kept = [entry for entry in found.entries if id(entry.variable) not in apart]
    return dataclasses.replace(found, entries=kept)
