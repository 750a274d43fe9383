"""Fixtures for pytest, for users' own suites; pytest finds them by itself.

Owns the wording of the fixtures; what they do is in `exactness` and `prove`. Promises to load
nothing before a test asks for it. Refuses to keep a folder that pytest does not keep.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

import pytest


def pytest_configure() -> None:
    """A signal that a test sends to itself is meant for one run, not for the whole suite."""
    from trainer.run import signals

    signals.each_run_alone = True


@pytest.fixture
def model_dir(tmp_path: pathlib.Path) -> str:
    """Returns the folder of one run, which does not exist yet."""
    return str(tmp_path / "run")


@pytest.fixture
def resumes_exactly() -> Callable[..., None]:
    """Returns `trainer.testing.assert_resumes_exactly`: simulated crashes, in a second or two."""
    from trainer.testing import exactness

    return exactness.assert_resumes_exactly


@pytest.fixture
def proves_exact() -> Callable[..., list[str]]:
    """Returns a function that runs `python -m trainer prove` and asserts that it says "exact".

    Its arguments: `command`, which runs the whole program, such as
    `[sys.executable, "train.py", "--rate=0.1"]`, or `target`, FILE.py:CLASS, for the class alone,
    and `flags` for it; `steps` of each run; `kills` of the second run (SIGKILL, each ends a process
    of its own); `seed`. It returns the report, a text a line.
    """

    def check(
        target: str = "",
        *,
        steps: int,
        kills: int = 3,
        seed: int = 0,
        flags: Sequence[str] = (),
        command: Sequence[str] = (),
    ) -> list[str]:
        if bool(target) == bool(command):
            raise ValueError(f"give a target or a command, got {target!r} and {command!r}")
        words = tuple(str(word) for word in command)
        from trainer.testing import prove

        request = prove.Request(str(target), steps, kills, seed, tuple(flags), words)
        verdict = prove.prove(request)
        assert verdict.exact, "\n".join(verdict.lines)
        return verdict.lines

    return check
