"""The trainer: what a user fills in, and the loop.

Owns the order of things: construct (lock, seed, build, trace, check, restore), then train (hooks,
compiled steps, saves). Promises the ten invariants of BUILD.md, above all that an interrupted run
ends bit for bit where the unbroken run would have ended. Refuses details: each is a call into the
file that owns it, all of them in `trainer.run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer import config, errors
from trainer.base import arguments, clock, probe
from trainer.base.log import make_visible
from trainer.fingerprint import threads
from trainer.hooks import context
from trainer.hooks.hook import Hook
from trainer.journal.reasons import Reason
from trainer.run import (
    construction,
    ending,
    evaluation,
    goal,
    inside,
    members,
    preflight,
    retry,
    rollback,
    saving,
    signals,
    stepping,
)
from trainer.run.parts import go_back
from trainer.state import seeds


class Trainer(members.Guarded):
    """A training run that can be killed at any moment and started again with the same program.

    Derive a class and fill in `build`, `train_dataset` and `train_step`; other names are reserved:

        class Line(trainer.Trainer):
            def build(self):
                self.w = tf.Variable(0.0)

            def train_dataset(self):
                return trainer.data.Indexed(np.arange(100, dtype="float32"), batch_size=10)

            def train_step(self, x):
                loss = tf.reduce_mean((self.w * x - 3 * x) ** 2)
                self.w.assign_sub(1e-4 * tf.reduce_mean(2 * x * (self.w * x - 3 * x)))
                return {"loss": loss}

        with Line(trainer.TrainerConfig("runs/line", max_steps=200)) as line:
            line.train()  # killed at any moment, the same two lines go on where they were

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
        constructed, settings = clock.now(), preflight.settings(config)
        threads.adopt(settings.model_dir, settings.intra_op_threads)  # before the first operation
        placed = preflight.one_device(strategy)
        with placed.scope():
            counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        made = inside.put(self, inside.Inside(settings, placed, counter, constructed))
        with signals.watch(stops=settings.stop_signals):
            made.assembled = construction.assemble(
                self, settings, placed, counter, hooks, methods=frozenset(vars(Trainer))
            )
        made.saver = saving.Saver(settings, made.parts)
        made.stepper = stepping.Stepper(made.parts, settings.steps_per_call)

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
            TrainerError: another `train()` is on.
            NonFiniteError: an output of a step was NaN or infinite.
            SaveError: saves failed, as `config.on_save_error` says.
            Exception: what a step or a hook raised, with hook and step in a note.
        """
        here, parts = inside.of(self), inside.of(self).parts
        here.refuse_while_running("train()")
        parts.store.check_owned()
        parts.loop.resume()  # a signal may have come after the last step of an earlier run
        settings, step = here.settings, parts.progress.step
        wanted = goal.goal(step, max_steps, steps, settings, here.constructed)
        ctx = here.context(self)
        with here.run(), signals.watch(parts.loop.interrupt, stops=settings.stop_signals) as asked:
            end = ending.Ending(
                wanted, parts, here.saver, ctx, requests=asked, grace_secs=settings.grace_secs
            )
            outcome: Reason | BaseException
            try:
                with parts.stopwatch:
                    outcome = _train(here, ctx, end, asked)
            except BaseException as error:
                outcome = error
            return end.close(outcome)

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
        here, parts = inside.of(self), inside.of(self).parts
        with here.strategy.scope(), seeds.lent(parts.seed):
            iterator = iter(self.eval_dataset())
            if here.evaluator is None:
                here.evaluator = evaluation.Evaluator(self.eval_step, iterator)
            protected = [entry.variable for entry in parts.content.variables.entries.values()]
            left = here.settings.grace_secs - here.saver.expected_secs
            with probe.inside(probe.EVALUATION, self.model_dir, self.step):
                return here.evaluator.run(iterator, steps, protected, left)

    def save(self) -> int:
        """Saves now, whatever the interval says; on the disk when it returns.

        Returns:
            The step that was saved.

        Raises:
            SaveError: it could not be written, or the state is not that of a whole step.
            TrainerError: called from `before_step` or `after_step`, where hooks of the same step
                may still have to run.
        """
        here = inside.of(self)
        moment = here.parts.hooks.under_way
        if moment is not None:
            raise errors.TrainerError(
                f"save() inside {moment} would miss the hooks that still have to run; use "
                "save_every_steps, or call it between two train() calls"
            )
        here.saver.save()
        return self.step

    def restore(self, step: int) -> None:
        """Goes back to an older checkpoint; the newer ones are set aside, never resumed.

        Args:
            step: one of `checkpoints`.

        Raises:
            ValueError: there is no checkpoint of that step.
            DamagedCheckpointError, CheckpointMismatchError: it cannot be used; nothing changed.
            TrainerError: a `train()` is on.
        """
        here = inside.of(self)
        here.refuse_while_running("restore()")
        here.saver.wait()
        go_back(here.parts, int(step))
        here.saver.went_back()

    def register_hook(self, hook: Hook) -> None:
        """Adds a hook after the others; it gets its saved state at once.

        Args:
            hook: the hook.

        Raises:
            ValueError: it is no hook, or its name is taken.
            TrainerError: a `train()` is on.
        """
        inside.of(self).refuse_while_running("register_hook()")
        construction.add_hook(inside.of(self).parts, hook)

    def close(self) -> None:
        """Waits for a save in flight and gives the run folder back; no more saves after it."""
        here = inside.of(self)
        here.saver.wait()
        here.parts.store.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def step(self) -> int:
        """Completed steps, over all resumes; an int64 tensor while a step is being compiled."""
        if tf.inside_function():
            return inside.begun(self).counter.read_value()  # type: ignore[no-any-return]
        return inside.of(self).parts.progress.step

    @property
    def restored_step(self) -> int | None:
        """Step of the checkpoint that was restored last, or None if there was none."""
        return inside.of(self).parts.progress.restored_step

    @property
    def seed(self) -> int:
        """Seed of the run: the config's, or the one that was drawn at its first start."""
        return inside.of(self).parts.seed

    @property
    def model_dir(self) -> str:
        """Folder of the run."""
        return self.config.model_dir

    @property
    def config(self) -> config.TrainerConfig:
        """The settings."""
        return inside.begun(self).settings

    @property
    def checkpoints(self) -> list[int]:
        """Steps of the complete checkpoints on the disk, ascending."""
        return inside.of(self).parts.store.complete()

    @property
    def compiled_step(self) -> Any:
        """The train step as TensorFlow's concrete function."""
        return inside.of(self).parts.compiled_step.function

    def state(self) -> dict[str, tf.Tensor]:
        """Returns everything that a checkpoint of this step would hold, by name."""
        return inside.of(self).parts.content.collect()


