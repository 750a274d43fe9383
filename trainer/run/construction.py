"""Construction: from a config and a program to a trainer that is ready to go on.

Owns the order lock, seed, build, trace, check, restore, and the parts that come of it. Promises
that a failure on the way gives the lock back, leaves every checkpoint as it was and changes no
variable. Refuses to train or to save.
"""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer import config
from trainer.base import clock
from trainer.base.log import LOG
from trainer.checkpoints import store as checkpoint_store
from trainer.data import position, sources
from trainer.graph import compiled, inspection, snapshot
from trainer.hooks import hook_list
from trainer.hooks.hook import Hook
from trainer.journal import journal
from trainer.run import content, history, preflight
from trainer.state import discovery, seeds, warm_start
from trainer.state import variables as variables_module


@dataclasses.dataclass
class Parts:
    """What a trainer is made of.

    Args:
        store: the checkpoints.
        journal: the run's diary.
        seed: seed of the run.
        strategy: TensorFlow's strategy.
        counter: the step as a variable.
        step: the step as an int, without asking the device.
        source: the training data.
        compiled_step: the traced step.
        loop: the loop around it.
        hooks: the hooks.
        history: outputs that a hook may still ask for.
        content: all that a checkpoint holds.
        stopwatch: seconds of training.
        restored_step: step of the checkpoint that was restored, or None.
        hook_tensors: what that checkpoint held for hooks, for those registered later.
        never_finite: variables that were made with an infinity (a best value so far, say).
        heeds_non_finite: whether numbers that are not finite matter.
        torn: why the state in memory is that of no whole step, or None.
        failed: the error that `train_step` or the data raised last, or None.
        in_step_hooks: whether hooks of a step are being called.
    """

    store: checkpoint_store.Store
    journal: journal.Journal
    seed: int
    strategy: tf.distribute.Strategy
    counter: tf.Variable
    source: position.Source
    compiled_step: compiled.Step
    loop: compiled.Loop
    hooks: hook_list.HookList
    history: history.History
    content: content.Content
    stopwatch: clock.Stopwatch
    step: int = 0
    restored_step: int | None = None
    hook_tensors: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    never_finite: set[str] = dataclasses.field(default_factory=set)
    heeds_non_finite: bool = True
    torn: str | None = None
    failed: BaseException | None = None
    in_step_hooks: bool = False

    def poisoned(self, values: Mapping[str, Any]) -> list[str]:
        """Returns the names of values that are not finite and should be.

        Args:
            values: of variables, by name.
        """
        if not self.heeds_non_finite:
            return []
        return sorted(set(snapshot.non_finite(values)) - self.never_finite)


def assemble(
    program: Any,
    settings: config.TrainerConfig,
    strategy: tf.distribute.Strategy,
    counter: tf.Variable,
    hook_sequence: Sequence[Hook],
    *,
    methods: frozenset[str],
) -> Parts:
    """Returns the parts of a trainer, restored.

    Args:
        program: the user's trainer: `build`, `train_dataset`, `train_step` and attributes.
        settings: the config.
        strategy: the variables are made under its scope.
        counter: int64 variable that counts the steps.
        hook_sequence: the hooks.
        methods: names that an attribute of the program must not hide.
    """
    hooks = hook_list.HookList(hook_sequence)
    store = checkpoint_store.Store(
        settings.model_dir,
        max_to_keep=settings.max_to_keep,
        keep_every_n_hours=settings.keep_every_n_hours,
    )
    preflight.resume(store, settings.resume)
    store.own()
    try:
        parts = _build(
            program, settings, strategy=strategy, counter=counter, hooks=hooks, store=store
        )
        preflight.attributes(program, methods)
        preflight.coverage(
            parts.compiled_step, parts.content.variables, dict(_user_attributes(program))
        )
        preflight.hidden_state(parts.compiled_step)
        _restore_newest(program, parts, settings)
        for key, hook in parts.hooks:
            _give_state(parts, key, hook)
    except BaseException:
        store.close()
        raise
    return parts


def add_hook(program: Any, parts: Parts, hook: Hook) -> None:
    """Appends a hook to a trainer that is ready, with its saved state."""
    key = parts.hooks.add(hook)
    before = set(parts.content.variables.entries)
    _look_through(program, parts)
    variables = parts.content.variables
    saved = {
        name: parts.hook_tensors[name]
        for name in variables.entries
        if name not in before and name in parts.hook_tensors
    }
    others = [name for name in variables.entries if name not in saved]
    variables.check(parts.store.folder, variables_module.describe(saved), but=others)
    variables.assign(saved)
    _give_state(parts, key, hook)


def go_back(parts: Parts, step: int) -> None:
    """Restores an older checkpoint and sets the newer ones aside."""
    parts.store.check_owned()
    steps = parts.store.numbered()
    if step not in steps:
        raise ValueError(
            f"there is no checkpoint {step!r} in {parts.store.folder}; choose one of {steps}"
        )
    found = parts.store.read(step)
    _check(parts, parts.store.path(step), found)
    _apply(parts, parts.store.path(step), found)
    later = parts.store.rewind(step)
    for key, hook in parts.hooks:
        _give_state(parts, key, hook)
    LOG.info("went back to checkpoint %d; set aside: %s", step, later or "none")
    parts.journal.note("rewind", step=step, set_aside=later)


