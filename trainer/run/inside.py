"""What a trainer keeps to itself, out of the way of the attributes that a user gives it.

Owns the place: one attribute of a trainer, whose name no program can write. Promises that a
subclass may have any attributes and any name, and that one which is not constructed is told the
line to write. Refuses to do anything with what it keeps.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from trainer import config, errors
from trainer.base import arguments, probe
from trainer.hooks import context
from trainer.journal import heartbeat
from trainer.run import evaluation, saving, stepping
from trainer.run.parts import Parts
from trainer.state import seeds

# No identifier: private names with two underscores are shared by subclasses that are called alike.
_PLACE = "trainer: inside"


@dataclasses.dataclass
class Inside:
    """What a trainer keeps to itself.

    Args:
        settings: the config.
        strategy: TensorFlow's strategy.
        counter: completed steps as a variable, which a step may read while it is traced.
        constructed: when, on the monotonic clock.
        assembled: the parts, once they are.
        evaluator: the compiled evaluation, once there was one.
        running: whether a `train()` is on.

    Attributes:
        saver: the saves.
        stepper: the compiled calls.
    """

    settings: config.TrainerConfig
    strategy: tf.distribute.Strategy
    counter: tf.Variable
    constructed: float
    assembled: Parts | None = None
    evaluator: evaluation.Evaluator | None = None
    running: bool = False
    saver: saving.Saver = dataclasses.field(init=False)
    stepper: stepping.Stepper = dataclasses.field(init=False)

    @property
    def parts(self) -> Parts:
        """The parts of a trainer that is constructed."""
        assert self.assembled is not None
        return self.assembled

    def context(self, program: Any) -> context.RunContext:
        """Returns what the hooks of a run that begins now will see."""
        progress = self.parts.progress
        saved = self.saver.saved_step
        return context.RunContext(program, progress.step, saved, progress.history, progress.source)

    def evaluate(self, program: Any, steps: int | None) -> dict[str, float]:
        """Goes once over the program's evaluation data (see `Trainer.evaluate`)."""
        arguments.count("steps", steps)
        with self.strategy.scope(), seeds.lent(self.parts.seed):
            iterator = evaluation.opened(program.eval_dataset(), first=self.evaluator is None)
            state = self.parts.content.variables.entries.values()
            if self.evaluator is None:
                self.evaluator = evaluation.Evaluator(program.eval_step, iterator, state)
                self.parts.apart.extend(self.evaluator.apart)
            left = self.settings.grace_secs - self.saver.expected_secs
            with probe.inside(probe.EVALUATION, self.settings.model_dir, self.parts.progress.step):
                return self.evaluator.run(iterator, steps, state, left)

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Holds for the time of a `train()`: it is on, its heart beats, and the global
        generators are this trainer's own."""
        self.running = True
        try:
            beating = heartbeat.beating(self.settings.model_dir, self._sign_of_life)
            with self.parts.content.generators.turn(), beating:
                yield
        finally:
            self.running = False
            self.saver.unkept.end()

    def _sign_of_life(self) -> dict[str, Any]:
        """Returns how far the run is, for any thread: the variable moves within a call."""
        return {
            "step": int(self.counter),
            "phase": self.parts.hooks.under_way or "step",
            "newest": self.saver.saved_step,
        }

    def refuse_while_running(self, what: str) -> None:
        """Refuses what would pull the state away from under a run that is on.

        Args:
            what: the call, for the message.

        Raises:
            TrainerError: a `train()` is on.
        """
        if self.running:
            raise errors.TrainerError(
                f"{what} while train() is on, called by a hook, say: the run's hooks and state "
                "belong to it until it has returned; call it between two train() calls"
            )


def put(program: Any, what: Inside) -> Inside:
    """Gives a trainer its inside, and returns it."""
    vars(program)[_PLACE] = what
    return what


def is_constructed(program: Any) -> bool:
    """Tells whether a trainer is constructed."""
    found: Inside | None = vars(program).get(_PLACE)
    return found is not None and found.assembled is not None


def begun(program: Any) -> Inside:
    """Returns a trainer's inside, as far as it is made.

    Args:
        program: the trainer.

    Raises:
        TrainerError: its construction has not begun.
    """
    found: Inside | None = vars(program).get(_PLACE)
    if found is None:
        raise _not_constructed(program)
    return found


def of(program: Any) -> Inside:
    """Returns a trainer's inside; the package's own tools and tests reach it so.

    Args:
        program: the trainer.

    Raises:
        TrainerError: it is not constructed yet.
    """
    found = begun(program)
    if found.assembled is None:
        raise _not_constructed(program)
    return found


def _not_constructed(program: Any) -> errors.TrainerError:
    made = type(program).__name__
    return errors.TrainerError(
        f"{made} is not constructed: its __init__ never called, or has not yet finished, "
        "super().__init__; end it with\n"
        "    super().__init__(config, hooks=hooks, strategy=strategy)"
    )
