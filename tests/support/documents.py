"""The documents: their blocks, links and commands, and how a page is put to the test.

A page is README.md, CONTRIBUTING.md or a file below docs/. The conventions of its fenced blocks:

    python                  run, in order, in one namespace and one folder a page
    python                  or an excerpt of a program in examples/ that the page links to
    python title="x.py"     written to that folder, imported, and there for what follows
    text title="prints"     what the block before it printed; numbers may differ
    console                 lines that begin with "$ " are commands, the others what they print
    (none)                  commands, a line each
    bash, yaml, ini, text   checked for their syntax, or by tests of their own
"""

import contextlib
import dataclasses
import importlib
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import yaml
from absl import flags

import trainer
from trainer.commands import cli

from conftest import HERE

ROOT = HERE.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_FOR_REAL = ("docs/tutorial.md",)  # its commands start programs, as a reader would
FOLDER_COMMANDS = (
    *("list", "show", "verify", "diff", "rollback", "pin", "unpin", "prune", "report", "status"),
)
ORDINARY = ("git", "cd", "pip", "apt-get", "source", "pytest", "kill", "exit", "grep")
_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str
    line: int


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    text = page.read_text()
    found = []
    for match in _FENCE.finditer(text):
        title = re.search(r'title="([^"]+)"', match[2])
        line = text[: match.start()].count("\n") + 1
        found.append(Block(match[1], title and title[1], match[3], line))
    return found


def program_of_the_readme():
    return next(b.text for b in blocks(ROOT / "README.md") if b.title == "digits.py")


# What differs from machine to machine and from run to run: the head of a line of the log, the path
# before the folder of runs, sizes, and every number with a point or with commas.
_DIFFERS = {
    r"^[IWE]\d{4} [\d:.]+ +\d+ \S+\] |^\[trainer\] [A-Z]+ ": "",
    r"\S*/runs/": "runs/",
    r"\d+\.\d*(e[+-]?\d+)?|\d{1,3}(,\d{3})+": "N",
    r"\b[KMG]B\b": "B",
}


def masked(text):
    """Returns the lines of an output without what differs from run to run."""
    lines = []
    for line in text.splitlines():
        kept = line
        for pattern, instead in _DIFFERS.items():
            kept = re.sub(pattern, instead, kept)
        lines.append(" ".join(kept.split()))
    return lines


def assert_printed(documented, seen, where):
    """Asserts that each documented line comes, in order, in what was printed."""
    rest = iter(masked(seen))
    for line in filter(None, masked(documented)):
        assert any(line in other for other in rest), f"{where}: no line {line!r} in\n{seen}"


