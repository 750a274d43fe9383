"""One run of a proof: the program of a user, trained in this process and perhaps killed in it.

Owns the process that `prove` starts. Promises to kill itself once armed, at the latest when the run
ends. Refuses to be run by hand: its one argument is a job that `prove` wrote.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import threading
from typing import Any

from absl import flags

from trainer import app
from trainer.base import digests
from trainer.hooks import context
from trainer.hooks.hook import Hook
from trainer.run import inside, preflight
from trainer.testing import exactness


class _KillSoonAfter(Hook):
    """Kills the process some time after a step, wherever it is then."""

    def __init__(self, step: int, delay: float):
        self._step = step
        self._delay = delay
        self._armed = False

    def begin(self, ctx: context.RunContext) -> None:
        """Arms at once if the run was resumed past the step."""
        if ctx.step >= self._step:
            self._arm()

    def after_step(self, ctx: context.RunContext) -> None:
        """Arms at the step."""
        if ctx.step == self._step:
            self._arm()

    def end(self, ctx: context.RunContext) -> None:
        """Kills now if armed: an armed run must not end alive."""
        if self._armed:
            _kill()

    def get_state(self) -> dict[str, Any]:
        """Returns nothing: a kill is no part of the run."""
        return {}

    def _arm(self) -> None:
        self._armed = True
        timer = threading.Timer(self._delay, _kill)
        timer.daemon = True
        timer.start()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def load_class(target: str) -> Any:
    """Returns the class that FILE.py:CLASS names.

    Args:
        target: the file and the class.

    Raises:
        ValueError: there is no such file or class.
    """
    path, _, name = target.rpartition(":")
    if not os.path.isfile(path):
        raise ValueError(f"{target!r}: there is no file {path!r}; write FILE.py:CLASS")
    stem = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{target!r}: {path!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise ValueError(f"{target!r}: {path} has no class {name!r}")
    return getattr(module, name)


def main() -> None:
    """Runs the job in the first argument."""
    job = json.loads(sys.argv[1])
    program_class = load_class(job["target"])
    app.define_flags()
    often = max(1, job["steps"] // 10)
    arguments = [
        job["target"],
        f"--save_every_steps={often}",
        *job["flags"],
        f"--model_dir={job['folder']}",
        f"--max_steps={job['steps']}",
    ]
    app.parse(arguments)
    extra = [] if job["kill_step"] is None else [_KillSoonAfter(job["kill_step"], job["delay"])]
    with program_class(app.config_from_flags(flags.FLAGS), hooks=extra) as program:
        program.train()
        named = exactness.state_digests(program)
        source = inside.of(program).parts.progress.source
        certain, possible = preflight.suspects(program.compiled_step, source)
    report = {
        "digests": named,
        "digest": digests.combined(named),
        "hidden": [f"{where}: {what}" for where, what in certain],
        "possible": [f"{where}: {what}" for where, what in possible],
        "step": program.step,
    }
    with open(f"{job['folder']}.json", "w") as file:
        json.dump(report, file)


if __name__ == "__main__":
    main()
