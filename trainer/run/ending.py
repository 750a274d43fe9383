"""How a run ends.

Owns the reasons for which one `train()` is over, and the one way out that all ends take:

    wind_up(reason)   the save in flight is taken in, a hook's request to stop is kept in the state,
                      and the state is saved, unless it is already or a signal leaves no time
    close(outcome)    after `wind_up`, or after an error instead of it: each hook's `end`, the lines
                      in journal and log; then it returns, or raises what ended the run

Promises that a question changes nothing; that an error reaches the caller, be it that of a save in
flight when a signal cut the run short; and that the journal has a line for every end. Refuses to
run a step.
"""

from __future__ import annotations

import dataclasses

from trainer import errors
from trainer.base import clock, probe
from trainer.base.log import LOG
from trainer.graph import compiled
from trainer.hooks import context
from trainer.journal.reasons import Reason
from trainer.run import saving, signals, witness
from trainer.run.goal import Goal
from trainer.run.parts import Parts
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


class Ending:
    """The end of one `train()`.

    Args:
        wanted: the goal.
        parts: the trainer's parts.
        saver: the saves.
        ctx: the context of the hooks.
        requests: what signals ask for.
        grace_secs: the config's.
    """

    def __init__(
        self,
        wanted: Goal,
        parts: Parts,
        saver: saving.Saver,
        ctx: context.RunContext,
        *,
        requests: signals.Watch,
        grace_secs: float,
    ):
        self._goal = wanted
        self._parts = parts
        self._saver = saver
        self._ctx = ctx
        self._requests = requests
        self._grace_secs = grace_secs
        self._witness = witness.Witness(parts)

    @property
    def next_step(self) -> int | None:
        """The step at which a call must end for the goal, or for a stop that was asked for."""
        step = self._parts.progress.step
        end = self._goal.step if self._ctx.stop is None else step + 1
        return probe.boundary(self._parts.store.folder, step, end)

    @property
    def waits(self) -> bool:
        """Whether the run may come to its end at a time and not at a step."""
        return self._goal.secs is not None or self._goal.until is not None

    def before_training(self) -> Reason | None:
        """Returns why there is nothing to train, or None: then an earlier stop is overruled."""
        content, wanted, step = self._parts.content, self._goal.step, self._parts.progress.step
        probe.at(probe.STEP, self._parts.store.folder, step)
        if wanted is not None and step >= wanted:
            if step == wanted:
                LOG.info("already at step %d of %d: nothing to train", step, wanted)
            else:
                LOG.info(
                    "the checkpoint is at step %d, past the target of %d: nothing to train",
                    step,
                    wanted,
                )
            return Reason.ALREADY_FINISHED
        stop = content.stop
        if stop is not None and not self._goal.more and not _is_further(wanted, stop["target"]):
            LOG.info(
                "hook %s stopped this run at step %d (%s): nothing to train; a larger max_steps or "
                "train(steps=...) goes on",
                stop["hook"],
                stop["step"],
                stop["reason"],
            )
            return Reason.ALREADY_FINISHED
        content.stop = None
        if wanted is not None:
            optimizer_settings.warn_of_ended_schedules(content.optimizers, wanted)
        return None

    def asked_for(self) -> Reason | None:
        """Returns why the run is to end after this step by somebody's wish, or None."""
        if self._ctx.stop is not None:
            return Reason.STOPPED
        if self._requests.stop is not None:
            return signals.reason_of(self._requests.stop)
        save_secs = self._saver.expected_secs  # the last save is within the bound
        trained = self._parts.stopwatch.read()
        if self._goal.secs is not None and trained + save_secs >= self._goal.secs:
            return Reason.TIME_BUDGET
        if self._goal.until is not None and clock.now() + save_secs >= self._goal.until:
            return Reason.PREEMPTED
        return None

    def after_call(self, call: compiled.Call) -> Reason | None:
        """Returns the reason for which the run is over after a compiled call, or None.

        Raises:
            ValueError: the data gave no batch at all.
        """
        step, wanted = self._parts.progress.step, self._goal.step
        self._witness.saw(call)
        if self._ctx.stop is not None:
            return Reason.STOPPED
        if wanted is not None and step >= wanted:
            return Reason.FINISHED
        if call.steps or not call.ended:
            return None  # if the data has ended, the next call will tell
        if step == 0:
            raise ValueError("train_dataset() gave no batch; give it at least one")
        if wanted is not None:
            return Reason.OUT_OF_DATA
        return Reason.FINISHED if step > self._ctx.start_step else Reason.ALREADY_FINISHED

    def wind_up(self, reason: Reason) -> Reason:
        """Saves the state in which the run ends.

        Args:
            reason: of the end.

        Returns:
            The reason, now that a hook may have asked to stop at last.
        """
        self._saver.settle(self._ctx)
        self._say(reason)
        if self._ctx.stop is not None and reason is not Reason.ALREADY_FINISHED:
            reason = Reason.STOPPED
        may_save = self._may_save()
        if not may_save and self._is_unsaved() and self._requests.stop is not None:
            return signals.reason_of(self._requests.stop)  # "run me again", whatever the goal was
        if reason is Reason.STOPPED:
            self._keep_stop()
        if may_save:
            self._saver.save_last(self._ctx)
        return reason

    def close(self, outcome: Reason | BaseException) -> RunResult:
        """Ends the run: the way out of every one of them.

        Args:
            outcome: what `wind_up` returned, or what was raised instead.

        Raises:
            BaseException: what ended the run, or a hook's `end`.
        """
        reason, error = self._judged(outcome)
        ctx, step = self._ctx, self._parts.progress.step
        ctx.error, ctx.saved_step = error, self._saver.newest()
        state = self._witness.state() if error is None else None
        error = self._parts.hooks.end(ctx) or error
        stands, said = self._saver.in_words(), {}
        if error is not None:
            said = {"error": errors.brief(error)}
            LOG.error("run ended at step %d by %s; %s", step, said["error"], stands)
        stopped = self._requests.honour() if reason is not None and reason.exit_code else None
        if stopped is not None:
            self._parts.journal.note("preemption", step=step, signal=stopped.name)
        self._parts.journal.note("stop", step=step, reason=str(reason or "error"), **said)
        self._witness.tell(state, reason=reason and str(reason), error=error)
        if error is not None:
            raise error
        assert reason is not None
        LOG.info("%s at step %d; %s", str(reason).replace("_", " "), step, stands)
        return RunResult(step, str(reason), reason.exit_code)

    def _judged(
        self, outcome: Reason | BaseException
    ) -> tuple[Reason | None, BaseException | None]:
        """Returns the reason of the end, or the error that ended it."""
        if isinstance(outcome, Reason):
            return outcome, None
        if not isinstance(outcome, errors.EvaluationStoppedError) or self._requests.stop is None:
            return None, outcome
        # The hooks after it were not called, so the step is not saved; one in flight may stand.
        LOG.warning("not saved at step %d: %s", self._parts.progress.step, outcome)
        try:
            self._saver.settle(self._ctx, last=True)
        except Exception as error:  # whatever became of that save must reach the caller
            return None, error
        return signals.reason_of(self._requests.stop), None

    def _say(self, reason: Reason) -> None:
        goal, step = self._goal, self._parts.progress.step
        if reason is Reason.TIME_BUDGET:
            trained = self._parts.stopwatch.read()
            LOG.info("time budget reached: %.4g of max_secs=%.4g s", trained, goal.secs)
        elif reason is Reason.PREEMPTED and self._requests.stop is None:
            LOG.info("the time of this process (max_process_secs) is used up")
        elif reason is Reason.OUT_OF_DATA:
            LOG.warning("the data ended early, after step %d of %d", step, goal.step)

    def _keep_stop(self) -> None:
        """Puts the stop that a hook asked for into the state, so that it travels in it."""
        ctx, step = self._ctx, self._parts.progress.step
        assert ctx.stop is not None
        self._parts.content.stop = {**ctx.stop, "step": step, "target": self._goal.step}
        LOG.info("hook %s asked to stop (%s)", ctx.stop["hook"], ctx.stop["reason"])

    def _is_unsaved(self) -> bool:
        """Tells whether steps were trained that no checkpoint holds."""
        step = self._parts.progress.step
        return step not in (self._ctx.start_step, self._saver.saved_step)

    def _may_save(self) -> bool:
        """Tells whether to save at the end: not if a signal came before anything was trained, or
        leaves too little time."""
        stop, step = self._requests.stop, self._parts.progress.step
        if stop is None:
            return True
        if step == self._ctx.start_step:
            return False
        save_secs = self._saver.expected_secs
        left = self._grace_secs - (clock.now() - self._requests.asked_at)
        if save_secs <= left:
            return True
        LOG.warning(
            "not saved at step %d: the save before took %.3g s, and of grace_secs=%.3g %.3g s are "
            "left since %s",
            step,
            save_secs,
            self._grace_secs,
            left,
            stop.name,
        )
        return False


def _is_further(wanted: int | None, stopped: int | None) -> bool:
    return wanted is not None and stopped is not None and wanted > stopped
