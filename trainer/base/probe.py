"""What a proof of exact resume asks of a process that trains.

Owns the environment variable under which `python -m trainer prove` starts a program, the settings
that it puts in place of the program's own, and the kill. Promises that nothing changes where the
variable is not set; that a kill leaves a mark beforehand, which says where it was, so that a proof
knows that it happened; and that one kill happens once, in however many processes the program runs.
Refuses to report what a run did (see `run.witness`), or to choose a place (see `testing`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

VARIABLE = "UNBROKEN_PROOF"  # names the file of a job
STEP, HOOK, EVALUATION, SAVE = "step", "hook", "evaluation", "save"
CONSTRUCTION, RECOVERY = "construction", "recovery"
# Where a run comes by for certain until its end, so that at its end at the latest it is killed.
_DURING_A_RUN = (STEP, HOOK, SAVE)
_NOTHING = contextlib.nullcontext()


@dataclasses.dataclass(frozen=True)
class Kill:
    """Where to kill a process.

    Args:
        place: one of the places above.
        run: name of the run; None: any.
        step: the first step at which it may be.
        passes: how many such points to let pass.
        secs: how long after the point, unless the place is left before.
    """

    place: str
    run: str | None = None
    step: int = 0
    passes: int = 0
    secs: float = 0.0


@dataclasses.dataclass(frozen=True)
class Job:
    """What a proof asks of a process.

    Args:
        folder: the runs' folders are made in it; what they report goes beside it.
        steps: steps in total.
        seed: of a run whose program gives none.
        mark: file that says that the kill has happened.
        survey: whether to note where a kill would be possible.
        kill: the kill, or None.
    """

    folder: str
    steps: int
    seed: int
    mark: str = ""
    survey: bool = False
    kill: Kill | None = None


def write(job: Job, path: str) -> None:
    """Writes a job for `VARIABLE` to name."""
    with open(path, "w") as file:
        json.dump(dataclasses.asdict(job), file)


@functools.cache
def job() -> Job | None:
    """Returns the job of this process, or None, as nearly always."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    with open(path) as file:
        read = json.load(file)
    kill = read.pop("kill")
    return Job(**read, kill=None if kill is None else Kill(**kill))


# What construction warns of.


