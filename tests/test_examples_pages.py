"""The pages about example programs quote them as they are, and name what exists."""

import re

import pytest

from support import examples

ROOT = examples.EXAMPLES.parent
NAMES = ("gan", "reinforcement-learning", "accumulation-and-mixed-precision", "best-model")
PAGES = {name: ROOT / "docs" / "how-to" / f"{name}.md" for name in (*NAMES, "ported-programs")}
BLOCK = re.compile(r"^```python title=\"([^\"]+)\"\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_quotes_is_in_the_program(name):
    text = PAGES[name].read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python") > 2
    for path, quoted in blocks:
        examples.assert_excerpt(path, quoted)


def test_a_wrong_quotation_is_found_out():
    with pytest.raises(AssertionError, match="has no such lines"):
        examples.assert_excerpt("examples/gan.py", "BATCH, NOISE = 64, 33\n")


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_exists(name):
    text = PAGES[name].read_text()
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (PAGES[name].parent / link).exists(), link
    for path in re.findall(r"`((?:tests|examples)/\w+\.py)`", text):
        assert (ROOT / path).exists(), path
    for path, flags in re.findall(r"^\$ python (examples/\w+\.py) (.*)$", text, re.MULTILINE):
        assert f"python {path} {flags}" in (ROOT / path).read_text(), path
    for command in re.findall(r"^\$ (python -m trainer prove .*)$", text, re.MULTILINE):
        path = re.search(r"examples/\w+\.py", command)[0]
        assert command in (ROOT / path).read_text(), command


def test_the_page_of_ported_programs_has_them_all():
    text = PAGES["ported-programs"].read_text()
    for program in examples.PROGRAMS:
        assert f"| [{program.name}.py](../../examples/{program.name}.py) |" in text


@pytest.mark.parametrize("program", examples.PROGRAMS, ids=lambda program: program.name)
def test_steps_of_crashes_in_the_pages_are_those_of_the_tests(program):
    for page in PAGES.values():
        text = page.read_text().replace("\n", " ")
        proofs = re.search(r"crashes the run after steps (\d+) and (\d+) of (\d+)", text)
        if proofs and f"examples/{program.name}.py" in text and "ported" not in page.name:
            assert tuple(map(int, proofs.groups())) == (*program.crashes, program.steps)
