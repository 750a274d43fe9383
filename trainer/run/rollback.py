"""Undoing a step that did harm.

Owns the way back: to the newest checkpoint, with the batch that did it left out for good. Promises
that it is the batch that did it: outputs are often computed before the update that spoils the
state, and then a later step is the first to show it, so the steps since the checkpoint are run
once more, one by one, and looked at. Refuses to go back without end (`max_rollbacks`).
"""

from __future__ import annotations

from trainer import config, errors
from trainer.base.log import LOG
from trainer.run import saving, signals, stepping
from trainer.run.parts import Parts, go_back


class Rollback:
    """The rollbacks of one `train()`, which count over all of the run.

    Args:
        parts: the trainer's parts.
        saver: the saves.
        settings: the config.
        requests: what signals ask for: a stop ends the search for a batch.
    """

    def __init__(
        self,
        parts: Parts,
        saver: saving.Saver,
        settings: config.TrainerConfig,
        requests: signals.Watch,
    ):
        self._parts = parts
        self._requests = requests
        self._saver = saver
        self._wanted = settings.on_nonfinite == "rollback"
        self._most = settings.max_rollbacks

    def make_possible(self, reason: str | None) -> None:
        """Saves the state before the first step, if it may be needed and no checkpoint is there.

        Args:
            reason: why there is nothing to train, or None.
        """
        needed = self._wanted or self._parts.hooks.may_refuse
        if needed and reason is None and self._saver.newest() is None:
            self._saver.save()

    def undo(self, error: errors.NonFiniteError | errors.StepRefusedError) -> None:
        """Goes back to the newest checkpoint and leaves out the batch that did it.

        Args:
            error: what happened; raised again if it is not to be undone.
        """
        asked = isinstance(error, errors.StepRefusedError)
        newest = self._saver.newest()
        if not (self._wanted or asked) or newest is None:
            raise error
        left_out = self._parts.content.left_out
        if len(left_out) >= self._most:
            errors.add_note(
                error,
                f"max_rollbacks={self._most} are used up: steps {left_out} were undone and their "
                "batches left out",
            )
            raise error
        self._go_back(newest, left_out)
        step = error.step if asked else self._find(error.step)
        if step is None:
            self._go_back(newest, left_out)
            LOG.warning("the search for the batch was ended by a stop signal; back at %d", newest)
            return
        self._go_back(newest, sorted({*left_out, step}))
        LOG.warning(
            "%s; back at checkpoint %d, batch %d is left out from now on (rollback %d of %d)",
            str(error).split(";")[0],
            newest,
            step,
            len(self._parts.content.left_out),
            self._most,
        )
        self._parts.journal.note("rollback", step=newest, left_out=step, error=errors.brief(error))

    def _go_back(self, step: int, left_out: list[int]) -> None:
        go_back(self._parts, step)
        self._saver.went_back()
        self._parts.content.left_out = left_out

    def _find(self, shown: int) -> int | None:
        """Returns the first step up to `shown` that leaves an output or the state not finite.

        None if a stop signal came first: the next start comes to that step again.
        """
        parts, progress = self._parts, self._parts.progress
        while progress.step < shown:
            if self._requests.stop is not None:
                return None
            call = stepping.run_steps(parts, 1)
            if not call.steps:
                break  # the data ended: it is other data now
            progress.advance(call)
            if not call.finite or parts.bad_numbers.in_state(parts.content.variables.values()):
                return progress.step
        return shown  # not seen again without the hooks, say: what showed it is left out
