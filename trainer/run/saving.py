"""Saves during a run: which one is due, and what became of it.

Owns the decision to save, to leave a save out and to go on after a failed one. Promises that a
checkpoint is only made of a whole step's state, and that a failure reaches the caller at the next
boundary, as `on_save_error` says. Refuses to write files (see `checkpoint_writer`, `checkpoints`)
or to decide what a checkpoint holds (see `content`).
"""

from __future__ import annotations

import time
from typing import Any

from trainer import config, errors
from trainer.base import clock
from trainer.base.log import LOG
from trainer.checkpoints import bundle, policy
from trainer.hooks import context
from trainer.journal import goodput, journal
from trainer.run import checkpoint_writer, unkept
from trainer.run.parts import Parts

_FAILURES_IN_A_ROW = 3
# A small state is on the disk in some milliseconds: where saves follow each other so fast that one
# would be left out, and whoever is killed right after a save would not find it, training waits for
# it. A disk that once took longer is not waited for again.
_PATIENCE_SECS, _FAST_SECS = 5.0, 0.5
# Seconds that went into saves before it is said that a longer interval would be faster.
_WORTH_SAYING_SECS = 10.0
# What a save is taken to cost before one was measured: low, since the first shows what it does.
_A_FILE_SECS, _BYTES_A_SEC, _MOST_GUESSED_SECS = 0.01, 1e9, 0.1
_SMALL_DATA_BYTES, _LARGE_DATA_BYTES = 100_000, 10_000_000