class Reader:
    """Somebody who reads a page and does all that it says, in an empty folder."""

    def __init__(self, page):
        self.page = page
        self.names = {"__name__": "page"}
        self.printed = ""
        self.done = 0

    def where(self, block):
        return f"{name_of(self.page)}:{block.line}"

    def read(self):
        pathlib.Path("digits.py").write_text(program_of_the_readme())
        before = set(sys.modules)
        sys.path.insert(0, os.getcwd())
        importlib.invalidate_caches()
        try:
            for block in blocks(self.page):
                getattr(self, f"do_{block.language}")(block)
                self.done += 1
        finally:
            sys.path.remove(os.getcwd())
            here = os.getcwd()
            for name in set(sys.modules) - before:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(here):
                    del sys.modules[name]

    def is_excerpt(self, block):
        """Tells whether a block is a piece of a program that the page links to, however broken
        into lines."""
        paths = [(self.page.parent / link).resolve() for link in links(self.page)]
        programs = [p for p in paths if p.suffix == ".py" and p.parent == ROOT / "examples"]
        return any(_solid(block.text) in _solid(path.read_text()) for path in programs)

    def do_python(self, block):
        if self.is_excerpt(block):
            return
        # A file, so that TensorFlow finds the source; its lines are numbered as the page's.
        path = pathlib.Path(f"{self.page.stem}_{block.line}.md.py")
        path.write_text("\n" * block.line + block.text)
        code = compile(path.read_text(), str(path.resolve()), "exec")
        with captured() as output:
            if block.title and block.title.startswith("test_"):
                pathlib.Path(block.title).write_text(block.text)  # has a test of its own
            elif block.title:
                pathlib.Path(block.title).write_text(block.text)
                importlib.invalidate_caches()
                importlib.import_module(block.title.removesuffix(".py"))
            else:
                exec(code, self.names)
        self.printed = output.getvalue()

    def do_text(self, block):
        if block.title == "prints":
            assert_printed(block.text, self.printed, self.where(block))

    def do_(self, block):
        for command in block.text.splitlines():
            self.do_command(command, block)

    def do_console(self, block):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            command = re.sub(r"\s+#.*", "", command)
            seen = self.do_command(command, block)
            if output.strip():
                assert seen is not None, f"{self.where(block)}: {command!r} was not run"
                assert_printed(output, seen, self.where(block))

    def do_bash(self, block):
        subprocess.run(["bash", "-n", "-c", block.text], check=True)
        for line in block.text.splitlines():
            if "python" in line and not line.startswith("srun"):
                command = line.strip().removesuffix("&").replace("$seed", "1")
                self.do_command(re.sub(r"^(\w+=\S+ )+", "", command), block)

    def do_yaml(self, block):
        assert yaml.safe_load(block.text), self.where(block)

    def do_json(self, block):
        assert json.loads(block.text), self.where(block)

    def do_ini(self, block):
        assert "[" in block.text, self.where(block)

    def do_command(self, command, block):
        """Runs a command or parses it as the program would; returns what it printed, if run."""
        words = shlex.split(command)
        where = f"{self.where(block)}: {command}"
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), where
            return None
        if words[0] == "unbroken" or words[:3] == ["python", "-m", "trainer"]:
            return self.do_trainer(words[1 if words[0] == "unbroken" else 3 :], where)
        if words[0] == "python":
            return self.do_program(words, command, where)
        assert words[0] in ORDINARY or (ROOT / words[0]).exists(), where
        for extra in re.findall(r"\[(\w+(?:,\w+)*)\]", command):
            options = (ROOT / "setup.cfg").read_text()
            assert all(f"\n{name} =" in options for name in extra.split(",")), where
        return None

    def do_trainer(self, words, where):
        own, program_flags = cli._split(words)
        with captured() as output:
            try:
                options = cli._parser().parse_args(own)
            except SystemExit:
                raise AssertionError(f"{where}\n{output.getvalue()}") from None
        if options.command == "prove" and options.target is None:  # a whole program
            assert program_flags[0] == "python", where
            check_flags(program_flags[1:], where)
        elif options.command == "prove":
            path, _, _ = options.target.rpartition(":")
            assert pathlib.Path(path).exists() or (ROOT / path).exists(), where
            check_flags([path, *program_flags], where)
        elif options.command == "supervise":
            assert program_flags[0] == "python", where
            check_flags(program_flags[1:], where)
        elif options.command in FOLDER_COMMANDS and os.path.isdir(options.model_dir):
            with captured() as output:
                status = cli.main(words)
            assert status != 2, where
            return output.getvalue()
        return None

    def do_program(self, words, command, where):
        script = words[1]
        assert pathlib.Path(script).exists() or (ROOT / script).exists(), where
        if name_of(self.page) not in RUN_FOR_REAL:
            if "--model_dir" in command:
                check_flags(words[1:], where)
            return None
        root = pathlib.Path(trainer.__file__).parent.parent
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONPATH=str(root))
        done = subprocess.run(
            ["bash", "-c", f"{command}\nexit $?"],  # bash then says what was killed
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr


def check_flags(words, where):
    """Parses a program's command line as `trainer.app.run` does, beside the flags of its own."""
    from trainer import app

    values = flags.FlagValues()
    path = pathlib.Path(words[0])
    source = (path if path.exists() else ROOT / path).read_text() if words[0] else ""
    for name in re.findall(r"flags\.DEFINE_\w+\(\s*\"(\w+)\"", source):
        flags.DEFINE_string(name, None, "the program's own", flag_values=values)
    app.define_flags(values)
    given = [word.split("#")[0] for word in words if word]
    if not any(word.startswith("--model_dir") for word in given):
        given.append("--model_dir=x")  # `prove` gives one
    try:
        app.parse(given, values)
    except flags.Error as error:
        raise AssertionError(f"{where}: {error}") from None


@contextlib.contextmanager
def captured():
    """What is printed and logged meanwhile, in one text."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        yield output


def _solid(code):
    return re.sub(r",([)\]}])", r"\1", "".join(code.split()))


def links(page):
    """Returns the targets of a page's links and images that are no addresses."""
    text = _FENCE.sub("", page.read_text())
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link for link in found if not re.match(r"\w+:", link)]


def anchors(page):
    """Returns the anchors of a page's headings, as MkDocs and code hosts make them."""
    text = _FENCE.sub("", page.read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles]
    return {re.sub(r"\s+", "-", title) for title in plain}
