"""The global generators as one trainer sees them.

Owns the turns: the global generators are a trainer's own while it is constructed and while it
trains. Promises that what another trainer, or the program between two calls, draws meanwhile
changes nothing for it. Refuses to keep two trainers apart that work at the same time in threads,
and says so.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping

from trainer.base.log import LOG
from trainer.state import seeds

_LOCK = threading.Lock()
_AT_WORK: list[tuple[int, Generators]] = []  # the thread of each turn, in the order they began


class Generators:
    """The states of the global generators that belong to one trainer.

    Args:
        owner: the trainer's folder, for a warning.
    """

    def __init__(self, owner: str):
        self._owner = owner
        self._own: seeds.States | None = None
        self._built: seeds.States | None = None
        self._turns = 0

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Makes the global generators this trainer's own; one that it cut into has them back."""
        thread = threading.get_ident()
        with _LOCK:
            others = [found for found in _AT_WORK if found[1] is not self]
            _AT_WORK.append((thread, self))
        beside = [other for at, other in others if at != thread]
        outer = seeds.capture() if others else None
        if beside:
            self._warn(beside[0])
        elif self._own is not None and not self._turns:
            seeds.install(self._own)
        self._turns += 1
        try:
            yield
        finally:
            self._turns -= 1
            self._own = seeds.capture()
            with _LOCK:
                _AT_WORK.remove((thread, self))
            if outer is not None and not beside:
                seeds.install(outer)

    def built(self) -> None:
        """Takes note of the states that each start has when all is made and nothing is restored."""
        self._built = seeds.capture()

    def texts(self) -> dict[str, str]:
        """Returns what a checkpoint holds of them.

        TensorFlow's and Keras's are left out while they are where each start finds them.
        """
        states = self._states()
        moved = states.differing(self._built or states)
        return states.texts(tensorflow="TensorFlow's" in moved, keras="Keras's" in moved)

    def take(self, texts: Mapping[str, str]) -> None:
        """Takes back what `texts` returned."""
        states = (self._built or seeds.capture()).with_texts(texts)
        if self._turns:
            seeds.install(states)
        else:
            self._own = states

    def _states(self) -> seeds.States:
        return self._own if self._own is not None and not self._turns else seeds.capture()

    def _warn(self, other: Generators) -> None:
        LOG.warning(
            "two trainers of this process are at work at the same time, in %s and %s: what a hook, "
            "a Python source or an augmentation of either draws from the global generators of "
            "Python, NumPy and TensorFlow depends on the other, so a resumed run may differ; give "
            "each a process of its own, or draw from generators held as attributes",
            other._owner,
            self._owner,
        )
