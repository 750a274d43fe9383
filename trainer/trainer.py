"""The trainer: what a user fills in, and the loop.

Owns the order of things: construct (lock, seed, build, trace, check, restore), then train (hooks,
compiled steps, saves). Promises the ten invariants of BUILD.md, above all that an interrupted run
ends bit for bit where the unbroken run would have ended. Refuses details: each is a call into the
file that owns it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import tensorflow as tf

from trainer import config, errors
from trainer.base import arguments, clock
from trainer.base.log import LOG, make_visible
from trainer.graph import compiled
from trainer.hooks import context
from trainer.hooks.hook import Hook
from trainer.run import (
    construction,
    ending,
    evaluation,
    pace,
    preflight,
    retry,
    rollback,
    saving,
    signals,
    stepping,
)
from trainer.state import seeds


class Trainer:
    """A training run that can be killed at any moment and started again with the same program.

    Derive a class and fill in `build`, `train_dataset` and `train_step`; override nothing else.
    When the constructor returns, the state is completely that of the newest readable checkpoint in
    `config.model_dir`, or there was none. A subclass with arguments of its own sets its attributes
    first and calls `super().__init__(config, hooks=hooks, strategy=strategy)` last.

    Args:
        config: the settings.
        hooks: called between steps, in this order.
        strategy: a `tf.distribute.OneDeviceStrategy`, or None for TensorFlow's default.

    Raises:
        ValueError: an argument, the dataset or what `train_step` returns is wrong.
        ModelDirInUseError: another process trains in `config.model_dir`.
        StateCoverageError: the compiled step uses variables that no checkpoint would hold.
        CheckpointMismatchError: the newest checkpoint is of another program.
        NoReadableCheckpointError: there are checkpoints and none can be read.
        CheckpointError: `config.resume` is "required" and there is no checkpoint.
    """

    def __init__(
        self,
        config: config.TrainerConfig,
        *,
        hooks: Sequence[Hook] = (),
        strategy: tf.distribute.Strategy | None = None,
    ):
        make_visible()
        self.__config, self.__constructed = preflight.settings(config), clock.now()
        self.__strategy = preflight.one_device(strategy)
        with self.__strategy.scope():
            self.__counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        with signals.watch():
            self.__parts = construction.assemble(
                self,
                self.__config,
                self.__strategy,
                self.__counter,
                hooks,
                methods=frozenset(vars(Trainer)),
            )
        self.__saver = saving.Saver(self, self.__config, self.__parts)
        self.__pace = pace.Pace(self.__config.steps_per_call)
        self.__evaluator: evaluation.Evaluator | None = None

    # What a user fills in.

    def build(self) -> None:
        """Makes the model, the optimizer and whatever else holds variables, as attributes."""

    def train_dataset(self) -> Any:
        """Returns the training data as batches.

        A `tf.data.Dataset`, a `trainer.data.Indexed`, or an iterable whose iterator has
        `get_state()` and `set_state(state)`. Made again after a restart, it must be equal.
        """
        raise NotImplementedError(f"{type(self).__name__} must define train_dataset(self)")

    def train_step(self, batch: Any) -> dict[str, tf.Tensor]:
        """Trains on one batch; compiled once.

        Args:
            batch: one element of the dataset.

        Returns:
            Name to scalar.
        """
        raise NotImplementedError(f"{type(self).__name__} must define train_step(self, batch)")

    def eval_dataset(self) -> Any:
        """Returns a dataset or an `Indexed` for `evaluate`; each evaluation starts it anew."""
        raise NotImplementedError(f"{type(self).__name__} must define eval_dataset(self)")

    def eval_step(self, batch: Any) -> dict[str, tf.Tensor]:
        """Judges one batch; compiled once.

        Args:
            batch: one element of the evaluation dataset.

        Returns:
            Name to scalar.
        """
        raise NotImplementedError(f"{type(self).__name__} must define eval_step(self, batch)")

    # What a user calls.

    def train(self, max_steps: int | None = None, *, steps: int | None = None) -> ending.RunResult:
        """Trains until `max_steps` steps in total, or `steps` more.

        Args:
            max_steps: steps in total, over all resumes; None: the config's.
            steps: steps from here on, instead of `max_steps`.

        Returns:
            How it ended.

        Raises:
            ValueError: both arguments are given, or no end is given anywhere.
            NonFiniteError: an output of a step was NaN or infinite.
            SaveError: saves failed, as `config.on_save_error` says.
            Exception: what a step or a hook raised, with hook and step in a note.
        """
        parts, saver = self.__parts, self.__saver
        parts.store.check_owned()
        parts.loop.resume()  # a signal may have come after the last step of an earlier run
        goal = ending.goal(parts.step, max_steps, steps, self.__config, self.__constructed)
        ctx = context.RunContext(self, parts.step, saver.saved_step, parts.history, parts.source)
        with signals.watch(parts.loop.interrupt) as watch:
            end = ending.Ending(goal, parts, ctx, watch)
            try:
                with parts.stopwatch:
                    reason = self.__train(ctx, end)
            except errors.EvaluationStoppedError as error:
                saver.settle(ctx)
                reason = end.cut_short(error)
            except BaseException as error:
                ctx.error, ctx.saved_step = error, saver.newest()
                end.failed(error, saver.stands())
                raise
            finally:
                parts.hooks.end(ctx)
            result = end.result(reason)
        LOG.info("%s at step %d; %s", reason.replace("_", " "), parts.step, saver.stands())
        return result

    def __train(self, ctx: context.RunContext, end: ending.Ending) -> str:
        """Trains until there is a reason to end, saves, and returns the reason."""
        parts = self.__parts
        undoing = rollback.Rollback(parts, self.__saver, self.__config)
        retrying, reason = retry.Retry(parts, self.__saver), end.before()
        if reason is None:
            parts.loop.prepare(parts.source.iterator)
            parts.journal.note("train", step=parts.step)
        parts.hooks.begin(ctx)
        undoing.make_possible(reason)
        while True:
            try:
                return self.__until_end(reason, ctx, end)
            except (errors.NonFiniteError, errors.StepRefusedError) as error:
                undoing.undo(error)
            except tf.errors.OpError as error:
                retrying.again(error)
            ctx.step = parts.step

    def __until_end(self, reason: str | None, ctx: context.RunContext, end: ending.Ending) -> str:
        """Trains until there is a reason to end or an error, and saves."""
        parts, saver = self.__parts, self.__saver
        reason = reason or end.asked_for(saver.expected_secs)
        while reason is None:
            stepping.call_hooks(parts, parts.hooks.before_step, ctx)
            call = self.__run_steps(end)
            stepping.show(parts, call, ctx, saver.newest)
            reason = end.after_call(call)
            if reason is None:
                saver.at_boundary(ctx, asked=end.save_asked())
                parts.loop.resume()
                reason = end.asked_for(saver.expected_secs)
        saver.settle(ctx)
        reason = end.at_last(reason)
        if end.may_save(saver.expected_secs, self.__config.grace_secs):
            saver.save_last(ctx)
        return reason

    def evaluate(self, steps: int | None = None) -> dict[str, float]:
        """Returns the mean of each output of `eval_step`, weighted by batch size.

        Nothing of the training changes: variables that `eval_step` writes get their values back.

        Args:
            steps: batches at most; None: all.

        Raises:
            ValueError: `steps` is below 1, or there was no batch.
            EvaluationStoppedError: called by a hook, and a stop signal left no time for the rest.
        """
        arguments.count("steps", steps)
        with self.__strategy.scope(), seeds.lent(self.seed):
            iterator = iter(self.eval_dataset())
            if self.__evaluator is None:
                self.__evaluator = evaluation.Evaluator(self.eval_step, iterator)
            variables = self.__parts.content.variables.entries.values()
            protected = [entry.variable for entry in variables]
            left = self.__config.grace_secs - self.__saver.expected_secs
            return self.__evaluator.run(iterator, steps, protected, left)

    def save(self) -> int:
        """Saves now, whatever the interval says; on the disk when it returns.

        Returns:
            The step that was saved.

        Raises:
            SaveError: it could not be written, or the state is not that of a whole step.
            TrainerError: called from `before_step` or `after_step`, where hooks of the same step
                may still have to run.
        """
        if self.__parts.in_step_hooks:
            raise errors.TrainerError(
                "save() inside before_step or after_step would miss the hooks that still have to "
                "run; use save_every_steps, or call it between two train() calls"
            )
        self.__saver.save()
        return self.step

    def restore(self, step: int) -> None:
        """Goes back to an older checkpoint; the newer ones are set aside, never resumed.

        Args:
            step: one of `checkpoints`.

        Raises:
            ValueError: there is no checkpoint of that step.
            DamagedCheckpointError, CheckpointMismatchError: it cannot be used; nothing changed.
        """
        self.__saver.wait()
        construction.go_back(self.__parts, int(step))
        self.__saver.went_back()

    def register_hook(self, hook: Hook) -> None:
        """Adds a hook after the others; it gets its saved state at once.

        Args:
            hook: the hook.

        Raises:
            ValueError: it is no hook, or its name is taken.
        """
        construction.add_hook(self, self.__parts, hook)

    def close(self) -> None:
        """Waits for a save in flight and gives the run folder back; no more saves after it."""
        self.__saver.close()
        self.__parts.store.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def step(self) -> int:
        """Completed steps, over all resumes; an int64 tensor while a step is being compiled."""
        if tf.inside_function():
            return self.__counter.read_value()  # type: ignore[no-any-return]
        return self.__parts.step

    @property
    def restored_step(self) -> int | None:
        """Step of the checkpoint that was restored last, or None if there was none."""
        return self.__parts.restored_step

    @property
    def seed(self) -> int:
        """Seed of the run: the config's, or the one that was drawn at its first start."""
        return self.__parts.seed

    @property
    def model_dir(self) -> str:
        """Folder of the run."""
        return self.__config.model_dir

    @property
    def config(self) -> config.TrainerConfig:
        """The settings."""
        return self.__config

    @property
    def checkpoints(self) -> list[int]:
        """Steps of the complete checkpoints on the disk, ascending."""
        return self.__parts.store.complete()

    @property
    def compiled_step(self) -> Any:
        """The train step as TensorFlow's concrete function."""
        return self.__parts.compiled_step.function

    def state(self) -> dict[str, tf.Tensor]:
        """Returns everything that a checkpoint of this step would hold, by name."""
        return self.__parts.content.collect(self.__parts.step)

    def __run_steps(self, end: ending.Ending) -> compiled.Call:
        """Runs steps in the graph up to the next boundary that needs Python."""
        parts, saver = self.__parts, self.__saver
        hook_step, save_step = parts.hooks.next_boundary(parts.step), saver.next_step(parts.step)
        boundaries, waited_for = (end.next_step, hook_step, save_step), saver.waits or end.waits
        return stepping.to_next_boundary(parts, self.__pace, boundaries, waited_for=waited_for)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_Trainer__"):
            made = type(self).__name__
            raise errors.TrainerError(
                f"{made} is not constructed: its __init__ never called, or has not yet finished, "
                "super().__init__; end it with\n"
                "    super().__init__(config, hooks=hooks, strategy=strategy)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
