"""Each page of the documents does what it says: its programs run, its commands and links exist."""

import importlib.util
import inspect
import pathlib
import re
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

import trainer
from trainer.state import names

from conftest import HERE
from support import documents

ROOT = HERE.parent
PAGES = documents.PAGES
IDS = [documents.name_of(page) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_a_reader_can_do_what_the_page_says(page, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    reader = documents.Reader(page)
    reader.read()
    assert reader.done == len(documents.blocks(page))  # none was left out
    assert page.read_text().count("\n```") == 2 * reader.done, "a fence that is no block"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page):
    for link in documents.links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no {target}"
        if anchor:
            assert anchor in documents.anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_names_in_a_page_exist(page):
    text = page.read_text()
    for path in re.findall(r"`trainer((?:\.\w+)+)[`(]", text):
        value = trainer
        for name in path[1:].split("."):
            if path == ".py":
                break
            assert hasattr(value, name) or importlib.util.find_spec(f"trainer{path}"), path
            value = getattr(value, name, None)
    for path in re.findall(r"`((?:trainer|tests|docs|examples|benchmarks)/[\w/]+\.\w+)`", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("run", ["Adam", "LossScale", "OldKeras", "Sonnet", "Functional"])
def test_the_page_on_the_format_is_enough_to_read_a_checkpoint(run):
    """One that an earlier version wrote, by the page's own code and nothing else."""
    space = {"__name__": "page"}
    for block in documents.blocks(ROOT / "docs" / "reference" / "checkpoint-format.md")[1:]:
        if block.language == "python":
            text = re.sub(r"^print.*\n", "", block.text, flags=re.MULTILINE)
            text = text.replace('"runs/format"', repr(str(HERE / "golden" / run)))
            exec(compile(text, "checkpoint-format.md", "exec"), space)
    listed = (HERE / "golden" / f"{run}.names").read_text()
    assert int(space["tensor"]("trainer/step")) == 4
    for name in space["manifest"]["tensors"]:
        assert name in listed


def test_the_page_on_state_has_every_name():
    text = (ROOT / "docs" / "reference" / "state.md").read_text()
    for name in names.TABLE:
        assert name == "<attribute path>" or f"| `{name}` |" in text, name


def test_what_the_page_on_places_names_is_there():
    page = ROOT / "docs" / "explanation" / "where-things-are.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows[1:13]] == [str(n) for n in range(1, 13)]
    for row in rows:
        files = re.findall(r"\]\(\.\./\.\./(trainer/[\w/]+\.py)\)", row)
        text = "".join((ROOT / file).read_text() for file in files)
        for name in re.findall(r"`(?:\w+\.)?(\w+)(?:\(\))?`", row):
            assert name in text or name == "data", f"{name} is not in {files}"


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    named = set(re.findall(r"([\w/-]+\.md)", navigation))
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").as_posix() in named


def test_the_pages_made_from_code_are_up_to_date():
    """Else run `python docs/make_reference.py`."""
    spec = importlib.util.spec_from_file_location("made", ROOT / "docs" / "make_reference.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    for name, make in made.PAGES.items():
        assert (ROOT / "docs" / "reference" / name).read_text() == make(), name


@pytest.mark.parametrize("owner", ["Trainer", "Hook"])
def test_the_example_of_a_docstring_runs(owner, tmp_path, monkeypatch):
    """It is on the page of the API, where no fence shows it to the reader above."""
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(getattr(trainer, owner))
    example = re.search(r"\n\n((?: {4}.*\n|\n)+)", text)[1]
    path = tmp_path / "example.py"
    path.write_text(textwrap.dedent(example))
    space = {"__name__": "example", "np": np, "tf": tf, "trainer": trainer}
    exec(compile(path.read_text(), str(path), "exec"), space)
    if owner == "Trainer":
        assert space["line"].step == 200
    else:
        hook = space["Patience"]()
        hook.waited = 3
        other = space["Patience"]()
        other.set_state(hook.get_state())
        assert other.waited == 3


def test_the_readme_is_read_to_the_end():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_tutorial_and_the_readme_have_one_program():
    blocks = documents.blocks(ROOT / "docs" / "tutorial.md")
    program = next(block.text for block in blocks if block.title == "digits.py")
    assert program == documents.program_of_the_readme()


def test_a_wrong_page_is_found_out(tmp_path, monkeypatch):
    """The reader is no rubber stamp: it fails for what does not run, print or parse."""
    monkeypatch.setattr(documents, "ROOT", tmp_path.parent)
    monkeypatch.setattr(documents, "program_of_the_readme", lambda: "")
    monkeypatch.chdir(tmp_path)
    wrong = {
        "python": "```python\n1 / 0\n```\n",
        "prints": '```python\nprint("a")\n```\n\n```text title="prints"\nb\n```\n',
        "command": "```console\n$ python -m trainer lst runs\n```\n",
        "flag": "```console\n$ python digits.py --model_dir=x --max_step=3\n```\n",
        "program": "```console\n$ python nowhere.py --model_dir=x\n```\n",
    }
    for name, text in wrong.items():
        page = pathlib.Path(tmp_path, f"{name}.md")
        page.write_text(text)
        with pytest.raises((AssertionError, ZeroDivisionError)):
            documents.Reader(page).read()
    assert str(tmp_path) not in sys.path
