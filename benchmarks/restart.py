"""What a start costs: the import of the package, and a restart beside a cold start.

    python benchmarks/restart.py                 every figure (about two minutes)
    python benchmarks/restart.py start           one of them

Figures: package, start, retry. Each start is a process of its own, in pairs (see pairs.py).
"""

import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import tempfile
import time

import pairs

DIGITS = pathlib.Path(__file__).parents[1] / "examples" / "digits.py"
ENVIRONMENT = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)  # as pip installs it: with its bytecode
BEFORE = 300  # steps in the run that is restarted
ALLOWED_SECS = 0.05

IMPORTS = """
import time
begun = time.perf_counter()
import tensorflow
half = time.perf_counter()
import trainer
trainer.Trainer, trainer.TrainerConfig, trainer.Hook, trainer.LogProgress, trainer.app, trainer.data
print(time.perf_counter() - half)
"""


def package(scratch):
    """Seconds to import every public part of the package, once TensorFlow is imported."""

    def extra():
        command = [sys.executable, "-c", IMPORTS]
        return float(subprocess.check_output(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL))

    extra()
    found = [extra() for _ in range(10)]
    result = pairs.Result("import trainer, beside the 50 ms allowed", found, [ALLOWED_SECS] * 10)
    print(result.line(1.0), flush=True)


def start(scratch):
    """Seconds from the command to the end of the first new step, saved."""
    prepared = os.path.join(scratch, "prepared")
    _train(prepared, BEFORE)
    numbers = iter(range(1000))

    def cold():
        return _train(os.path.join(scratch, f"cold-{next(numbers)}"), 1)

    def restarted():
        folder = os.path.join(scratch, f"restarted-{next(numbers)}")
        shutil.copytree(prepared, folder)
        return _train(folder, BEFORE + 1)

    found = pairs.alternate(10, restarted, cold, warm_up=0)
    result = pairs.Result("restart beside cold start, examples/digits.py", *found)
    print(result.line(1.15), flush=True)


def retry(scratch):
    """Seconds from an error of a device to the end of the next step, beside a restart."""
    prepared = os.path.join(scratch, "prepared")
    _train(prepared, BEFORE)
    import tensorflow as tf

    import trainer
    from trainer.run import inside

    program = runpy.run_path(str(DIGITS))["Digits"](trainer.TrainerConfig(prepared))
    loop, moments = inside.of(program).parts.loop, []

    def failing(iterator, limit, run=loop.run, **options):
        if not moments:
            moments.append(time.perf_counter())
            raise tf.errors.UnavailableError(None, None, "the device is away")
        call = run(iterator, limit, **options)
        moments.append(time.perf_counter())
        return call

    loop.run = failing

    def retried():
        moments.clear()
        program.train(steps=1)
        return moments[1] - moments[0]

    def restarted():
        folder = tempfile.mkdtemp(dir=scratch)
        shutil.copytree(prepared, folder, dirs_exist_ok=True)
        newest = max(int(path.name[5:]) for path in pathlib.Path(folder).glob("ckpt-*"))
        return _train(folder, newest + 1)

    found = pairs.alternate(6, retried, restarted)
    program.close()
    result = pairs.Result("retry in the process beside a restart, pause included", *found)
    print(result.line(0.1), flush=True)


def _train(folder, steps):
    command = [sys.executable, str(DIGITS), f"--model_dir={folder}", f"--max_steps={steps}"]
    begun = time.perf_counter()
    subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True)
    return time.perf_counter() - begun


FIGURES = {figure.__name__: figure for figure in (package, start, retry)}


if __name__ == "__main__":
    pairs.table(FIGURES, sys.argv[1:])
