"""The proof of exact resume on a user's own program.

Owns the comparison of an unbroken run with a run that is killed again and again. Promises that each
run is a process of its own, that a kill is a SIGKILL at a place drawn with the seed (see
`prove_plan`), that the proof fails if a kill did not happen, and that a program whose unbroken runs
differ already is called not deterministic. Refuses to say "exact" for a step with an operation
whose state no checkpoint can hold.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence

from trainer.base import digests, probe
from trainer.testing import prove_words
from trainer.testing.prove_lives import Life, ProofError, Told, command_of
from trainer.testing.prove_plan import Plan, Planned

_LEFT_OUT = (
    "left out: the hooks of the program, the defaults that it gives app.run, and its end; "
    "`prove ... -- python {file}` proves the whole program"
)
_OUTSIDE = (
    "something that a restart loses and no checkpoint holds: attributes of Python that are no "
    "variables, global state, files that the program writes"
)
_CHANCE = (
    "something that no seed decides: time, threads, the order of a set, another process; "
    "deterministic=True makes TensorFlow's own operations give the same bits"
)


@dataclasses.dataclass(frozen=True)
class Request:
    """What to prove.

    Args:
        target: FILE.py:CLASS, or "" where there is a command.
        steps: steps of each run.
        kills: kills of the second run.
        seed: of the places of the kills, and of the runs unless the program gives one.
        flags: flags for the target.
        command: the command that runs the whole program.
    """

    target: str
    steps: int
    kills: int
    seed: int
    flags: Sequence[str] = ()
    command: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of it.

    Args:
        exact: both runs ended in the same state, and alike.
        lines: the report.
        word: "exact", "not exact", "not deterministic" or "not proved".
        differs: the first thing that differs, or None.
        suspects: what may be the cause, the likeliest first.
    """

    exact: bool
    lines: list[str]
    word: str = ""
    differs: prove_words.Difference | None = None
    suspects: Sequence[str] = ()


def prove(request: Request) -> Verdict:
    """Runs the proof."""
    with tempfile.TemporaryDirectory(prefix="trainer-prove-") as scratch:
        proof = _Proof(request, scratch)
        try:
            return proof.run()
        except ProofError as error:
            return Verdict(False, [*proof.lines, f"not proved: {error}"], "not proved")
        finally:
            proof.end()


