"""Construction: from a config and a program to a trainer that is ready to go on.

Owns the order lock, seed, build, trace, check, restore. Promises that a failure on the way gives
the lock back, leaves every checkpoint as it was and changes no variable. Refuses to train or to
save.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer import config
from trainer.base import clock, probe
from trainer.base.log import LOG
from trainer.checkpoints import store as checkpoint_store
from trainer.data import position, sources
from trainer.fingerprint import data as fingerprint_data
from trainer.fingerprint import program as fingerprint
from trainer.graph import bad_numbers, compiled
from trainer.hooks import hook_list
from trainer.hooks.hook import Hook
from trainer.journal import heartbeat, journal
from trainer.run import (
    content,
    determinism,
    hook_settings,
    members,
    neighbours,
    preflight,
    state_coverage,
    unkept,
)
from trainer.run.parts import (
    Parts,
    find_state,
    give_state,
    saved_variables_of_hooks,
    take_back,
    user_attributes,
)
from trainer.run.progress import Progress
from trainer.state import generators, optimizer_settings, seeds, warm_start
from trainer.state import variables as variables_module


def assemble(
    program: Any,
    settings: config.TrainerConfig,
    strategy: tf.distribute.Strategy,
    counter: tf.Variable,
    hooks: Sequence[Hook],
    *,
    methods: frozenset[str],
    turns: generators.Generators,
) -> Parts:
    """Returns the parts of a trainer, restored.

    Args:
        program: the user's trainer: `build`, `train_dataset`, `train_step` and attributes.
        settings: the config.
        strategy: the variables are made under its scope.
        counter: int64 variable that counts the steps.
        hooks: the hooks.
        methods: names of the trainer's own, which the program must not hide.
        turns: the trainer's states of the global generators, in a turn.
    """
    listed = hook_list.HookList(hooks)
    members.check(program, hooks, methods)
    store = checkpoint_store.Store(
        settings.model_dir,
        max_to_keep=settings.max_to_keep,
        keep_every_n_hours=settings.keep_every_n_hours,
    )
    preflight.resume(store, settings.resume)
    store.own()
    try:
        probe.at(probe.CONSTRUCTION, store.folder, 0, "before build()")
        determinism.turn_on(settings.deterministic)
        parts = _build(program, settings, strategy, counter, hooks=listed, store=store, turns=turns)
        attributes = dict(user_attributes(program))
        elsewhere = members.elsewhere(program)
        state_coverage.check(parts.compiled_step, parts.content.variables, attributes, elsewhere)
        optimizer_settings.say_unknown(parts.content.optimizers)
        preflight.hidden_state(parts.compiled_step, parts.progress.source)
        neighbours.join(parts)
        turns.built()
        probe.at(probe.CONSTRUCTION, store.folder, 0, "after tracing")
        _restore_newest(parts, settings)
        for key, hook in parts.hooks:
            give_state(parts, key, hook)
    except BaseException:
        store.close()
        raise
    return parts


def add_hook(parts: Parts, hook: Hook) -> None:
    """Appends a hook to a trainer that is ready, with its saved state."""
    key = parts.hooks.add(hook)
    members.of_hook(hook)
    parts.content.settings.add(key, hook)
    before = set(parts.content.variables.entries)
    find_state(parts)
    variables = parts.content.variables
    saved = saved_variables_of_hooks(parts, before)
    others = [name for name in variables.entries if name not in saved]
    variables.check(parts.store.folder, variables_module.describe(saved), but=others)
    variables.assign(saved)
    give_state(parts, key, hook)


def _build(
    program: Any,
    settings: config.TrainerConfig,
    strategy: tf.distribute.Strategy,
    counter: tf.Variable,
    *,
    hooks: hook_list.HookList,
    store: checkpoint_store.Store,
    turns: generators.Generators,
) -> Parts:
    """Makes everything that a restore needs to be there: variables above all."""
    seed = _choose_seed(store, settings.seed)
    source, step = _trace(program, settings, strategy, seed)
    if settings.seed is None and store.newest() is None:
        preflight.own_seeds(source, seed)
    progress, stopwatch = Progress(counter, source, step.metrics), clock.Stopwatch()
    variables = variables_module.State((), settings.keep_program_values)
    bad = bad_numbers.BadNumbers(ignored=settings.on_nonfinite == "ignore")
    parts = Parts(
        program=program,
        store=store,
        journal=journal.Journal(store.files, store.folder),
        seed=seed,
        progress=progress,
        compiled_step=step,
        loop=compiled.Loop(step, counter, source.iterator, bad=bad),
        hooks=hooks,
        content=content.Content(
            variables, progress, hooks, stopwatch, turns, hook_settings.HookSettings(hooks)
        ),
        stopwatch=stopwatch,
        bad_numbers=bad,
        fingerprint=fingerprint.Fingerprint(source, settings),
    )
    find_state(parts)
    entries = parts.content.variables.entries
    parts.fingerprint.take(step.function, {name: e.variable for name, e in entries.items()})
    return parts


def _trace(
    program: Any, settings: config.TrainerConfig, strategy: tf.distribute.Strategy, seed: int
) -> tuple[position.Source, compiled.Step]:
    """Has the program make its variables and its data, and traces its step."""

    def make_dataset() -> Any:
        seeds.plant(seed)
        with strategy.scope():
            return program.train_dataset()

    outside = fingerprint_data.Moment()
    seeds.plant(seed)
    with strategy.scope():
        program.build()
        source = sources.open_source(make_dataset, settings.epochs, settings.data_position)
        fingerprint.check_seeds(source, outside, settings)
        with unkept.tracing(program):
            step = compiled.Step(
                program.train_step,
                source.element_spec,
                jit_compile=settings.jit_compile,
                name="train_step",
            )
    return source, step


def _choose_seed(store: checkpoint_store.Store, asked: int | None) -> int:
    """A run keeps its seed: the newest checkpoint's wins over the program's."""
    newest = store.newest()
    if newest is None:
        seed = seeds.draw() if asked is None else asked
        LOG.info("seed %d%s", seed, "" if asked is not None else " (drawn; kept in the checkpoint)")
        return seed
    if asked is not None and asked != newest.seed:
        LOG.warning(
            "seed: the checkpoint has %d, the program asks %d, using %d: a seed has no effect once "
            "there is a checkpoint. To branch runs with seeds of their own from it, give each a "
            "model_dir of its own without checkpoints, and init_from=%r (weights alone are taken)",
            newest.seed,
            asked,
            newest.seed,
            store.folder,
        )
    else:
        LOG.info("seed %d (from the checkpoint)", newest.seed)
    return newest.seed


def _restore_newest(parts: Parts, settings: config.TrainerConfig) -> None:
    begun = clock.now()
    seen = heartbeat.read(parts.store.files, parts.store.folder)
    last_seen = {} if seen is None else {"last_seen": {k: seen[k] for k in ("time", "step")}}
    found = parts.store.recover(lambda path, found: take_back(parts, path, found))
    parts.journal.note(
        "start",
        process=os.getpid(),
        host=socket.gethostname(),
        seed=parts.seed,
        process_secs=clock.process_secs(),
        **last_seen,
    )
    if found is not None:
        secs = round(clock.now() - begun, 3)
        step = parts.progress.step
        known = (parts.store.newest_before_recovery, int(seen["step"]) if seen else 0)
        lost = max(0, max(known) - step)
        parts.journal.note("restore", step=step, steps_lost=lost, secs=secs)
        LOG.info("resumed at step %d from %s", step, parts.store.path(step))
        parts.fingerprint.say(step, found[0].fingerprint)
        return
    if settings.init_from is not None:
        attributes = dict(user_attributes(parts.program))
        warm_start.load(parts.content.variables, settings.init_from, attributes)
    LOG.info("no checkpoint in %s: starting from nothing", settings.model_dir)
