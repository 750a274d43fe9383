"""The trainer: what a user fills in, and the loop.

Owns the order of things: construct (lock, seed, build, trace, check, restore), then train (hooks,
compiled steps, saves). Promises the ten invariants of BUILD.md, above all that an interrupted run
ends bit for bit where the unbroken run would have ended. Refuses details: each is a call into the
file that owns it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from trainer import (
    assembly,
    clock,
    compiled,
    config,
    errors,
    evaluation,
    history,
    hooks,
    saving,
)
from trainer.log import LOG, make_visible


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Args:
        step: completed steps, over all resumes.
        reason: "finished", "already_finished", "stopped" (a hook asked) or "out_of_data".
        exit_code: status for the process; 0 for each of these.
    """

    step: int
    reason: str
    exit_code: int = 0


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
        hooks: Sequence[hooks.Hook] = (),
        strategy: tf.distribute.Strategy | None = None,
    ):
        make_visible()
        self.__config = assembly.checked_config(config)
        self.__strategy = assembly.checked_strategy(strategy)
        with self.__strategy.scope():
            self.__counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self.__parts = assembly.assemble(
            self, self.__config, self.__strategy, self.__counter, hooks
        )
        self.__saver = saving.Saver(self, self.__config, self.__parts)
        self.__pace = compiled.Pace(self.__config.steps_per_call)
        self.__evaluator: evaluation.Evaluator | None = None
        self.__in_step_hooks = False

    # What a user fills in.

    def build(self) -> None:
        """Makes the model, the optimizer and whatever else holds variables, as attributes."""

    def train_dataset(self) -> tf.data.Dataset:
        """Returns the training data as batches."""
        raise NotImplementedError(f"{type(self).__name__} must define train_dataset(self)")

    def train_step(self, batch: Any) -> dict[str, tf.Tensor]:
        """Trains on one batch; compiled once.

        Args:
            batch: one element of the dataset.

        Returns:
            Name to scalar.
        """
        raise NotImplementedError(f"{type(self).__name__} must define train_step(self, batch)")

    def eval_dataset(self) -> tf.data.Dataset:
        """Returns the data for `evaluate`, as batches; each evaluation starts at its beginning."""
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

    def train(self, max_steps: int | None = None, *, steps: int | None = None) -> RunResult:
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
        target = self.__target(max_steps, steps)
        ctx = hooks.RunContext(self, parts.step, saver.saved_step, parts.history.between)
        reason = self.__done_before(target, more=steps is not None)
        try:
            with parts.stopwatch:
                parts.hooks.begin(ctx)
                reason = reason or self.__asked_to_stop(ctx, target)
                while reason is None:
                    self.__step_hooks(parts.hooks.before_step, ctx)
                    call = self.__run_steps(target)
                    ctx.step, ctx.outputs = parts.step, history.Outputs(call.outputs)
                    if call.steps:
                        self.__step_hooks(parts.hooks.after_step, ctx)
                    reason = self.__reason_to_stop(ctx, call, target)
                    if reason is None and saver.is_due():
                        saver.save_periodic(ctx)
                        reason = self.__asked_to_stop(ctx, target)
                saver.save_last(ctx)
        except BaseException as error:
            ctx.error = error
            LOG.error("run ended at step %d by %s; %s", parts.step, _brief(error), saver.stands())
            raise
        finally:
            parts.hooks.end(ctx)
        LOG.info("%s at step %d", reason.replace("_", " "), parts.step)
        return RunResult(parts.step, reason)

    def evaluate(self, steps: int | None = None) -> dict[str, float]:
        """Returns the mean of each output of `eval_step`, weighted by batch size.

        Nothing of the training changes: variables that `eval_step` writes get their values back.

        Args:
            steps: batches at most; None: all.

        Raises:
            ValueError: `steps` is below 1, or there was no batch.
        """
        _check_count("steps", steps)
        with self.__strategy.scope():
            iterator = iter(self.eval_dataset())
            if self.__evaluator is None:
                self.__evaluator = evaluation.Evaluator(self.eval_step, iterator)
            variables = self.__parts.content.variables.entries.values()
            return self.__evaluator.run(iterator, steps, [entry.variable for entry in variables])

    def save(self) -> int:
        """Saves now, whatever the interval says; on the disk when it returns.

        Returns:
            The step that was saved.

        Raises:
            SaveError: it could not be written, or the state is not that of a whole step.
            TrainerError: called from `before_step` or `after_step`, where hooks of the same step
                may still have to run.
        """
        if self.__in_step_hooks:
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
        assembly.go_back(self.__parts, step)
        self.__saver.saved_step = step

    def register_hook(self, hook: hooks.Hook) -> None:
        """Adds a hook after the others; it gets its saved state at once.

        Args:
            hook: the hook.

        Raises:
            ValueError: it is no hook, or its name is taken.
        """
        assembly.add_hook(self, self.__parts, hook)

    def close(self) -> None:
        """Gives the run folder back; the object can no longer save."""
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

    # The details of `train`, in the order in which they are used.

    def __target(self, max_steps: int | None, steps: int | None) -> int | None:
        """Returns the step to end at; None: at the end of the data."""
        _check_count("max_steps", max_steps)
        _check_count("steps", steps)
        if max_steps is not None and steps is not None:
            raise ValueError(
                f"train(max_steps={max_steps}, steps={steps}): give one of them: max_steps is a "
                "total, steps counts from here"
            )
        here = self.__parts.step
        if steps is not None:
            LOG.info("training %d more steps, from step %d to %d", steps, here, here + steps)
            return here + steps
        target = self.__config.max_steps if max_steps is None else max_steps
        if target is None and self.__config.epochs is None:
            raise ValueError(
                "no end is given: set max_steps or epochs in the config, or call "
                "train(max_steps=...) or train(steps=...)"
            )
        return target

    def __done_before(self, target: int | None, *, more: bool) -> str | None:
        """Returns "already_finished" if there is nothing to train."""
        parts = self.__parts
        if target is not None and parts.step >= target:
            at = (
                "already at step %d of %d"
                if parts.step == target
                else ("the checkpoint is at step %d, past the target of %d")
            )
            LOG.info(f"{at}: nothing to train", parts.step, target)
            return "already_finished"
        stop = parts.content.stop
        if stop is None:
            return None
        further = target is not None and (stop["target"] is None or target <= stop["target"])
        if not more and (further or target is None):
            LOG.info(
                "hook %s stopped this run at step %d (%s): nothing to train; a larger max_steps "
                "or train(steps=...) goes on",
                stop["hook"],
                stop["step"],
                stop["reason"],
            )
            return "already_finished"
        parts.content.stop = None
        return None

    def __step_hooks(self, call: Callable[..., None], ctx: hooks.RunContext) -> None:
        self.__in_step_hooks = True
        try:
            call(ctx)
        finally:
            self.__in_step_hooks = False

    def __run_steps(self, target: int | None) -> compiled.Call:
        """Runs steps in the graph up to the next boundary that needs Python."""
        parts, step = self.__parts, self.__parts.step
        if parts.torn is not None:
            raise errors.TrainerError(
                f"{parts.torn}, so the state in memory is that of no whole step; construct the "
                "trainer again or call restore()"
            )
        boundaries = (target, parts.hooks.next_boundary(step), self.__saver.next_step(step))
        boundary = min((b for b in boundaries if b is not None), default=step + self.__pace.most)
        begun = clock.now()
        parts.torn = f"step {step + 1} or a later one was interrupted"
        try:
            limit = self.__pace.limit(boundary - step)
            call = parts.loop.run(parts.source.iterator, limit)
            if not call.steps and parts.source.open_next_epoch():
                call = parts.loop.run(parts.source.iterator, limit)
        except BaseException as error:
            failed = int(self.__counter) + 1
            parts.torn = f"step {failed} raised {type(error).__name__}"
            errors.add_note(error, f"raised by train_step at step {failed}")
            raise
        self.__pace.took(call.steps, clock.now() - begun)
        parts.history.add(step + 1, call.steps, call.series)
        parts.history.forget_before(parts.hooks.history_start(step))
        parts.step += call.steps
        parts.source.drawn(call.steps)
        self.__check_finite(call)
        parts.torn = None
        return call

    def __check_finite(self, call: compiled.Call) -> None:
        if call.finite:
            return
        step = self.__parts.step
        self.__parts.torn = f"step {step} returned an output that is not finite"
        for name, value in call.outputs.items():
            if value.dtype.is_floating and not bool(tf.math.is_finite(value)):
                raise errors.NonFiniteError(step, name, float(value), self.__saver.saved_step)

    def __asked_to_stop(self, ctx: hooks.RunContext, target: int | None) -> str | None:
        if ctx.stop is None:
            return None
        self.__parts.content.stop = {**ctx.stop, "step": self.__parts.step, "target": target}
        LOG.info("hook %s asked to stop (%s)", ctx.stop["hook"], ctx.stop["reason"])
        return "stopped"

    def __reason_to_stop(
        self, ctx: hooks.RunContext, call: compiled.Call, target: int | None
    ) -> str | None:
        step = self.__parts.step
        if ctx.stop is not None:
            return self.__asked_to_stop(ctx, target)
        if target is not None and step >= target:
            return "finished"
        if call.steps or not call.ended:
            return None  # if the data has ended, the next call will tell
        if step == 0:
            raise ValueError("train_dataset() gave no batch; give it at least one")
        if target is None:
            return "finished" if step > ctx.start_step else "already_finished"
        LOG.warning("the data ended early, after step %d of %d", step, target)
        return "out_of_data"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_Trainer__"):
            made = type(self).__name__
            raise errors.TrainerError(
                f"{made} is not constructed: its __init__ never called, or has not yet finished, "
                "super().__init__; end it with\n"
                "    super().__init__(config, hooks=hooks, strategy=strategy)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _check_count(name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{name} must be a whole number of at least 1 or None, got {value!r}")


def _brief(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
