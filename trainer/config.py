"""The settings of one run.

Owns `TrainerConfig`: its names, defaults and the rules for its values. Promises that an instance is
valid and never changes. Refuses to touch a file or to know what the settings are used for; the
command-line flags are made from this class, so there is one truth.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
from typing import Any, TypeVar

from trainer.base import arguments, probe, wording

_Class = TypeVar("_Class", bound=type)


def _option(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


def _suggests_names(cls: _Class) -> _Class:
    """Has a dataclass say which field was meant where it is given one that it has not."""
    made = cls.__init__  # type: ignore[misc]
    known = [field.name for field in dataclasses.fields(cls)]

    @functools.wraps(made)
    def init(self: Any, *values: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                meant = wording.did_you_mean(name, known) or f" There are {', '.join(known)}."
                raise TypeError(
                    f"{cls.__name__}() got an unexpected keyword argument {name!r}.{meant}"
                )
        made(self, *values, **named)

    cls.__init__ = init  # type: ignore[misc]
    return cls


@_suggests_names
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Settings of one run; every field is also a flag of `trainer.app.run`.

    Args:
        model_dir: folder of one run.
        max_steps: train steps in total, over all resumes. This or `epochs` must be given by the
            time `train()` is called.
        epochs: passes over a finite dataset at most; None: as many as `max_steps` needs.
        save_every_steps: save after each step whose number is a multiple of this.
        save_every_secs: save when this many seconds have gone by since the last save.
        save_overhead: share of the training time, above 0 and below 1, that saves may cost when
            neither interval is given; more once runs have failed, if less is lost so.
        max_to_keep: newest checkpoints kept, at least 1; None keeps all.
        keep_every_n_hours: in addition, one checkpoint per so many hours of training is kept.
        keep_program_values: glob patterns of state names that a restore leaves as the program set
            them, such as "optimizer/learning_rate"; `*` also matches "/". "trainer/data/order"
            goes on though the data come in another order than in the unbroken run.
        init_from: where to take initial values from when `model_dir` has no checkpoint: a run
            folder, a checkpoint, or a Keras `.weights.h5` file.
        resume: "auto", "required" (error if there is nothing) or "never" (error if there is
            something).
        steps_per_call: steps in one compiled call at most; None chooses.
        jit_compile: compile the train step with XLA.
        seed: seed of TensorFlow, NumPy and Python; None draws one, logs it and keeps it.
        data_position: how the position in a `tf.data` pipeline is kept: "auto", "saved" (an error
            if that cannot be had) or "replay" (draw the batches again after a restart).
        async_save: write checkpoints in the background.
        on_save_error: "warn" goes on and raises after 3 failures in a row or when the last save of
            the run fails; "raise" raises at once.
        on_nonfinite: when an output or a variable is NaN or infinite: "raise"; "rollback": go back
            to the newest checkpoint and leave out the batch that did it for good; or "ignore": go
            on, and save it.
        max_rollbacks: rollbacks at most, over all resumes.
        max_secs: seconds of training at most, over all resumes, the last save included; steps that
            a kill undid do not count. The run may go on for one step, or 0.2 s, longer.
        max_process_secs: seconds from the construction of the trainer at most, for a cluster that
            ends jobs by the clock: the run ends as if by SIGTERM, "preempted", to be run again.
        grace_secs: seconds that a stop signal leaves; a save that takes longer is not begun.
        stop_signals: names of the signals that end a run, saved: with status 130 for "SIGINT" and
            75 for every other one. A signal that the process ignores, as under `nohup`, stays so.
        intra_op_threads: threads that TensorFlow shares an operation among, which decide the bits
            of sums; None: as many as the run began with, on a machine of any size.
        private_flags: glob patterns of flags of the program that no checkpoint shall hold, beside
            those named like a password, a secret, a token, a key or a credential.
        deterministic: TensorFlow's op determinism, for the whole process: True turns it on, False
            never does; None turns it on where a GPU is visible, whose operations may else give
            other bits each time. With it some operations are slower and some raise, and stages of
            `tf.data` with hidden state run one element at a time.

    Raises:
        ValueError: a value breaks its rule; the text names the field, the value and the rule.
        TypeError: there is no such setting; the text names the one that was likely meant.
    """

    model_dir: str = dataclasses.field(kw_only=False, metadata={"help": "Folder of one run."})
    max_steps: int | None = _option(None, "Train steps in total, over all resumes.")
    epochs: int | None = _option(None, "Passes over a finite dataset at most.")
    save_every_steps: int | None = _option(None, "Save after every so many steps.")
    save_every_secs: float | None = _option(None, "Save after every so many seconds.")
    save_overhead: float = _option(0.01, "Share of time saves may cost if no interval is given.")
    max_to_keep: int | None = _option(5, "Newest checkpoints kept; at least 1, 'none' for all.")
    keep_every_n_hours: float | None = _option(None, "Also keep one per so many hours of training.")
    keep_program_values: tuple[str, ...] = _option((), "Patterns of names a restore leaves alone.")
    init_from: str | None = _option(None, "Initial values when model_dir has no checkpoint.")
    resume: str = _option("auto", "'auto', 'required' or 'never'.")
    steps_per_call: int | None = _option(None, "Steps in one compiled call at most.")
    jit_compile: bool = _option(False, "Compile the train step with XLA.")
    seed: int | None = _option(None, "Seed of TensorFlow, NumPy and Python.")
    data_position: str = _option("auto", "'auto', 'saved' or 'replay'.")
    async_save: bool = _option(True, "Write checkpoints in the background.")
    on_save_error: str = _option("warn", "'warn' or 'raise'.")
    on_nonfinite: str = _option(
        "raise", "'raise', 'rollback' to leave out the batch that did it, or 'ignore'."
    )
    max_rollbacks: int = _option(3, "Rollbacks at most, over all resumes.")
    max_secs: float | None = _option(None, "Seconds of training at most, over all resumes.")
    max_process_secs: float | None = _option(
        None, "Seconds of one process at most; it ends with status 75, to be run again."
    )
    grace_secs: float = _option(30.0, "Seconds that a stop signal leaves for the last save.")
    stop_signals: tuple[str, ...] = _option(
        ("SIGTERM", "SIGINT", "SIGHUP"), "Signals that end a run, saved."
    )
    intra_op_threads: int | None = _option(None, "Threads of an operation; None: as it began.")
    private_flags: tuple[str, ...] = _option((), "Patterns of flags that no checkpoint holds.")
    deterministic: bool | None = _option(
        None, "TensorFlow's op determinism; default: where a GPU is visible."
    )

    def __post_init__(self) -> None:
        for name, value in probe.settings(vars(self)).items():  # of a proof, where one is on
            object.__setattr__(self, name, value)
        object.__setattr__(self, "model_dir", _folder(self.model_dir))
        for name in ("keep_program_values", "private_flags"):
            object.__setattr__(self, name, _patterns(name, getattr(self, name)))
        if self.init_from is not None:
            object.__setattr__(self, "init_from", _folder(self.init_from, "init_from"))
        for name in ("max_steps", "epochs", "save_every_steps", "max_to_keep", "steps_per_call"):
            object.__setattr__(self, name, arguments.count(name, getattr(self, name)))
        for name in ("save_every_secs", "keep_every_n_hours", "max_secs", "max_process_secs"):
            _check_positive(name, getattr(self, name))
        if not (arguments.is_number(self.save_overhead) and 0 < self.save_overhead < 1):
            raise ValueError(
                f"save_overhead must be above 0 and below 1, got {self.save_overhead!r}"
            )
        if not (arguments.is_number(self.grace_secs) and self.grace_secs >= 0):
            raise ValueError(f"grace_secs must be a number of at least 0, got {self.grace_secs!r}")
        object.__setattr__(self, "stop_signals", _signals(self.stop_signals))
        if self.seed is not None:
            object.__setattr__(self, "seed", _seed(self.seed))
        if self.deterministic not in (None, True, False):
            raise ValueError(
                f"deterministic must be True, False or None, got {self.deterministic!r}"
            )
        for name in ("jit_compile", "async_save"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        object.__setattr__(
            self, "intra_op_threads", arguments.count("intra_op_threads", self.intra_op_threads)
        )
        _check_choice("resume", self.resume, ("auto", "required", "never"))
        _check_choice("data_position", self.data_position, ("auto", "saved", "replay"))
        _check_choice("on_save_error", self.on_save_error, ("warn", "raise"))
        _check_choice("on_nonfinite", self.on_nonfinite, ("raise", "rollback", "ignore"))
        arguments.count("max_rollbacks", self.max_rollbacks)


def _folder(path: Any, name: str = "model_dir") -> str:
    if path is None or (isinstance(path, str) and not path.strip()):
        what = "the folder of the run" if name == "model_dir" else "a checkpoint or a weights file"
        raise ValueError(f"{name} must name {what}, got {path!r}")
    try:
        text = os.fspath(path)
    except TypeError:
        raise ValueError(f"{name} must be a text or a path, got {path!r}") from None
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    return _absolute(text)


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def _patterns(name: str, patterns: Any) -> tuple[str, ...]:
    if not isinstance(patterns, tuple | list) or not all(isinstance(p, str) for p in patterns):
        raise ValueError(
            f"{name} must be a sequence of patterns such as ('optimizer/*',), got {patterns!r}"
        )
    return tuple(patterns)


def _signals(wanted: Any) -> tuple[str, ...]:
    """Returns names of signals, given by name, with or without "SIG", or as `signal.Signals`."""
    given = [wanted] if isinstance(wanted, str | int) else wanted
    found = []
    for one in given:
        name = one.name if isinstance(one, signal.Signals) else str(one).upper()
        name = name if name.startswith("SIG") else f"SIG{name}"
        reserved = (
            name in ("SIGKILL", "SIGSTOP", "SIGUSR1") or name not in signal.Signals.__members__
        )
        if reserved:
            raise ValueError(
                f"stop_signals must name signals such as 'SIGTERM' that a process can catch, and "
                f"not SIGUSR1, which saves; got {one!r}"
            )
        found.append(name)
    return tuple(dict.fromkeys(found))


def _check_positive(name: str, value: Any) -> None:
    if value is not None and not (arguments.is_number(value) and 0 < value < float("inf")):
        raise ValueError(f"{name} must be a number above 0 or None, got {value!r}")


def _seed(seed: Any) -> int:
    if not arguments.is_whole(seed, 0, 2**31):
        raise ValueError(f"seed must be a whole number from 0 to 2**31 - 1 or None, got {seed!r}")
    return int(seed)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