class Saver:
    """The saves of one trainer.

    Args:
        settings: the config.
        parts: the trainer's parts.

    Attributes:
        saved_step: step of the newest checkpoint known to be on the disk, or None.
        unkept: the watch over what changes and is in no checkpoint.
    """

    def __init__(self, settings: config.TrainerConfig, parts: Parts):
        self._parts = parts
        self._writer = checkpoint_writer.Writer(parts)
        self.unkept = unkept.Unkept(parts)
        self._background = settings.async_save
        self._raise = settings.on_save_error == "raise"
        self._policy = _policy(settings, parts)
        self._attempts = self._failures = self._failures_in_a_row = self._skips = 0
        self._write_secs = self._stall_secs = 0.0
        self._went_on: float | None = None
        self._begun: float | None = None  # real time, which is what a disk needs: no fake clock
        self._said_slow = False
        self._skipped_for: int | None = None  # the checkpoint for which the journal has a line
        self._earlier: errors.SaveError | None = None
        self._saved_before = False
        self._stop_saved: Any = parts.content.stop
        self.saved_step = parts.progress.restored_step
        if settings.save_every_steps is None and settings.save_every_secs is None:
            LOG.info(
                "no save interval is given: saving as often as %.3g %% of the time allows, and at "
                "the end of the run; set save_every_steps or save_every_secs for a fixed one",
                100 * settings.save_overhead,
            )

    def next_step(self, step: int) -> int | None:
        """Returns the next step at which a save is due for certain, or None."""
        return self._policy.next_step(step)

    @property
    def waits(self) -> bool:
        """Whether a save may come due, or come to its end, at a time and not at a step."""
        return self._policy.watches_clock or self._writer.step is not None

    @property
    def expected_secs(self) -> float:
        """How long a save takes from the snapshot to the disk, as far as is known."""
        return self._write_secs

    def at_boundary(self, ctx: context.RunContext, *, asked: bool = False) -> None:
        """Takes in the save that was being written, if it has ended, and begins the one due.

        Args:
            ctx: the context of the hooks.
            asked: a save was asked for, whatever the interval says.
        """
        self._take_in(ctx, wait=0.0)
        step, writing_step = self._parts.progress.step, self._writer.step
        due = asked or self._policy.is_due(step, clock.now())
        if not due or step in (self.saved_step, writing_step):
            return
        self._say_if_slow()
        self._take_in(ctx, wait=None if asked else self._patience())
        if self._writer.step is None:
            self._begin(waited_for=not self._background)
            self._take_in(ctx, wait=self._patience())
            self._went_on, self._begun = clock.now(), time.perf_counter()
        else:
            self._leave_out(step)

    def settle(self, ctx: context.RunContext, *, last: bool = False) -> None:
        """Waits at the end of a run for the save that is being written.

        Args:
            ctx: the context of the hooks.
            last: no other save comes after it, so its failure is raised. Else it is kept until the
                last save has been tried (see `save_last`).

        Raises:
            SaveError: it failed, and was the last one.
            NonFiniteError: a variable of it holds a NaN or an infinity.
        """
        self._earlier = None
        try:
            self._take_in(ctx, last=last)
        except errors.SaveError as error:
            if last:
                raise
            self._earlier = error

    def save_last(self, ctx: context.RunContext) -> None:
        """Saves at the end of a run, after `settle`, unless this very state is saved already."""
        unsaved = (
            self.saved_step != self._parts.progress.step
            or self._stop_saved != self._parts.content.stop
        )
        if unsaved:
            self._begin(waited_for=True)
            self._take_in(ctx, last=True)
        if self._earlier is not None:
            raise self._earlier
        if self._failures:
            LOG.warning("%d of %d saves failed", self._failures, self._attempts)
        if self._skips:
            LOG.warning(
                "%d saves were left out, each because the one before was still being written",
                self._skips,
            )

    def save(self) -> None:
        """Saves the present step; it is on the disk when this returns.

        Raises:
            SaveError: it could not be written, or the state is that of no whole step.
            NonFiniteError: a variable holds a NaN or an infinity.
        """
        self.wait()
        self._begin(waited_for=True)
        try:
            self._succeeded(self._finish())
        except errors.SaveError as error:
            self._failed(self._parts.progress.step, error)
            raise

    def wait(self) -> None:
        """Waits for the save that is being written; a failure is logged, not raised."""
        step = self._writer.step
        if step is None:
            return
        try:
            self._succeeded(self._finish())
        except Exception as error:  # whatever it is: what the caller is about to raise comes first
            self._failed(step, error)
            LOG.warning("%s", error)

    def close(self) -> None:
        """Waits for the save that is being written."""
        self.wait()

    def went_back(self) -> None:
        """Takes note that the state is that of an older checkpoint now, stop request included."""
        self.saved_step = self._parts.progress.restored_step
        self._stop_saved = self._parts.content.stop

    def newest(self) -> int | None:
        """Returns the step of the newest checkpoint, after the one that is being written."""
        self.wait()
        return self.saved_step

    def in_words(self) -> str:
        """Returns a sentence on what a resume would find."""
        if self.saved_step is None:
            return "no checkpoint was written yet"
        return f"checkpoint {self.saved_step} stands"

    def _begin(self, *, waited_for: bool) -> None:
        parts = self._parts
        if parts.progress.unsavable is not None:
            raise errors.SaveError(
                f"not saved: {parts.progress.unsavable}, so the state in memory is that of no "
                f"whole step; construct the trainer again or call restore(). {self.in_words()}"
            )
        begun = clock.now()
        self.unkept.look()
        self._attempts += 1
        self._writer.begin(waited_for=waited_for)
        self._policy.begun(begun)
        self._stall_secs = clock.now() - begun

    def _patience(self) -> float | None:
        """Returns how long to wait for the save that is being written; None: to its end."""
        if not self._background:
            return None
        fast = self._begun is None or time.perf_counter() - self._begun < _FAST_SECS
        patient = fast and self._writer.is_small and self._write_secs <= _PATIENCE_SECS
        return max(0.0, _PATIENCE_SECS - self._writer.age()) if patient else 0.0

    def _take_in(
        self, ctx: context.RunContext, *, wait: float | None = None, last: bool = False
    ) -> None:
        """Waits, and if the save has ended, draws the consequences."""
        if self._writer.step is None:
            return
        begun = clock.now()
        ended = self._writer.wait(wait)
        self._stall_secs += clock.now() - begun
        if not ended:
            return
        step = self._writer.step
        try:
            self._succeeded(self._finish())
        except errors.SaveError as error:
            self._failed(step, error)
            if last or self._raise or self._failures_in_a_row >= _FAILURES_IN_A_ROW:
                raise
            LOG.warning("%s Training goes on.", error)
            return
        ctx.saved_step = self.saved_step
        try:
            self.unkept.after_save(ctx)
        except errors.EvaluationStoppedError as error:
            LOG.warning("%s", error)  # the step is whole: it may be saved; the signal ends the run

    def _finish(self) -> checkpoint_writer.Written:
        begun = clock.now()
        self._writer.wait()
        self._stall_secs += clock.now() - begun
        try:
            return self._writer.take()
        except errors.NonFiniteError as error:
            self._parts.progress.mark_unsavable(f"variables are not finite after step {error.step}")
            raise

    def _succeeded(self, written: checkpoint_writer.Written) -> None:
        self._parts.journal.note(
            "save",
            step=written.step,
            stall_secs=round(self._stall_secs, 4),
            write_secs=round(written.write_secs, 4),
            bytes=written.bytes,
        )
        if not self._saved_before:
            LOG.info("first save took %.3f s (checkpoint %d)", written.write_secs, written.step)
            _warn_of_large_data(written)
        self._saved_before = True
        self._failures_in_a_row = 0
        self._write_secs = written.write_secs
        self.saved_step = written.step
        self._stop_saved = written.stop
        self._policy.cost(self._stall_secs, max(self._stall_secs, written.write_secs))

    def _failed(self, step: int | None, error: Exception) -> None:
        self._failures += 1
        self._failures_in_a_row += 1
        self._parts.journal.note("failure", step=step, error=str(error))

    def _say_if_slow(self) -> None:
        """Says once that more time goes into a save than into training between two of them."""
        if self._went_on is None or self._said_slow:
            return
        trained = clock.now() - self._went_on
        if self._write_secs > trained and self._write_secs * self._attempts > _WORTH_SAYING_SECS:
            self._said_slow = True
            LOG.info(
                "a save takes %.3g s and the training between two of them %.3g s; a longer "
                "interval would be faster",
                self._write_secs,
                trained,
            )

    def _leave_out(self, step: int) -> None:
        """Keeps a slow disk from holding up training, and snapshots from piling up."""
        busy = self._writer.step
        if not self._skips:
            LOG.warning(
                "the save due at step %d is left out: checkpoint %s is still being written; saves "
                "take longer than the interval between them, so choose a longer one",
                step,
                busy,
            )
        self._skips += 1
        if busy != self._skipped_for:
            self._skipped_for = busy
            self._parts.journal.note("skip", step=step, writing=busy)
        self._policy.begun(clock.now())