class _Proof:
    """One proof: the unbroken run, the killed one, and another unbroken one if they differ."""

    def __init__(self, request: Request, scratch: str):
        self._request = request
        self._scratch = scratch
        self._plan = Plan(request.seed, request.kills)
        self._lives: list[Life] = []
        self._cut = 0  # processes of the cut run
        self._kills: list[str] = []
        self.lines = [] if request.command else [_left_out(request.target)]

    def run(self) -> Verdict:
        """Runs all that is needed and judges."""
        unbroken = self._start("unbroken", survey=True)  # it has a core of its own
        for planned in self._plan.early():
            self._kill(planned)
        expected = _whole(unbroken, "the unbroken run")
        ended = True
        for planned in self._plan.late(expected.runs, unbroken.places()):
            ended = self._kill(planned, expected)
            if not ended:
                break
        seen = _whole(self._start("cut") if ended else self._lives[-1], "the last resume")
        self.lines += [
            *(f"unbroken run{_of(name, expected)}" for name in expected.runs),
            *self._kills,
            *(f"cut run{_of(name, seen)}" for name in seen.runs),
        ]
        return self._judge(expected, seen)

    def end(self) -> None:
        """Ends what still runs."""
        for life in self._lives:
            life.end()

    def _start(self, name: str, *, survey: bool = False, kill: probe.Kill | None = None) -> Life:
        request, folder, number = self._request, os.path.join(self._scratch, name), 0
        if name == "cut":
            number, self._cut = self._cut, self._cut + 1
        job = probe.Job(
            folder, request.steps, request.seed, f"{folder}.{number}.mark", survey, kill
        )
        command = command_of(request.target, request.flags, request.command)
        self._lives.append(Life(command, number, job))
        return self._lives[-1]

    def _kill(self, planned: Planned, expected: Told | None = None) -> bool:
        """Runs a process to be killed. Returns whether it was.

        One that came to another end than the unbroken run, before it was killed, has shown that
        they differ.
        """
        kill, number = planned.kill, len(self._kills) + 1
        steps = _newest(os.path.join(self._scratch, "cut"))
        if kill.place == probe.RECOVERY and kill.run not in steps:  # there is nothing to recover
            kill = dataclasses.replace(kill, place=probe.CONSTRUCTION)
        life = self._start("cut", kill=kill)
        where = life.was_killed()
        if where is None:
            told = life.told()
            if expected and told.runs and prove_words.difference(expected, told) is not None:
                self._kills.append(f"kill {number}: {planned.words}; the run ended before it")
                return False
            raise ProofError(
                f"kill {number}, {planned.words}, did not happen: the process ended with status "
                f"{life.status()}\n{life.tail()}"
            )
        steps = _newest(os.path.join(self._scratch, "cut"))
        one = len(steps) == 1 and len(expected.runs if expected else ()) <= 1
        newest = ", ".join(f"{'' if one else run} {step}".strip() for run, step in steps.items())
        self._kills.append(
            f"kill {number}: {planned.words}: {where}; newest checkpoint {newest or 'none'}"
        )
        return True

    def _judge(self, expected: Told, seen: Told) -> Verdict:
        found = prove_words.difference(expected, seen)
        hidden = [
            f"hidden state: {text}" for run in expected.runs.values() for text in run["hidden"]
        ]
        lines = [*self.lines, *hidden]
        if found is None and hidden:
            word = "not proved"
            lines.append("NOT proved: the digests are equal, yet the operations above may differ")
            return Verdict(False, lines, word, suspects=prove_words.suspects(expected))
        if found is None:
            count = sum(len(run["digests"]) for run in expected.runs.values())
            lines.append(
                f"exact: {count} names equal after {self._request.kills} kills, and the same end"
            )
            return Verdict(True, lines, "exact")
        again = _whole(self._start("again"), "the second unbroken run")
        chance = prove_words.difference(expected, again)
        suspects = prove_words.suspects(expected)
        if chance is None:
            lines += [f"NOT exact: {line}" for line in found.lines("cut")]
            lines.append("a second unbroken run ended as the first did")
            suspects.append(_OUTSIDE)
        else:
            lines += [f"NOT deterministic: {line}" for line in chance.lines("again")]
            lines.append("two unbroken runs differ already, so nothing is known of a cut one")
            suspects.append(_CHANCE)
        lines += [f"suspect {number}: {text}" for number, text in enumerate(suspects, 1)]
        word = "not exact" if chance is None else "not deterministic"
        return Verdict(False, lines, word, chance or found, suspects)


def _whole(life: Life, name: str) -> Told:
    """Waits for a run that must come to its end, and returns what it reported."""
    told = life.told()
    wrong = next((report["error"] for report in told.runs.values() if report["error"]), None)
    if told.runs and wrong is None and told.status >= 0:
        return told
    if not told.runs and told.status == 0:
        raise ProofError(
            f"{name} trained nothing: the command ended without a train() of this package\n"
            f"{told.log}"
        )
    raise ProofError(f"{name} ended with status {told.status}\n{told.log}")


def _of(name: str, told: Told) -> str:
    report = told.runs[name]
    which = "" if len(told.runs) == 1 else f" {name}"
    return (
        f"{which}: {report['step']} steps ({str(report['reason']).replace('_', ' ')}), status "
        f"{told.status}, digest {digests.combined(report['digests'])[:16]}"
    )


def _left_out(target: str) -> str:
    return _LEFT_OUT.format(file=target.rpartition(":")[0])


def _newest(folder: str) -> dict[str, int]:
    """Returns the step of the newest checkpoint of each run in a folder that has one."""
    from trainer.checkpoints import store

    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = {name: store.Store(os.path.join(folder, name)).newest() for name in names}
    return {name: newest.step for name, newest in found.items() if newest is not None}
