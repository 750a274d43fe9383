"""The comparison of an unbroken run with one that was cut, in one process.

Owns the digests of a trainer's state. Promises that a check fails when the crash that it asked for
did not happen. Refuses to kill a process (see `prove`).
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Sequence

from trainer import trainer
from trainer.base import digests
from trainer.hooks.hook import Hook
from trainer.state import digest
from trainer.testing.faults import CrashAt, SimulatedCrash


def state_digests(program: trainer.Trainer) -> dict[str, str]:
    """Returns the SHA-256 of each named part of the state that must be equal after a cut run.

    The time of training is left out, and so is the saved iterator: how far a prefetch has got is
    in it, and the number of batches drawn tells the position.

    Args:
        program: the trainer.
    """
    return digest.of_state(program.state())


def state_digest(program: trainer.Trainer) -> str:
    """Returns one SHA-256 over all that `state_digests` returns, names included.

    Args:
        program: the trainer.
    """
    return digests.combined(state_digests(program))


def assert_resumes_exactly(
    make_trainer: Callable[[str, Sequence[Hook]], trainer.Trainer],
    *,
    steps: int,
    crashes: int | Sequence[int],
) -> None:
    """Asserts that a run with crashes ends where the unbroken run ends, bit for bit.

    Args:
        make_trainer: takes a folder and hooks to add, returns a new trainer.
        steps: steps of each run in total.
        crashes: after which steps to crash, one construction each; or how many crashes, at steps
            drawn with a fixed seed.

    Raises:
        AssertionError: a crash did not happen, or the states differ; the text names the first name
            that does.
    """
    if isinstance(crashes, int):
        crashes = sorted(random.Random(crashes).sample(range(1, steps + 1), crashes))
    with tempfile.TemporaryDirectory(prefix="trainer-") as scratch:
        with make_trainer(os.path.join(scratch, "unbroken"), []) as program:
            program.train(max_steps=steps)
            expected = state_digests(program)
        folder = os.path.join(scratch, "cut")
        for step in crashes:
            _crash(make_trainer, folder, step, steps)
        with make_trainer(folder, []) as program:
            program.train(max_steps=steps)
            seen = state_digests(program)
    name = digests.first_difference(expected, seen)
    if name is not None:
        raise AssertionError(
            f"after crashes at {list(crashes)}, {name!r} differs from the unbroken run's at step "
            f"{steps}"
        )


def _crash(
    make_trainer: Callable[[str, Sequence[Hook]], trainer.Trainer],
    folder: str,
    step: int,
    steps: int,
) -> None:
    with make_trainer(folder, [CrashAt(step)]) as program:
        resumed = program.step
        try:
            program.train(max_steps=steps)
        except SimulatedCrash:
            return
    raise AssertionError(
        f"the crash at step {step} did not happen: the run was resumed at step {resumed} and went "
        f"to {steps}"
    )
