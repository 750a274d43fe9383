"""Why a run ends.

Owns the goal of a `train()` and the reasons for which it is over. Promises that a stop that a hook
asked for is kept in the state, and that each reason is said in one line. Refuses to run a step.
"""

from __future__ import annotations

import dataclasses

from trainer import config, errors
from trainer.base import arguments, clock
from trainer.base.log import LOG
from trainer.graph import compiled
from trainer.hooks import context
from trainer.run import construction, signals
from trainer.state import optimizer_settings


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Args:
        step: completed steps, over all resumes.
        reason: "finished", "already_finished", "stopped" (a hook asked), "out_of_data",
            "time_budget" (`max_secs`), "preempted" (SIGTERM) or "interrupted" (SIGINT).
        exit_code: status for the process: 75 ("run me again") for "preempted", 130 for
            "interrupted", 0 for the others.
    """

    step: int
    reason: str
    exit_code: int = 0


@dataclasses.dataclass(frozen=True)
class Goal:
    """What one `train()` was asked for.

    Args:
        step: the step to end at; None: at the end of the data.
        more: asked for as so many steps more, which overrules an earlier stop.
        secs: seconds of training, over all resumes; None: no bound.
        until: when the time of this process is over, on the monotonic clock; None: never.
    """

    step: int | None
    more: bool
    secs: float | None = None
    until: float | None = None


def goal(
    here: int,
    max_steps: int | None,
    steps: int | None,
    settings: config.TrainerConfig,
    constructed: float,
) -> Goal:
    """Returns the goal that arguments and config describe.

    Args:
        here: completed steps.
        max_steps: argument of `train()`.
        steps: argument of `train()`.
        settings: the config.
        constructed: when the trainer was, on the monotonic clock.

    Raises:
        ValueError: both arguments are given, one is below 1, or no end is given anywhere.
    """
    max_steps = arguments.count("max_steps", max_steps)
    steps = arguments.count("steps", steps)
    if max_steps is not None and steps is not None:
        raise ValueError(
            f"train(max_steps={max_steps}, steps={steps}): give one of them: max_steps is a total, "
            "steps counts from here"
        )
    process_secs = settings.max_process_secs
    until = None if process_secs is None else constructed + process_secs
    if steps is not None:
        LOG.info("training %d more steps, from step %d to %d", steps, here, here + steps)
        return Goal(here + steps, True, settings.max_secs, until)
    total = settings.max_steps if max_steps is None else max_steps
    if total is None and settings.epochs is None and settings.max_secs is None:
        raise ValueError(
            "no end is given: set max_steps, epochs or max_secs in the config, or call "
            "train(max_steps=...) or train(steps=...)"
        )
    return Goal(total, False, settings.max_secs, until)


class Ending:
    """The reasons for which one `train()` is over.

    Args:
        wanted: the goal.
        parts: the trainer's parts.
        ctx: the context of the hooks.
        watch: the signals.
    """

    def __init__(
        self,
        wanted: Goal,
        parts: construction.Parts,
        ctx: context.RunContext,
        watch: signals.Watch,
    ):
        self._goal = wanted
        self._parts = parts
        self._ctx = ctx
        self._watch = watch

    @property
    def next_step(self) -> int | None:
        """The step at which a call must end for the goal, or for a stop that was asked for."""
        return self._goal.step if self._ctx.stop is None else self._parts.step + 1

    @property
    def waits(self) -> bool:
        """Whether the run may come to its end at a time and not at a step."""
        return self._goal.secs is not None or self._goal.until is not None

    def save_asked(self) -> bool:
        """Tells whether a signal asked for a save since this was called last."""
        asked, self._watch.save = self._watch.save, False
        return asked

    def before(self) -> str | None:
        """Returns why there is nothing to train, or None."""
        parts, wanted = self._parts, self._goal.step
        if wanted is not None and parts.step >= wanted:
            if parts.step == wanted:
                LOG.info("already at step %d of %d: nothing to train", parts.step, wanted)
            else:
                LOG.info(
                    "the checkpoint is at step %d, past the target of %d: nothing to train",
                    parts.step,
                    wanted,
                )
            return "already_finished"
        stop = parts.content.stop
        if stop is not None and not self._goal.more and not _is_further(wanted, stop["target"]):
            LOG.info(
                "hook %s stopped this run at step %d (%s): nothing to train; a larger max_steps or "
                "train(steps=...) goes on",
                stop["hook"],
                stop["step"],
                stop["reason"],
            )
            return "already_finished"
        parts.content.stop = None
        if wanted is not None:
            optimizer_settings.warn_of_ended_schedules(parts.content.optimizers, wanted)
        return None

    def asked_for(self, save_secs: float = 0.0) -> str | None:
        """Returns why the run is to end after this step, or None.

        Args:
            save_secs: how long the last save is expected to take, for the bound of time.
        """
        parts, ctx = self._parts, self._ctx
        if ctx.stop is not None:
            if parts.content.stop is None:
                parts.content.stop = {**ctx.stop, "step": parts.step, "target": self._goal.step}
                LOG.info("hook %s asked to stop (%s)", ctx.stop["hook"], ctx.stop["reason"])
            return "stopped"
        if self._watch.stop is not None:
            return signals.STOP[self._watch.stop][0]
        trained = parts.stopwatch.read()
        if self._goal.secs is not None and trained + save_secs >= self._goal.secs:
            LOG.info("time budget reached: %.4g of max_secs=%.4g s", trained, self._goal.secs)
            return "time_budget"
        if self._goal.until is not None and clock.now() + save_secs >= self._goal.until:
            LOG.info("the time of this process (max_process_secs) is used up")
            return "preempted"
        return None

    def after_call(self, call: compiled.Call) -> str | None:
        """Returns the reason for which the run is over after a compiled call, or None.

        Raises:
            ValueError: the data gave no batch at all.
        """
        parts, wanted = self._parts, self._goal.step
        if self._ctx.stop is not None:
            return self.asked_for()
        if wanted is not None and parts.step >= wanted:
            return "finished"
        if call.steps or not call.ended:
            return None  # if the data has ended, the next call will tell
        if parts.step == 0:
            raise ValueError("train_dataset() gave no batch; give it at least one")
        if wanted is None:
            return "finished" if parts.step > self._ctx.start_step else "already_finished"
        LOG.warning("the data ended early, after step %d of %d", parts.step, wanted)
        return "out_of_data"

    def at_last(self, reason: str) -> str:
        """Returns the reason of the end, now that a hook may have asked to stop at last."""
        if reason == "already_finished" or self._ctx.stop is None:
            return reason  # if nothing was trained, there is nothing to keep
        return self.asked_for() or reason

    def may_save(self, save_secs: float, grace_secs: float) -> bool:
        """Tells whether to save at the end: not if a signal came before anything was trained, or
        leaves too little time.

        Args:
            save_secs: how long the last save took.
            grace_secs: the config's.
        """
        stop, parts = self._watch.stop, self._parts
        if stop is None:
            return True
        if parts.step == self._ctx.start_step:
            return False
        left = grace_secs - (clock.now() - self._watch.asked_at)
        if save_secs <= left:
            return True
        LOG.warning(
            "not saved at step %d: the save before took %.3g s, and of grace_secs=%.3g %.3g s are "
            "left since %s",
            parts.step,
            save_secs,
            grace_secs,
            left,
            stop.name,
        )
        return False

    def cut_short(self, error: errors.EvaluationStoppedError) -> str:
        """Returns the reason of the end after a hook that a stop signal left no time.

        Args:
            error: what ended it; the hooks after it were not called, so the step is not saved.
        """
        LOG.warning("not saved at step %d: %s", self._parts.step, error)
        assert self._watch.stop is not None
        return signals.STOP[self._watch.stop][0]

    def failed(self, error: BaseException, stands: str) -> None:
        """Says that an error ended the run, in the journal and in the log.

        Args:
            error: the error.
            stands: what a resume would find, in words.
        """
        parts, said = self._parts, errors.brief(error)
        parts.journal.note("stop", step=parts.step, reason="error", error=said)
        LOG.error("run ended at step %d by %s; %s", parts.step, said, stands)

    def result(self, reason: str) -> RunResult:
        """Returns the result, after its line in the journal."""
        parts = self._parts
        codes = dict(signals.STOP.values())
        if reason in codes and self._watch.stop is not None:
            self._watch.honoured = True
            parts.journal.note("preemption", step=parts.step, signal=self._watch.stop.name)
        parts.journal.note("stop", step=parts.step, reason=reason)
        return RunResult(parts.step, reason, codes.get(reason, 0))


def _is_further(wanted: int | None, stopped: int | None) -> bool:
    return wanted is not None and stopped is not None and wanted > stopped
