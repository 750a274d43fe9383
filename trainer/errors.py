"""The errors a user can meet.

Owns the exception types and their texts' skeleton. Promises that everything this package raises on
purpose, beyond `ValueError` for a bad argument, is a `TrainerError`. Refuses to catch anything.
"""

from __future__ import annotations

from collections.abc import Sequence


class TrainerError(Exception):
    """Base of every error that this package raises on purpose."""


class CheckpointError(TrainerError):
    """Something about a checkpoint; the subclasses say what."""


class DamagedCheckpointError(CheckpointError):
    """One checkpoint cannot be trusted: a file is missing, cut short or changed.

    Args:
        path: folder of the checkpoint.
        reason: what was seen.
    """

    def __init__(self, path: str, reason: str):
        super().__init__(f"{path} is damaged: {reason}")
        self.path = path
        self.reason = reason


class CheckpointMismatchError(CheckpointError):
    """The program's state and the checkpoint's differ in names, shapes or dtypes.

    Args:
        path: folder of the checkpoint.
        only_in_checkpoint: names that the program lacks.
        only_in_program: names that the checkpoint lacks.
        different: one line for each name whose shape or dtype differs.
    """

    def __init__(
        self,
        path: str,
        only_in_checkpoint: Sequence[str],
        only_in_program: Sequence[str],
        different: Sequence[str],
    ):
        self.only_in_checkpoint = list(only_in_checkpoint)
        self.only_in_program = list(only_in_program)
        self.different = list(different)
        super().__init__(
            f"{path} does not fit this program; no value was changed.\n"
            + listing("in the checkpoint only", self.only_in_checkpoint)
            + listing("in the program only", self.only_in_program)
            + listing("different", self.different)
            + "Run the program that wrote it, use another model_dir, or name what may start from "
            "the program's own values in keep_program_values (patterns such as 'optimizer/*')."
        )


class NoReadableCheckpointError(CheckpointError):
    """There are checkpoints and none of them can be read; training never starts over by itself."""


class SaveError(CheckpointError):
    """A checkpoint could not be written, or must not be."""


class EvaluationStoppedError(TrainerError):
    """A stop signal left too little time for the rest of an evaluation.

    Args:
        done: batches that were evaluated.
        grace_secs: time that there was, of the config's `grace_secs` without that for a save.
    """

    def __init__(self, done: int, grace_secs: float):
        super().__init__(
            f"evaluate() was ended after {done} batches: it took longer than the {grace_secs:.3g} "
            "s that a stop signal leaves for it (grace_secs without the time for a save)"
        )
        self.done = done


class StateCoverageError(TrainerError):
    """The compiled step uses variables that no checkpoint would hold.

    Args:
        missing: name of each variable that was forgotten.
        advice: one line for each: where it was seen and what to write.
    """

    def __init__(self, missing: Sequence[str], advice: Sequence[str]):
        self.missing = list(missing)
        super().__init__(
            f"train_step uses {len(self.missing)} piece(s) of state that no checkpoint would "
            f"hold, so a resumed run would silently differ:\n"
            + "".join(f"  {line}\n" for line in advice)
            + "Make each of them reachable from an attribute of the trainer, in build()."
        )


class UnseededDataError(TrainerError, ValueError):
    """The training data took seeds before the trainer seeded: no restart would have them.

    Args:
        stages: the stages of the pipeline that did, in words.
        name: what `keep_program_values` has to hold to go on all the same.
    """

    def __init__(self, stages: Sequence[str], name: str):
        self.stages = list(stages)
        super().__init__(
            f"the seed of {', '.join(stages)} was drawn before the trainer seeded, so every start "
            "has its data in another order and a resumed run would silently differ. Make the "
            "dataset inside train_dataset(), which draws its seeds from the run's, or give the "
            f"stage a seed=. keep_program_values=({name!r},) goes on without the promise"
        )


class NonFiniteError(TrainerError):
    """An output of `train_step`, or a variable at a save, was NaN or infinite.

    Args:
        step: the step that left it so.
        output: key of the output, or name of the variable.
        value: what it was.
        newest: newest checkpoint's step, or None.
        what: "output" or "variable".
    """

    def __init__(
        self, step: int, output: str, value: float, newest: int | None, what: str = "output"
    ):
        self.step = step
        self.output = output
        self.value = value
        stands = (
            "no checkpoint was written yet" if newest is None else f"checkpoint {newest} stands"
        )
        super().__init__(
            f"{what} {output!r} of step {step} is {value}; that step is not saved and {stands}. "
            f"Look at batch {step} and at the learning rate, then run again to resume."
        )


class StepRefusedError(TrainerError):
    """A hook refuses a step: back to the checkpoint before it, with its batch left out for good.

    Args:
        step: the step.
        reason: why, in words.
    """

    def __init__(self, step: int, reason: str):
        self.step = step
        super().__init__(f"step {step} is to be undone: {reason}")


class ModelDirInUseError(TrainerError):
    """Another process, or a newer trainer of this process, owns the run folder."""


def listing(title: str, lines: Sequence[str], most: int = 20) -> str:
    """Returns a titled, indented list of at most `most` lines; empty if there are no lines."""
    if not lines:
        return ""
    rest = f"    ... and {len(lines) - most} more\n" if len(lines) > most else ""
    return f"  {title} ({len(lines)}):\n" + "".join(f"    {n}\n" for n in lines[:most]) + rest


def add_note(error: BaseException, note: str) -> None:
    """Adds a line to an error's `__notes__`; Python prints them from 3.11 on."""
    error.__notes__ = [*getattr(error, "__notes__", ()), note]


def brief(error: BaseException) -> str:
    """Returns an error's type and the line of its text that says what happened.

    That is the first, but in TensorFlow's errors, which begin with where it was: there it is the
    one before the operation's name.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    nodes = [at for at, line in enumerate(lines) if line.startswith("[[{{node")]
    wrapped = lines[0].startswith(("Graph execution error", "Detected at node"))
    said = lines[nodes[0] - 1] if wrapped and nodes and nodes[0] else lines[0]
    return f"{type(error).__name__}: {said}"
