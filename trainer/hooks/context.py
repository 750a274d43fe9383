"""What a hook sees of the run.

Owns `RunContext`. Promises that a hook sees the step it is called for and no other, whatever has
run since, and that nothing is fetched from the device unless it is read. Refuses to know what a
step, a save or the data are: it is told where to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trainer import config, errors


class TrainerView(Protocol):
    """What a hook may ask of the trainer, besides the attributes that the program gave it."""

    @property
    def step(self) -> int:
        """Completed steps, over all resumes."""

    @property
    def config(self) -> config.TrainerConfig:
        """The settings."""

    @property
    def model_dir(self) -> str:
        """Folder of the run."""

    @property
    def checkpoints(self) -> list[int]:
        """Steps of the complete checkpoints on the disk, ascending."""

    def evaluate(self, steps: int | None = None) -> dict[str, float]:
        """Returns the means of scalars and the results of metrics of `eval_step`."""

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the program's own."""


class Past(Protocol):
    """The steps done so far, as far as they are kept."""

    def outputs(self, step: int) -> Mapping[str, Any]:
        """Returns name to NumPy scalar of a step."""

    def secs(self, step: int) -> float:
        """Returns the seconds of training, over all resumes, when a step was done."""

    def between(self, first: int, last: int) -> Mapping[str, Any]:
        """Returns name to `float32[n]` of the steps `first` to `last`."""


class Passes(Protocol):
    """The data."""

    def epoch(self, back: int = 0) -> tuple[int, int] | None:
        """Returns the pass of the last batch but `back`, from 1, and the batches of it so far."""

    @property
    def pass_steps(self) -> int | None:
        """Batches of one pass; None where that is not known."""


class RunContext:
    """What a hook sees of the run.

    Attributes:
        trainer: the trainer.
        step: completed steps, over all resumes.
        start_step: `step` when this `train()` began.
        outputs: name to the last step's value, a NumPy scalar; right after a resume too. A metric's
            is computed when it is read, of what the metric held after that step.
        saved_step: step of the newest checkpoint on the disk, or None.
        error: in `end`: the exception that ended the run, or None.
    """

    def __init__(self, trainer: Any, step: int, saved_step: int | None, past: Past, passes: Passes):
        self.trainer: TrainerView = trainer
        self.step = self.start_step = step
        self.outputs: Mapping[str, Any] = past.outputs(step)
        self.saved_step = saved_step
        self.error: BaseException | None = None
        self.stop: dict[str, Any] | None = None
        self._past = past
        self._passes = passes
        self._behind = 0
        self._every_steps = 1
        self._called = ""
        self._may_stop = True

    @property
    def history(self) -> Mapping[str, Any]:
        """Name to `float32[n]`, one value per step since this hook's last call; no metrics."""
        return self._past.between(self.step - self._every_steps + 1, self.step)

    @property
    def epoch(self) -> int | None:
        """Pass over the data that the last step was in, from 1; None if its length is not known."""
        found = self._passes.epoch(self._behind)
        return None if found is None else found[0]

    @property
    def epoch_step(self) -> int | None:
        """Steps completed in that pass; None if its length is not known."""
        found = self._passes.epoch(self._behind)
        return None if found is None else found[1]

    @property
    def epoch_steps(self) -> int | None:
        """Steps of one pass over the data; None if that is not known.

        Known for `trainer.data.Indexed` and for a `tf.data.Dataset` that knows its cardinality.
        """
        return self._passes.pass_steps

    @property
    def epoch_ended(self) -> bool | None:
        """Whether the last step was the last one of its pass; None where `epoch_steps` is None.

        With data of unknown length, the end of a pass shows only when the next batch is drawn.
        """
        steps, done = self.epoch_steps, self.epoch_step
        return None if steps is None or done is None else done == steps

    @property
    def trained_secs(self) -> float:
        """Seconds of training, over all resumes, when `step` was done.

        Steps of one compiled call are taken to be of equal length.
        """
        return self._past.secs(self.step)

    def request_stop(self, reason: str = "") -> None:
        """Ends the run after this step: all hooks of the step still run, then it is saved.

        Args:
            reason: why, in words for the log and the checkpoint.

        Raises:
            TrainerError: asked by a hook with `only_outputs`: later steps have run already.
        """
        if not self._may_stop:
            raise errors.TrainerError(
                f"hook {self._called} has only_outputs = True, so it is called after later steps "
                f"have run and cannot stop the run at step {self.step}; set only_outputs = False"
            )
        if self.stop is None:
            self.stop = {"hook": self._called, "reason": str(reason)}

    def show_step(self, step: int, behind: int) -> None:
        """Turns to a step that is done.

        Args:
            step: the step.
            behind: steps done since.
        """
        self.step, self._behind = step, behind
        self.outputs = self._past.outputs(step)

    def calling(self, key: str, every_steps: int, *, may_stop: bool) -> None:
        """Turns to the hook that is called next.

        Args:
            key: its name, for a stop request.
            every_steps: steps since its last call, for its history.
            may_stop: whether it may end the run.
        """
        self._called, self._every_steps, self._may_stop = key, every_steps, may_stop
