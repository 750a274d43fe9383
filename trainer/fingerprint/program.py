"""The fingerprint of a program that is being constructed.

Owns putting its parts together, and what is said when a run goes on with another program. Promises
one warning at most, and silence where nothing differs or the checkpoint has no fingerprint. Refuses
to compare (see `compare`).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from trainer import config, errors
from trainer.base.log import LOG
from trainer.data import position
from trainer.fingerprint import compare, data, machine, settings, step, threads
from trainer.graph import inspection

ORDER = "trainer/data/order"  # the name by which `keep_program_values` excuses another order


class Fingerprint:
    """What a program is made of.

    Args:
        source: the training data.
        settings: the config.

    Attributes:
        saved: what a manifest holds of it; empty before `take`.
    """

    def __init__(self, source: position.Source, settings: config.TrainerConfig):
        self._source, self._settings = source, settings
        self._step: step.StepForm | None = None
        self.saved: dict[str, Any] = {}

    def take(self, function: Any, variables: Mapping[str, Any]) -> None:
        """Takes it, now that the step is traced and every variable has its name.

        Args:
            function: the train step as a concrete function.
            variables: name to variable.
        """
        names = {
            handle: name
            for name, variable in variables.items()
            for handle in inspection.handles([variable])
        }
        self._step = step.StepForm(function, names)
        self.saved = {
            "step": self._step.saved,
            "data": data.read(self._source),
            "settings": settings.read(self._settings),
            "machine": machine.read(),
        }

    def check(self, path: str, before: Mapping[str, Any] | None) -> None:
        """Refuses a checkpoint whose data came in another order.

        Args:
            path: folder of the checkpoint, for the message.
            before: its fingerprint, or None.

        Raises:
            CheckpointMismatchError: they did, and `keep_program_values` does not excuse it.
        """
        if before is None or order_is_free(self._settings):
            return
        refused = self._texts(before, compare.REFUSED)
        if refused:
            lines = [f"{ORDER}: {text}" for text in refused]
            lines.append(
                f"{ORDER}: the data would come in another order than in the unbroken run; make the "
                "pipeline as it was, with its seeds drawn inside train_dataset() or given with "
                f"seed=; keep_program_values=({ORDER!r},) goes on all the same"
            )
            raise errors.CheckpointMismatchError(path, [], [], lines)

    def say(self, number: int, before: Mapping[str, Any] | None) -> None:
        """Says how the program differs from the one that wrote a checkpoint.

        Args:
            number: the checkpoint's step.
            before: its fingerprint, or None.
        """
        if before is None:
            return
        grave = [*self._texts(before, compare.REFUSED), *self._texts(before, compare.WARNING)]
        if grave:
            LOG.warning(
                "the program is not the one that wrote checkpoint %d, so the run may not end where "
                "the unbroken run would have ended: %s. Run the former program if this was not "
                "meant%s",
                *(number, "; ".join(grave), self._advice(before)),
            )
        others = self._texts(before, compare.INFO)
        if others:
            LOG.info("changed since checkpoint %d: %s", number, "; ".join(others))

    def _advice(self, before: Mapping[str, Any]) -> str:
        wanted = before.get("machine", {}).get(threads.KEY)
        if wanted in (None, self.saved["machine"][threads.KEY]):
            return ""
        return f". {threads.advice(wanted)}"

    def _texts(self, before: Mapping[str, Any], level: str) -> list[str]:
        assert self._step is not None, "take() comes first"
        found = compare.differences(before, self.saved, self._step.lines)
        return [difference.text for difference in found if difference.level == level]


def order_is_free(settings: config.TrainerConfig) -> bool:
    """Tells whether the user goes on knowingly though the order of the data is not the run's."""
    return any(fnmatch.fnmatchcase(ORDER, pattern) for pattern in settings.keep_program_values)


def check_seeds(
    source: position.Source, before: data.Moment, settings: config.TrainerConfig
) -> None:
    """Refuses data whose seeds were drawn before the trainer seeded.

    Args:
        source: the training data.
        before: when the trainer seeded.
        settings: the config.

    Raises:
        UnseededDataError: they were, and `keep_program_values` does not excuse it.
    """
    stages = data.drawn_outside(source, before)
    if stages and not order_is_free(settings):
        raise errors.UnseededDataError(stages, ORDER)
    if stages:
        LOG.warning(
            "the seeds of %s were drawn before the trainer seeded: no restart has them, so a "
            "resumed run gets its data in another order",
            ", ".join(stages),
        )
