"""The house: imports point down, files say what they own, rooms stay small."""

import ast
import inspect
import pathlib
import re

import pytest

import trainer

PACKAGE = pathlib.Path(trainer.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Each layer may import what stands below it; a room may import what is listed in it further up.
LAYERS = [
    ["config", "errors", "log", "digests", "clock", "pace", "goodput"],
    ["history"],
    ["context"],
    ["hooks"],
    ["discovery"],
    ["inspection"],
    ["seeds"],
    ["pipeline", "tuning"],
    ["checkpoints.layout", "checkpoints.bundle", "checkpoints.files", "checkpoints.policy"],
    ["checkpoints.manifest"],
    ["checkpoints.lock", "checkpoints.reading", "checkpoints.commit", "checkpoints.retention"],
    ["checkpoints.room", "checkpoints.folder"],
    ["checkpoints.tidying"],
    ["checkpoints.store", "journal", "signals"],
    ["dispatch"],
    ["snapshot"],
    ["state"],
    ["compiled"],
    ["data", "position"],
    ["dataset_source", "indexed_source", "python_source"],
    ["sources"],
    ["evaluation"],
    ["content", "warm_start"],
    ["checks"],
    ["assembly"],
    ["writing"],
    ["ending"],
    ["saving", "stepping"],
    ["rollback", "retry"],
    ["trainer"],
    ["stock_hooks.log_progress", "stock_hooks.rollback_on_spike"],
    ["chaos"],
    ["app", "testing", "prove", "commands", "supervise"],
    ["prove_run", "cli", "pytest_plugin"],
    ["__main__"],
]
# Rooms of the first floor that do not know each other, whatever the order above would allow.
STRANGERS = ["history", "hooks", "state", "compiled", "sources", "checkpoints", "seeds"]


def module_of(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imports(path):
    """Returns the package's modules that a file imports when it is imported."""
    found = set()
    modules = {module_of(file) for file in FILES}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trainer"):
            base = node.module.removeprefix("trainer").lstrip(".")
            for name in node.names:
                inner = f"{base}.{name.name}".lstrip(".")
                found.add(inner if inner in modules else base)
    return found - {""}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_down(path):
    level = {name: number for number, names in enumerate(LAYERS) for name in names}
    module = module_of(path)
    if path.name == "__init__.py":
        assert imports(path) == set()
        return
    assert module in level, f"{module} has no layer: give it one in {__file__}"
    for other in imports(path):
        assert level[other] < level[module], f"{module} imports {other}, which is not below it"
        room, guest = module.split(".")[0], other.split(".")[0]
        if room != guest:
            assert not (room in STRANGERS and guest in STRANGERS), f"{module} knows {other}"


@pytest.mark.parametrize("path", [p for p in FILES if p.name != "__init__.py"], ids=module_of)
def test_files_say_what_they_own_and_refuse(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text, f"{path} has no docstring"
    if path.name != "__main__.py":
        assert "Owns " in text
        assert "Refuse" in text or "refuse" in text


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_rooms_stay_small(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= 340, "split this file"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            start = (
                node.body[1].lineno
                if ast.get_docstring(node) and len(node.body) > 1
                else (node.lineno)
            )
            assert node.end_lineno - start <= 40, f"{node.name} is longer than a screen"


def public_functions():
    """The public functions, and the public methods of the public classes."""
    for module in (trainer.app, trainer.testing):
        yield from (
            member
            for name, member in vars(module).items()
            if inspect.isfunction(member)
            and member.__module__ == module.__name__
            and not name.startswith("_")
        )
    for name in trainer.__all__:
        if inspect.isclass(getattr(trainer, name)):
            yield from (
                member
                for key, member in vars(getattr(trainer, name)).items()
                if inspect.isfunction(member) and not key.startswith("_")
            )


HOOK_METHODS = ("begin", "before_step", "after_step", "after_save", "end", "calling")


@pytest.mark.parametrize("function", list(public_functions()), ids=lambda f: f.__qualname__)
def test_public_docstrings_name_the_arguments(function):
    text = inspect.getdoc(function)
    assert text, f"{function.__qualname__} has no docstring"
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    if function.__name__ in HOOK_METHODS or not parameters:
        return
    assert "Args:" in text
    for name in parameters:
        assert re.search(rf"^    \*{{0,2}}{name}: ", text, re.MULTILINE), f"{name} is not explained"


def test_train_fits_on_one_screen():
    lines = inspect.getsource(trainer.Trainer.train).splitlines()
    assert len(lines) <= 70
