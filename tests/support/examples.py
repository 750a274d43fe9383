"""The example programs as modules, and what a test must know of each."""

import dataclasses
import importlib.util
import pathlib
import re
import sys
from collections.abc import Callable, Sequence

EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples"


def load(name):
    """Returns the module of an example; one and the same, since each defines its flags once."""
    known = f"example_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, EXAMPLES / f"{name}.py")
        sys.modules[known] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]


@dataclasses.dataclass(frozen=True)
class Program:
    """An example and how it is proved.

    Args:
        name: the file, without its ending.
        trainer: the class.
        crashes: where a short run is cut.
        steps: steps of that run.
        falls: the output whose mean over the last fifth of the run is below that of the first.
        hooks: makes the hooks that decide something, from the module.
        arguments: of the class, beside config and hooks.
        smaller: constants of the module for the short run.
        flags: of the program, for the proof by kills.
        whole: steps that the file's own text asks for.
        ends: a pattern of what a whole run says, with a number, and between what that must be.
    """

    name: str
    trainer: str
    crashes: Sequence[int]
    steps: int
    whole: int
    ends: tuple[str, float, float]
    falls: str | None = "loss"
    hooks: Callable = lambda module: []
    arguments: dict = dataclasses.field(default_factory=dict)
    smaller: dict = dataclasses.field(default_factory=dict)
    flags: Sequence[str] = ()

    def make(self, config, hooks=()):
        """Returns the trainer."""
        module = load(self.name)
        hooks = [*self.hooks(module), *hooks]
        return getattr(module, self.trainer)(config, hooks=hooks, **self.arguments)


PROGRAMS = [
    Program(
        "gan",
        "Gan",
        (13, 29),
        40,
        600,
        (r"600/600 .*discriminator_loss ([\d.]+)", 0.4, 1.4),
        falls=None,
        hooks=lambda module: [module.DrawSamples(every_steps=20)],
    ),
    Program("vae", "Vae", (23, 41), 60, 1000, (r"held-out loss ([\d.]+)", 20, 25.5)),
    Program(
        "gpt",
        "Gpt",
        (14, 27),
        42,
        1200,
        (r"1200/1200 .*loss ([\d.]+)", 1, 2.4),
        smaller={"BLOCKS": 1},
    ),
    Program("moco", "Moco", (23, 41), 60, 600, (r"nearest neighbour ([\d.]+)", 0.9, 1), falls=None),
    Program("text_ragged", "RaggedText", (33, 61), 100, 1200, (r"accuracy ([\d.]+)", 0.5, 1)),
    Program(
        "lstm_stateful", "StatefulLstm", (33, 88), 100, 1000, (r"1000/1000 .*loss ([\d.]+)", 1, 1.9)
    ),
    Program(
        "dqn", "Dqn", (23, 41), 60, 4000, (r"4000/4000 .*balanced ([\d.]+)", 60, 500), falls=None
    ),
    Program(
        "best_model",
        "BestModel",
        (23, 41),
        60,
        1000,
        (r"best held-out accuracy ([\d.]+)", 0.95, 1),
        hooks=lambda module: [module.KeepBest(every_steps=10)],
    ),
    Program(
        "several_phases",
        "SeveralPhases",
        (15, 33),
        60,
        1200,
        (r"accuracy ([\d.]+)", 0.85, 1),
        falls=None,
        arguments={"pretrain_steps": 20, "head_steps": 20},
        flags=("--pretrain_steps=40", "--head_steps=40"),
    ),
    Program(
        "sweep",
        "Member",
        (23, 41),
        60,
        500,
        (r"rate 0.01: .*'accuracy': ([\d.]+)", 0.9, 1),
        arguments={"rate": 0.01},
        flags=("--rate=0.01",),
    ),
]


def assert_excerpt(path, text):
    """Asserts that a text is a part of an example, but for where its lines break and begin.

    The formatter lays it out anew on a page, where it begins at the margin.

    Args:
        path: the example, such as examples/gan.py.
        text: what a page quotes.
    """
    assert _plain(text) in _plain((EXAMPLES.parent / path).read_text()), (
        f"{path} has no such lines:\n{text}"
    )


def _plain(text):
    """Returns a text without white space, and without the commas that only lay it out."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", text))
