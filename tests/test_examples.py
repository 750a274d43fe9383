"""The examples run, and do what their texts say."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def run(name, *arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=cwd,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", **environment),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_demonstration(tmp_path):
    result = run("demo.py", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "resumed at step 120" in result.stdout
    digests = re.findall(r"digest, (?:un)?broken run +(\w{64})", result.stdout)
    assert len(digests) == 2
    assert digests[0] == digests[1]


def test_the_guides_loop(tmp_path):
    flags = ("--model_dir=run", "--max_steps=80", "--seed=1")
    broken = run("custom_loop.py", *flags, "--fail_at_step=50", cwd=tmp_path)
    assert broken.returncode == 1
    assert "RuntimeError: Interruption" in broken.stderr
    assert "checkpoint 49 stands" in broken.stderr
    resumed = run("custom_loop.py", *flags, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed at step 49" in resumed.stderr
    kept = sorted(path.name for path in (tmp_path / "run").glob("ckpt-*"))
    assert kept == ["ckpt-79", "ckpt-80"]


def test_a_digits_run_needs_a_folder(tmp_path):
    assert run("digits.py", "--max_steps=3", cwd=tmp_path).returncode == 2


def test_every_example_says_how_to_run_it():
    for path in EXAMPLES.glob("*.py"):
        assert f"python examples/{path.name}" in path.read_text(), path
    assert {"digits.py", "custom_loop.py", "demo.py"} <= set(os.listdir(EXAMPLES))


def test_the_same_digits_each_time():
    pytest.importorskip("sklearn")
    sys.path.insert(0, str(EXAMPLES))
    try:
        import digits
    finally:
        sys.path.remove(str(EXAMPLES))
    rows = digits.load_digits()
    assert rows["image"].shape == (1797, 64)
    assert (rows["label"] == digits.load_digits()["label"]).all()
