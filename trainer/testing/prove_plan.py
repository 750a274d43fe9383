"""Where a proof kills.

Owns the choice: one kill in a compiled call, then one each in the construction, the first save, a
hook, an evaluation, another save and the recovery, as far as the program has them, and then more of
those that can be anywhere in a run. Promises that the seed and the program decide, and nothing
else. Refuses to run anything.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.base import probe

_FIRST_SAVE = "first save"
_LONGEST_SECS = {probe.STEP: 0.05, probe.HOOK: 0.02, probe.EVALUATION: 0.02}
_STEPS_LATER = 3  # a kill in a compiled call comes so many steps after it is armed at most
_POINTS = {probe.CONSTRUCTION: 2, probe.RECOVERY: 2, probe.SAVE: 3}
_SPECIAL = (
    probe.CONSTRUCTION,
    _FIRST_SAVE,
    probe.HOOK,
    probe.EVALUATION,
    probe.SAVE,
    probe.RECOVERY,
)


@dataclasses.dataclass(frozen=True)
class Planned:
    """A kill, and what to call it.

    Args:
        kill: the kill.
        words: where it is to be.
    """

    kill: probe.Kill
    words: str


class Plan:
    """The kills of one proof, in order.

    Args:
        seed: of the choice.
        kills: how many.
    """

    def __init__(self, seed: int, kills: int):
        self._random = random.Random(seed)
        special = self._random.sample(_SPECIAL, len(_SPECIAL))
        more = [probe.STEP, probe.HOOK, probe.STEP, probe.EVALUATION, probe.STEP, probe.SAVE]
        kinds = [probe.STEP, *special]
        while len(kinds) < kills:
            kinds.append(self._random.choice(more))
        self._kinds = kinds[:kills]

    def early(self) -> list[Planned]:
        """Returns the kills before there is a checkpoint, which need not know the program."""
        first = probe.CONSTRUCTION, _FIRST_SAVE
        return [self._placed(kind) for kind in sorted({*self._kinds} & {*first})]

    def late(
        self, runs: Mapping[str, dict[str, Any]], places: Sequence[Mapping[str, Any]]
    ) -> list[Planned]:
        """Returns the others.

        Args:
            runs: what the unbroken runs reported.
            places: where kills in hooks and evaluations are possible.
        """
        order = list(runs)
        weights = [max(1, runs[name]["step"]) for name in order]
        chosen: list[Planned] = []
        for kind in self._kinds:
            if kind in (probe.CONSTRUCTION, _FIRST_SAVE, probe.RECOVERY):
                continue
            run = self._random.choices(order, weights)[0]
            steps = [p["step"] for p in places if p["place"] == kind and p["run"] == run]
            if not steps and kind in (probe.HOOK, probe.EVALUATION):
                kind = probe.STEP  # noqa: PLW2901 (this program has none)
            step = self._random.choice(steps or range(1, max(1, runs[run]["step"]) + 1))
            # The first is right between two steps: of those after it, some come to the run's end.
            soon = 0.0 if not any(p.kill.place == probe.STEP for p in chosen) else runs[run]["secs"]
            chosen.append(self._placed(kind, run, step, soon * _STEPS_LATER))
        chosen.sort(key=lambda planned: (order.index(str(planned.kill.run)), planned.kill.step))
        if probe.RECOVERY in self._kinds:
            chosen.append(
                self._placed(probe.RECOVERY, chosen[-1].kill.run if chosen else order[-1])
            )
        return chosen

    def _placed(
        self, kind: str, run: str | None = None, step: int = 0, soon: float = 1.0
    ) -> Planned:
        place = probe.SAVE if kind == _FIRST_SAVE else kind
        passes = self._random.randrange(_POINTS[place]) if place in _POINTS else 0
        longest = _LONGEST_SECS.get(place, 0.0)
        secs = self._random.uniform(0, min(longest, soon) if place == probe.STEP else longest)
        words = {
            probe.STEP: f"armed at step {step}",
            probe.HOOK: f"in a hook from step {step} on",
            probe.EVALUATION: f"in an evaluation from step {step} on",
            probe.SAVE: f"in a save from step {step} on",
            _FIRST_SAVE: "in the first save",
            probe.CONSTRUCTION: "in the construction",
            probe.RECOVERY: "in the recovery",
        }
        return Planned(probe.Kill(place, run, step, passes, secs), words[kind])
