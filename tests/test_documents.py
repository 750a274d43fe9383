"""The documents tell the truth: their programs run, their names exist."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import trainer

from conftest import HERE

ROOT = HERE.parent
README = (ROOT / "README.md").read_text()
BUILD = (ROOT / "BUILD.md").read_text()


def test_the_program_of_the_readme_runs_and_resumes(tmp_path):
    program = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    (tmp_path / "digits.py").write_text(program)

    def run(steps):
        return subprocess.run(
            [sys.executable, "digits.py", "--model_dir=runs/digits", f"--max_steps={steps}"],
            cwd=tmp_path,
            env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
            capture_output=True,
            text=True,
            check=True,
        ).stderr

    assert "finished at step 200" in run(200)
    assert "resumed at step 200" in run(300)


def test_every_promise_names_a_test_that_exists():
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", BUILD, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 11))
    for _, cell in rows:
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
        if path.stem not in ("__init__", "__main__") and path.parent.name != "stock_hooks":
            assert re.search(rf"\b{path.stem}\b", plan), path.stem