def late_variables(program: Any, parts: Parts) -> list[str]:
    """Returns the names of variables made after construction: no checkpoint holds them."""
    names = [entry.name for entry in _discover(program, parts).entries]
    return [name for name in names if name not in parts.content.variables.entries]


def _build(
    program: Any,
    settings: config.TrainerConfig,
    *,
    strategy: tf.distribute.Strategy,
    counter: tf.Variable,
    hooks: hook_list.HookList,
    store: checkpoint_store.Store,
) -> Parts:
    """Makes everything that a restore needs to be there: variables above all."""
    seed = _choose_seed(store, settings.seed)

    def make_dataset() -> Any:
        seeds.plant(seed)
        with strategy.scope():
            return program.train_dataset()

    seeds.plant(seed)
    with strategy.scope():
        program.build()
        source = sources.open_source(make_dataset, settings.epochs, settings.data_position)
        step = compiled.Step(
            program.train_step,
            source.element_spec,
            jit_compile=settings.jit_compile,
            name="train_step",
        )
    outputs, stopwatch = history.History(), clock.Stopwatch()
    variables = variables_module.State((), settings.keep_program_values)
    heeds = settings.on_nonfinite != "ignore"
    parts = Parts(
        store=store,
        journal=journal.Journal(store.files, store.folder),
        seed=seed,
        strategy=strategy,
        counter=counter,
        source=source,
        compiled_step=step,
        loop=compiled.Loop(step, counter, source.iterator, ends_if_not_finite=heeds),
        hooks=hooks,
        history=outputs,
        content=content.Content(variables, source, hooks, outputs, stopwatch),
        stopwatch=stopwatch,
        heeds_non_finite=heeds,
    )
    _look_through(program, parts)
    return parts


def _choose_seed(store: checkpoint_store.Store, asked: int | None) -> int:
    """A run keeps its seed: the newest checkpoint's wins over the program's."""
    newest = store.newest()
    if newest is None:
        seed = seeds.draw() if asked is None else asked
        LOG.info("seed %d%s", seed, "" if asked is not None else " (drawn; kept in the checkpoint)")
        return seed
    if asked is not None and asked != newest.seed:
        LOG.info(
            "seed: the checkpoint has %d, the program asks %d, using %d",
            newest.seed,
            asked,
            newest.seed,
        )
    else:
        LOG.info("seed %d (from the checkpoint)", newest.seed)
    return newest.seed


def _look_through(program: Any, parts: Parts) -> None:
    """Finds what is to be saved, now that all of it exists."""
    found = _discover(program, parts)
    known = set(parts.content.variables.entries)
    parts.content.variables = parts.content.variables.renewed(found.entries)
    parts.content.optimizers = found.optimizers
    values = parts.content.variables.values()
    new = {name: value for name, value in values.items() if name not in known}
    parts.never_finite |= set(snapshot.non_finite(new))


def _discover(program: Any, parts: Parts) -> discovery.Found:
    def attributes() -> Iterator[tuple[str, Any]]:
        yield "trainer/step", parts.counter
        yield from _user_attributes(program)
        for key, hook in parts.hooks:
            for name, value in inspection.vars_of(hook).items():
                yield f"trainer/hooks/{key}/{name.lstrip('_')}", value

    return discovery.discover(attributes())


def _user_attributes(program: Any) -> list[tuple[str, Any]]:
    return [
        (name.lstrip("_"), value)
        for name, value in vars(program).items()
        if not name.startswith("_Trainer__")
    ]


def _restore_newest(program: Any, parts: Parts, settings: config.TrainerConfig) -> None:
    def accept(path: str, found: checkpoint_store.Found) -> None:
        _check(parts, path, found)
        _apply(parts, path, found)

    begun = clock.now()
    found = parts.store.recover(accept)
    parts.journal.note(
        "start",
        process=os.getpid(),
        host=socket.gethostname(),
        seed=parts.seed,
        process_secs=clock.process_secs(),
    )
    if found is not None:
        secs = round(clock.now() - begun, 3)
        lost = parts.store.newest_before_recovery - parts.step
        parts.journal.note("restore", step=parts.step, steps_lost=lost, secs=secs)
        LOG.info("resumed at step %d from %s", parts.step, parts.store.path(parts.step))
        return
    if settings.init_from is not None:
        warm_start.load(
            parts.content.variables, settings.init_from, dict(_user_attributes(program))
        )
    LOG.info("no checkpoint in %s: starting from nothing", settings.model_dir)


def _check(parts: Parts, path: str, found: checkpoint_store.Found) -> None:
    manifest, tensors = found
    parts.content.check(path, manifest.variables, manifest.tensors, tensors)


def _apply(parts: Parts, path: str, found: checkpoint_store.Found) -> None:
    manifest, tensors = found
    parts.content.apply(path, manifest.step, tensors)
    parts.step = parts.restored_step = manifest.step
    parts.hook_tensors = content.of_hooks(tensors)
    parts.torn = None
    restored = {name: tensors[name] for name in manifest.variables}
    poisoned = parts.poisoned(restored)
    if poisoned:
        LOG.warning(
            "checkpoint %d holds values that are not finite: %s; it cannot be saved again so. Go "
            "back to an older one with restore(), or `python -m trainer rollback`",
            manifest.step,
            ", ".join(poisoned),
        )


def _give_state(parts: Parts, key: str, hook: Hook) -> None:
    saved = parts.content.hook_state(key, parts.hook_tensors)
    if saved is not None:
        hook.set_state(saved)
