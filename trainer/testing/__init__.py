"""Tools for users' own tests of their training programs: `trainer.testing`.

Owns the comparison of runs in one process (`exactness`), the faults to put a program through
(`faults`), the proof with real kills (`prove`, and `prove_run` in the processes that it starts),
and the fixtures for pytest (`pytest_plugin`). Promises that a check fails when the crash that it
asked for did not happen. Refuses to change how a trainer trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.base import lazy

if TYPE_CHECKING:
    from trainer.testing.exactness import assert_resumes_exactly as assert_resumes_exactly
    from trainer.testing.exactness import state_digest as state_digest
    from trainer.testing.exactness import state_digests as state_digests
    from trainer.testing.faults import CrashAt as CrashAt
    from trainer.testing.faults import FullDisk as FullDisk
    from trainer.testing.faults import KillAt as KillAt
    from trainer.testing.faults import NonFiniteAt as NonFiniteAt
    from trainer.testing.faults import SignalAt as SignalAt
    from trainer.testing.faults import SimulatedCrash as SimulatedCrash
    from trainer.testing.faults import SlowDisk as SlowDisk
    from trainer.testing.faults import corrupt as corrupt

_FAULTS = ("CrashAt", "FullDisk", "KillAt", "NonFiniteAt", "SignalAt", "SimulatedCrash")
_HOMES = {
    **dict.fromkeys((*_FAULTS, "SlowDisk", "corrupt"), "trainer.testing.faults"),
    **dict.fromkeys(
        ("assert_resumes_exactly", "state_digest", "state_digests"), "trainer.testing.exactness"
    ),
}
__all__ = list(_HOMES)

__getattr__ = lazy.names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