def _train(
    here: inside.Inside, ctx: context.RunContext, end: ending.Ending, requests: signals.Watch
) -> Reason:
    """Trains until there is a reason to end, saves, and returns the reason."""
    parts, saver = here.parts, here.saver
    undoing = rollback.Rollback(parts, saver, here.settings, requests)
    retrying, reason = retry.Retry(parts, saver), end.before_training()
    if reason is None:
        parts.loop.prepare(parts.progress.source.iterator)
        parts.journal.note("train", step=parts.progress.step)
    parts.hooks.begin(ctx)
    undoing.make_possible(reason)
    while True:
        try:
            return _until_end(here, ctx, end, requests, reason)
        except (errors.NonFiniteError, errors.StepRefusedError) as error:
            undoing.undo(error)
        except tf.errors.OpError as error:
            retrying.again(error)
        ctx.show_step(parts.progress.step, behind=0)


def _until_end(
    here: inside.Inside,
    ctx: context.RunContext,
    end: ending.Ending,
    requests: signals.Watch,
    reason: Reason | None,
) -> Reason:
    """Trains until there is a reason to end or an error: the loop."""
    parts, saver, stepper = here.parts, here.saver, here.stepper
    reason = reason or end.asked_for()
    while reason is None:
        stepper.call_before(ctx)
        step = parts.progress.step
        boundaries = end.next_step, parts.hooks.next_boundary(step), saver.next_step(step)
        call = stepper.run(boundaries, waited_for=saver.waits or end.waits)
        stepper.call_after(call, ctx, saver.newest)
        reason = end.after_call(call)
        if reason is None:
            parts.loop.resume()  # first: what is asked for from here on ends the next call
            reason = end.asked_for()  # before a save, for which a signal may leave no time
        if reason is None:
            saver.at_boundary(ctx, asked=requests.take_save())
            reason = end.asked_for()
    return end.wind_up(reason)
