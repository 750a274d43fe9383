"""The versions that are supported, tested: `make versions`.

The whole suite on the oldest and on the newest pair of Python and TensorFlow, the core on those
between. A session whose Python is missing fails, and says so; the others are run all the same.
"""

import os
import shutil
import subprocess

import nox

nox.options.error_on_missing_interpreters = True
nox.options.stop_on_first_error = False

# State, resume, conformance, checkpoints and data; and what rests on TensorFlow's inner parts.
CORE = (
    *("test_base_versions.py", "test_state.py", "test_run_resume.py", "test_run_conformance.py"),
    *("test_checkpoints.py", "test_data.py", "test_data_indexed.py", "test_data_stages.py"),
    *("test_graph_calls.py", "test_run_saving.py", "test_run_bad_input.py"),
)
PAIRS = (
    nox.param("3.10", "tensorflow==2.16.2", (), id="oldest"),
    nox.param("3.11", "tensorflow==2.18.1", CORE, id="2.18"),
    nox.param("3.12", "tensorflow==2.20.0", CORE, id="2.20"),
    nox.param("3.13", "tensorflow", (), id="newest"),
)


def let_pyenv_find_them():
    """Has pyenv's commands, such as python3.10, find every version it has, not a global one."""
    if shutil.which("pyenv") and "PYENV_VERSION" not in os.environ:
        listed = subprocess.run(
            ["pyenv", "versions", "--bare"], capture_output=True, text=True, check=True
        )
        os.environ["PYENV_VERSION"] = ":".join(reversed(listed.stdout.split()))


let_pyenv_find_them()


@nox.session
@nox.parametrize(("python", "tensorflow", "files"), PAIRS)
def versions(session, tensorflow, files):
    """Installs the package beside one TensorFlow and tests what is installed."""
    shutil.rmtree("build", ignore_errors=True)  # or files that are gone would be installed
    session.install(".[examples,test]", tensorflow)
    session.run("python", "-m", "pip", "check")
    session.chdir("tests")
    session.run(
        *("python", "-c"),
        "from trainer.base import versions; print(versions.tensorflow(), versions.installed())",
    )
    session.run(
        *("pytest", "--numprocesses=2", *session.posargs, *files),
        env={"UNBROKEN_INSTALLED": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
