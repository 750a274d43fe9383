"""The house: imports point down, files say what they own, rooms stay small."""

import ast
import inspect
import pathlib
import re
import sys

import pytest

import trainer

PACKAGE = pathlib.Path(trainer.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# From the ground up. Rooms on one floor do not know each other; a file is a room of its own here.
FLOORS = [
    ["base"],
    ["config", "errors"],
    ["graph"],
    ["hooks", "checkpoints", "data"],
    ["state", "journal"],
    ["fingerprint"],
    ["run"],
    ["trainer"],
    ["app"],
    ["testing"],
    ["commands"],
    ["__main__"],
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def module_of(path):
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imports(path):
    """Returns the package's modules that a file imports, for type checkers or late included."""
    found = set()
    modules = {module_of(file) for file in FILES}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "trainer":
            base = node.module.removeprefix("trainer").lstrip(".")
            for name in node.names:
                inner = f"{base}.{name.name}".lstrip(".")
                found.add(inner if inner in modules else base)
    return found - {""}


def public_homes():
    """Returns the modules whose names the package offers."""
    return {home.removeprefix("trainer.") for home in trainer._HOMES.values()}


MODULES = {module_of(path): path for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_down(path):
    module = module_of(path)
    room = module.split(".")[0]
    for other in imports(path):
        found = other.split(".")[0]
        if module == "__init__":
            assert found == "base" or other in public_homes(), f"{module} imports {other}"
        elif found != room:
            assert FLOOR_OF[found] < FLOOR_OF[room], f"{module} imports {other}: not below it"


def test_there_is_no_ring():
    """Neither between rooms nor within one, what only type checkers import included."""
    below = {module: imports(path) & set(MODULES) for module, path in MODULES.items()}
    del below["__init__"]  # offers the names, by importing late

    done, open_ = set(), []

    def visit(module):
        assert module not in open_, " > ".join([*open_[open_.index(module) :], module])
        if module not in done:
            open_.append(module)
            for other in sorted(below[module]):
                visit(other)
            done.add(open_.pop())

    for module in below:
        visit(module)


def test_the_ground_is_the_standard_library():
    for path in (PACKAGE / "base").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                first = name.split(".")[0]
                assert first in sys.stdlib_module_names or name.startswith("trainer.base"), name


@pytest.mark.parametrize("path", [p for p in FILES if p.name != "__main__.py"], ids=module_of)
def test_rooms_and_files_say_what_they_own_and_refuse(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text, f"{path} has no docstring"
    if path.parent != PACKAGE or path.name != "__init__.py":
        for word in ("Owns", "Promises", "Refuses"):
            assert re.search(rf"\b{word}\b", text), f"{path}: no word on what it {word.lower()}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_files_and_functions_stay_small(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= 350, "split this file"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            documented = ast.get_docstring(node) and len(node.body) > 1
            start = node.body[1].lineno if documented else node.lineno
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
