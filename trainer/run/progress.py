"""Where the run is.

Owns the completed steps, as an int and as the variable that the graph counts in, the position in
the data, and the outputs of recent steps. Promises that the three move together, by the transitions
below and by nothing else, and that a state which is of no whole step says why, so that nothing
saves it. Refuses to run a step or to decide how many.

    enter_call()          a compiled call begins: until it returns, the state is of no whole step
    advance(call)         it returned: step, data and outputs move by its steps
    fail(error)           it raised
    mark_unsavable(why)   something else left the state that of no whole step
    go_to(step)           all of the state is that of a checkpoint now
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer import errors
from trainer.data import position
from trainer.graph import compiled
from trainer.run import history, metric_outputs


class Progress:
    """Where one trainer is.

    Args:
        counter: the completed steps as an int64 variable: the graph counts in it.
        source: the training data.
        metrics: name to metric, of those among the outputs of `train_step`.

    Attributes:
        metrics: their values.
        step: completed steps, without asking the device.
        history: outputs that a hook may still ask for.
        restored_step: step of the checkpoint that was restored last, or None.
        unsavable: why the state in memory is that of no whole step, or None if it is.
        failure: the error that the step or the data raised last, or None.
    """

    def __init__(self, counter: tf.Variable, source: position.Source, metrics: Mapping[str, Any]):
        self.counter = counter
        self.source = source
        self.metrics = metric_outputs.Metrics("train_step", metrics)
        self.metrics.check_passes(source)
        self.history = history.History(self.metrics)
        self.step = 0
        self.restored_step: int | None = None
        self.unsavable: str | None = None
        self.failure: BaseException | None = None

    def enter_call(self) -> None:
        """Begins a compiled call."""
        self.unsavable = f"step {self.step + 1} or a later one was interrupted"

    def advance(self, call: compiled.Call, secs: tuple[float, float] = (0.0, 0.0)) -> None:
        """Moves on by the steps of a call.

        Args:
            call: what it did.
            secs: seconds of training when it began and when it ended.
        """
        self.history.add(self.step + 1, call.steps, call.series, secs)
        self.step += call.steps
        self.source.drawn(call.steps)
        self.unsavable = None
        if not call.finite:
            self.mark_unsavable(f"step {self.step} returned an output that is not finite")

    def fail(self, error: BaseException) -> int:
        """Takes note of what a call raised, and returns the step that did it."""
        failed = int(self.counter) + 1
        self.failure = error
        self.mark_unsavable(f"step {failed} raised {type(error).__name__}")
        return failed

    def mark_unsavable(self, why: str) -> None:
        """Keeps the state in memory from being saved or trained on.

        Args:
            why: what it is that it is not, in words.
        """
        self.unsavable = why

    def go_to(self, step: int) -> None:
        """Takes note that variables, data and history are those of a checkpoint now.

        Args:
            step: of the checkpoint.
        """
        self.step = self.restored_step = step
        self.unsavable = None

    def check_whole(self) -> None:
        """Refuses to go on from a state that is of no whole step.

        Raises:
            TrainerError: it is not.
        """
        if self.unsavable is not None:
            raise errors.TrainerError(
                f"{self.unsavable}, so the state in memory is that of no whole step; construct the "
                "trainer again or call restore()"
            )
