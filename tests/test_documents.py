"""The documents tell the truth: their suite passes, their engines restart, their names exist.

What each page says is run by `test_documents_pages.py`.
"""

import configparser
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

import trainer

from conftest import HERE
from support import documents

ROOT = HERE.parent
STOP_AND_RESTART = ROOT / "docs" / "how-to" / "stop-and-restart.md"
BUILD = (ROOT / "BUILD.md").read_text()


def test_the_suite_to_copy_passes(tmp_path):
    page = ROOT / "docs" / "how-to" / "test-your-program.md"
    suite = next(block for block in documents.blocks(page) if block.title == "test_digits.py")
    (tmp_path / "test_digits.py").write_text(suite.text)
    (tmp_path / "digits.py").write_text(documents.program_of_the_readme())
    found = importlib.metadata.entry_points(group="pytest11")
    installed = any(point.value == "trainer.testing.pytest_plugin" for point in found)
    plugin = [] if installed else ["-p", "trainer.testing.pytest_plugin"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "test_digits.py"],
        cwd=tmp_path,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "6 passed" in result.stdout, result.stdout


def test_the_snippets_for_engines_have_the_statuses_of_the_program():
    snippets = {block.language: block.text for block in documents.blocks(STOP_AND_RESTART)}
    assert re.search(r"Ignore .*?values: \[75\]", snippets["yaml"], re.DOTALL)
    assert re.search(r"FailJob .*?values: \[2, 130\]", snippets["yaml"], re.DOTALL)
    unit = configparser.ConfigParser()
    unit.read_string(snippets["ini"])
    assert unit["Service"]["RestartForceExitStatus"] == "75"
    assert unit["Service"]["RestartPreventExitStatus"] == "2 130"
    subprocess.run(["bash", "-n", "-c", snippets["bash"]], check=True)


def test_the_script_for_slurm_requeues_what_was_preempted(tmp_path):
    """With stand-ins for `srun`, `scontrol` and the program: a signal, a save, a requeue."""
    script = next(b.text for b in documents.blocks(STOP_AND_RESTART) if b.title == "job.sh")
    tools = {
        "srun": 'shift; exec "$@"',
        "scontrol": f'echo "$@" >> {tmp_path}/requeued',
        "python": "trap 'sleep 0.3; exit 75' TERM\n"
        f"touch {tmp_path}/up; while :; do sleep 0.05; done",
    }
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}", SLURM_JOB_ID="17")
    process = subprocess.Popen(["bash", "-c", script], env=environment)
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    process.terminate()
    assert process.wait(20) == 75
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"


def test_every_promise_names_a_test_that_exists():
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \| (.*) \|$", BUILD, re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(1, 11))
    package = pathlib.Path(trainer.__file__).parent
    for _, where, cell in rows:
        for file in re.findall(r"`([\w/]+\.py)`", where):
            assert (package / file).exists(), file
        tests = re.findall(r"`(\w+\.py)::(\w+)`", cell)
        assert tests
        for file, name in tests:
            assert f"def {name}(" in (HERE / file).read_text(), f"{file}::{name}"


@pytest.mark.parametrize("document", ["README.md", "BUILD.md", "CHANGELOG.md"])
def test_paths_and_names_in_documents_exist(document):
    text = (ROOT / document).read_text()
    for path in re.findall(r"\]\(([\w/.]+\.(?:md|py))\)", text):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`trainer\.(?!py\b)(?:testing\.|app\.)?(\w+)", text):
        modules = (trainer, trainer.testing, trainer.app)
        assert any(hasattr(module, name) for module in modules), name


def test_every_module_is_in_the_plan_of_the_house():
    plan = re.search(r"## The house\n(.*?)\n## ", BUILD, re.DOTALL)[1]
    package = pathlib.Path(trainer.__file__).parent
    for path in package.rglob("*.py"):
        if path.stem not in ("__init__", "__main__"):
            assert re.search(rf"\b{path.stem}\b", plan), path.stem