class _Ear(logging.Handler):
    """Keeps the warnings that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


_EAR = _Ear()


def listen(log: logging.Logger) -> None:
    """A construction begins: what is warned of from here on is about it."""
    if job() is not None:
        _EAR.heard.clear()
        log.addHandler(_EAR)


def heard() -> list[str]:
    """Returns what was warned of since the last construction began."""
    return list(_EAR.heard)


# In place of the program's settings.


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a run that are to be put in place of the program's.

    Args:
        given: the program's, by the names of `TrainerConfig`.
    """
    found = job()
    if found is None:
        return {}
    often, every = max(1, found.steps // 10), given["save_every_steps"]
    rare = every is None or (isinstance(every, int) and every >= found.steps)
    new = {
        "model_dir": os.path.join(found.folder, _name(given["model_dir"])),
        "max_steps": found.steps,
        # A run that is not saved before its end would be proved to begin anew, and nothing else.
        "save_every_steps": often if rare else every,
    }
    return new if given["seed"] is not None else {**new, "seed": found.seed}


def run_of(model_dir: str) -> str:
    """Returns the name of the run in a folder."""
    return _name(model_dir).replace(os.sep, ".")


_names: dict[str, str] = {}


def _name(model_dir: Any) -> str:
    """Returns where in a job's folder a folder of the program's is to be: there already, or under
    its own name, with a number if another of that name is."""
    inner = os.path.relpath(_text(model_dir), _job().folder)
    if not inner.startswith("..") and inner != os.curdir:
        return inner
    path = os.path.abspath(_text(model_dir))
    if path not in _names:
        name = os.path.basename(path) or "run"
        taken = sum(os.path.basename(other) == name for other in _names)
        _names[path] = f"{name}-{taken + 1}" if taken else name
    return _names[path]


def _text(model_dir: Any) -> str:
    return os.fsdecode(model_dir) if model_dir else "run"


_idle: dict[str, int] = {}


def goal(model_dir: str, here: int, wanted: int | None) -> int | None:
    """Returns the step to which a `train()` shall go: the wanted one, or the proof's last.

    Args:
        model_dir: folder of the run.
        here: completed steps.
        wanted: the step that was asked for; None: the end of the data.

    Raises:
        RuntimeError: the program asks for more again and again.
    """
    found = job()
    if found is None or (wanted is not None and wanted <= found.steps):
        return wanted
    if here >= found.steps:
        _idle[model_dir] = _idle.get(model_dir, 0) + 1
        if _idle[model_dir] > 2:
            raise RuntimeError(
                f"train() was called again and again at step {here}, where the proof ends "
                f"(--steps={found.steps}): let the program's loop end at config.max_steps, or "
                "give the proof as many steps as the program takes"
            )
    return found.steps


# The kill.


class _Killer:
    """The kill of this process."""

    def __init__(self, kill: Kill):
        self.kill = kill
        self.armed = False
        self._passed = 0
        self._dying = threading.Lock()

    def is_here(self, place: str, model_dir: str, step: int) -> bool:
        """Tells whether the kill is to be at this point, which counts it."""
        kill = self.kill
        if self.armed or kill.place != place or step < kill.step or not self.is_of(model_dir):
            return False
        self._passed += 1
        return self._passed > kill.passes

    def is_of(self, model_dir: str) -> bool:
        """Tells whether the run in a folder is the one to kill."""
        return self.kill.run is None or self.kill.run == run_of(model_dir)

    def arm(self, where: str) -> None:
        """Kills soon, wherever the process is then."""
        self.armed = True
        timer = threading.Timer(self.kill.secs, lambda: self.now(where))
        timer.daemon = True
        timer.start()

    def now(self, where: str) -> None:
        """Leaves the mark and kills the process, once in all processes."""
        with self._dying:  # a second thread that comes here goes no further
            try:
                with open(_job().mark, "x") as mark:
                    mark.write(where)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


def at(place: str, model_dir: str, step: int = 0, what: str = "") -> None:
    """A point at which a process may be killed.

    Args:
        place: the place.
        model_dir: folder of the run.
        step: completed steps.
        what: what is done there, in words.
    """
    if job() is None:
        return
    killer = _killer()
    if killer is not None and killer.is_here(place, model_dir, step):
        if place == STEP and killer.kill.secs:
            killer.arm(f"{killer.kill.secs * 1000:.0f} ms after step {step}")
        else:
            killer.now(what or f"right after step {step}")


def inside(
    place: str, model_dir: str, step: int, what: str = ""
) -> contextlib.AbstractContextManager[None]:
    """A place in which a process may be killed: soon after it is entered, or when it is left.

    Args:
        place: the place.
        model_dir: folder of the run.
        step: completed steps.
        what: what is done there, in words.
    """
    return _NOTHING if job() is None else _inside(place, model_dir, step, what or "there")


def calling(
    hook: str, method: Callable[..., Any], ctx: Any
) -> contextlib.AbstractContextManager[None]:
    """A call of a hook, as a place, while a proof is on: not a call that every hook inherits.

    Args:
        hook: its key.
        method: the method that is called.
        ctx: the context that it is given.
    """
    if getattr(method, "__module__", "") == "trainer.hooks.hook":
        return _NOTHING
    what = f"{hook}.{getattr(method, '__name__', '?')}"
    return _inside(HOOK, ctx.trainer.model_dir, ctx.step, what)


@contextlib.contextmanager
def _inside(place: str, model_dir: str, step: int, what: str) -> Iterator[None]:
    if _job().survey:
        line = {"run": run_of(model_dir), "place": place, "step": step}
        with open(f"{_job().folder}.places", "a") as file:
            file.write(json.dumps(line) + "\n")
    killer = _killer()
    here = killer is not None and killer.is_here(place, model_dir, step)
    if killer is not None and here:
        killer.arm(f"{what} at step {step}")
    yield
    if killer is not None and here:
        killer.now(f"{what} at step {step}")


def boundary(model_dir: str, step: int, end: int | None) -> int | None:
    """Returns the step at which a call must end: where the kill is armed, or the run's end.

    Args:
        model_dir: folder of the run.
        step: completed steps.
        end: the run's end; None if it is not known.
    """
    killer = None if job() is None else _killer()
    if killer is None or killer.kill.place != STEP or not killer.is_of(model_dir):
        return end
    armed_at = killer.kill.step
    return end if armed_at <= step or (end is not None and end < armed_at) else armed_at


def at_end(model_dir: str, step: int) -> None:
    """The end of a run: one that was to be killed at this step or before does not survive it.

    Args:
        model_dir: folder of the run.
        step: completed steps.
    """
    killer = None if job() is None else _killer()
    if killer is None or killer.kill.place not in _DURING_A_RUN or step < killer.kill.step:
        return
    if killer.is_of(model_dir):
        killer.now(f"at the end of the run, at step {step}")


def _job() -> Job:
    found = job()
    assert found is not None
    return found


@functools.cache
def _killer() -> _Killer | None:
    found = _job()
    if found.kill is None or os.path.exists(found.mark):
        return None
    return _Killer(found.kill)