def _warn_of_large_data(written: checkpoint_writer.Written) -> None:
    """Says that it is the data's position, not the model, that makes checkpoints large."""
    size = written.data_bytes
    if size > _LARGE_DATA_BYTES or size > max(_SMALL_DATA_BYTES, written.variable_bytes):
        LOG.warning(
            "the position in the data takes %s of %s bytes of a checkpoint, the variables %s: a "
            "shuffle buffer is saved with its examples. trainer.data.Indexed shuffles numbers "
            "instead and needs 48 bytes; a smaller buffer, or shuffling indices before examples "
            "are read, helps too",
            f"{size:,}",
            f"{written.bytes:,}",
            f"{written.variable_bytes:,}",
        )


def _policy(settings: config.TrainerConfig, parts: Parts) -> policy.Policy:
    """Returns when to save, by what the journal of this folder tells of failures and costs."""
    events = journal.read(parts.store.files, parts.store.folder)
    failures, trained_secs = goodput.failures(events)
    known = [goodput.number(event, "write_secs") for event in events if event["event"] == "save"]
    size = sum(bundle.size_of(value) for value in parts.content.variables.values().values())
    guess = min(_MOST_GUESSED_SECS, _A_FILE_SECS + size / _BYTES_A_SEC)
    return policy.Policy(
        every_steps=settings.save_every_steps,
        every_secs=settings.save_every_secs,
        overhead=settings.save_overhead,
        cost_secs=known[-1] if known and known[-1] > 0 else guess,
        failures=failures,
        trained_secs=trained_secs,
        now=clock.now(),
    )
