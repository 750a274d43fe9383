"""Saves during a run: whether one is due, and what a failure means.

Owns the decision to save and to go on after a failed save. Promises that a checkpoint is only made
of a whole step's state, and that a failure reaches the caller as `on_save_error` says. Refuses to
write files (see `checkpoints`) or to decide what a checkpoint holds (see `content`).
"""

from __future__ import annotations

import importlib.metadata
import time
from typing import Any

from trainer import assembly, clock, config, errors, hooks, state
from trainer.checkpoints import manifest, policy
from trainer.log import LOG

_FAILURES_IN_A_ROW = 3


class Saver:
    """The saves of one trainer.

    Args:
        program: the user's trainer, looked through once for variables that came too late.
        settings: the config.
        parts: the trainer's parts.
    """

    def __init__(self, program: Any, settings: config.TrainerConfig, parts: assembly.Parts):
        self._program = program
        self._parts = parts
        self._raise = settings.on_save_error == "raise"
        self._policy = policy.Policy(
            every_steps=settings.save_every_steps,
            every_secs=settings.save_every_secs,
            overhead=settings.save_overhead,
            now=clock.now(),
        )
        self._attempts = self._failures = self._failures_in_a_row = 0
        self._saved_before = False
        # A variable that starts as an infinity (a best value so far, say) may stay one.
        self._never_finite = set(parts.content.variables.non_finite())
        self._stop_saved: Any = parts.content.stop
        self.saved_step = parts.restored_step
        if settings.save_every_steps is None and settings.save_every_secs is None:
            LOG.warning(
                "no save interval is given: saving as often as %.3g %% of the time allows, and at "
                "the end of the run; set save_every_steps or save_every_secs for a fixed one",
                100 * settings.save_overhead,
            )

    def next_step(self, step: int) -> int | None:
        """Returns the next step at which a save is due for certain, or None."""
        return self._policy.next_step(step)

    def is_due(self) -> bool:
        """Tells whether to save after the step just completed."""
        step = self._parts.step
        return step != self.saved_step and self._policy.is_due(step, clock.now())

    def save(self) -> None:
        """Saves the present step.

        Raises:
            SaveError: it could not be written, or the state is that of no whole step.
            NonFiniteError: a variable holds a NaN or an infinity.
        """
        parts = self._parts
        if parts.torn is not None:
            raise errors.SaveError(
                f"not saved: {parts.torn}, so the state in memory is that of no whole step; "
                f"construct the trainer again or call restore(). {self.stands()}"
            )
        self._refuse_non_finite()
        if not self._saved_before:
            self._say_what_is_not_kept()
        begun = clock.now()
        tensors = parts.content.collect(parts.step)
        written = parts.store.save(
            parts.step, tensors, lambda sizes: self._describe(tensors, sizes)
        )
        secs = clock.now() - begun
        parts.journal.note("save", step=parts.step, stall_secs=round(secs, 4), bytes=written.bytes)
        if not self._saved_before:
            LOG.info("first save took %.3f s (checkpoint %d)", secs, parts.step)
        self._saved_before = True
        self.saved_step = parts.step
        self._stop_saved = parts.content.stop
        self._policy.saved(clock.now(), secs)

    def _refuse_non_finite(self) -> None:
        """Keeps a poisoned state out of the checkpoints, whatever the step's outputs were."""
        poisoned = set(self._parts.content.variables.non_finite()) - self._never_finite
        if poisoned:
            step = self._parts.step
            self._parts.torn = f"variables are not finite after step {step}"
            raise errors.NonFiniteError(
                step, sorted(poisoned)[0], float("nan"), self.saved_step, "variable"
            )

    def save_periodic(self, ctx: hooks.RunContext) -> None:
        """Saves in the middle of a run; a failure ends the run only if the config says so."""
        self._save(ctx, last=False)

    def save_last(self, ctx: hooks.RunContext) -> None:
        """Saves at the end of a run, unless this very state is saved already."""
        unsaved = (
            self.saved_step != self._parts.step or self._stop_saved != self._parts.content.stop
        )
        if unsaved:
            self._save(ctx, last=True)
        if self._failures:
            LOG.warning("%d of %d saves failed", self._failures, self._attempts)

    def went_back(self) -> None:
        """Takes note that the state is that of an older checkpoint now, stop request included."""
        self.saved_step = self._parts.restored_step
        self._stop_saved = self._parts.content.stop

    def stands(self) -> str:
        """Returns a sentence on what a resume would find."""
        if self.saved_step is None:
            return "no checkpoint was written yet"
        return f"checkpoint {self.saved_step} stands"

    def _save(self, ctx: hooks.RunContext, *, last: bool) -> None:
        self._attempts += 1
        try:
            self.save()
        except errors.SaveError as error:
            self._failures += 1
            self._failures_in_a_row += 1
            self._parts.journal.note("failure", step=self._parts.step, error=str(error))
            if last or self._raise or self._failures_in_a_row >= _FAILURES_IN_A_ROW:
                raise
            LOG.warning("%s Training goes on.", error)
            self._policy.failed(clock.now())
            return
        self._failures_in_a_row = 0
        ctx.saved_step = self.saved_step
        self._parts.hooks.after_save(ctx)

    def _describe(self, tensors: dict[str, Any], sizes: dict[str, Any]) -> manifest.Manifest:
        parts = self._parts
        return manifest.Manifest(
            step=parts.step,
            trained_secs=parts.stopwatch.read(),
            seed=parts.seed,
            files=sizes,
            tensors=state.describe(tensors),
            variables=list(parts.content.variables.entries),
            written_at=time.time(),
            versions=_versions(),
        )

    def _say_what_is_not_kept(self) -> None:
        stateless = self._parts.hooks.stateless()
        if stateless:
            LOG.info(
                "state of hook %s will not be kept: no get_state and set_state",
                ", ".join(stateless),
            )
        late = assembly.late_variables(self._program, self._parts)
        if late:
            LOG.warning(
                "not saved, because they came after construction: %s; make them in build()",
                ", ".join(late),
            )


def _versions() -> dict[str, str]:
    found = {}
    for package in ("unbroken", "tensorflow", "keras", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # run from a source folder, or a build of TensorFlow under another name
    return found
