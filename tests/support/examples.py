"""The example programs as modules, and what a test must know of each."""

import dataclasses
import importlib.util
import pathlib
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
        steps: steps of a short run, after which the output has moved.
        crashes: where that is cut.
        output: the output that shows learning; the mean of the last fifth is below the first's.
        hooks: makes the hooks that decide something, from the module.
        arguments: of the class, beside config and hooks.
        smaller: constants of the module to set for the short run.
        flags: of the program, for the proof by kills and for a whole run.
        whole: steps that the file's own text asks for.
        ends: a pattern of what a whole run prints, with a number, and the least that it may be.
    """

    name: str
    trainer: str
    steps: int
    crashes: Sequence[int]
    output: str = "loss"
    hooks: Callable = lambda module: []
    arguments: dict = dataclasses.field(default_factory=dict)
    smaller: dict = dataclasses.field(default_factory=dict)
    flags: Sequence[str] = ()
    whole: int = 0
    ends: tuple[str, float] | None = None


PROGRAMS = [
    Program("gan", "Gan", 40, (13, 29), "discriminator_loss", whole=600),
    Program("vae", "Vae", 60, (23, 41), whole=1000, ends=(r"held-out loss (-?[\d.]+)", 20)),
    Program("gpt", "Gpt", 42, (14, 27), smaller={"BLOCKS": 1}, whole=1200),
    Program("moco", "Moco", 60, (23, 41), whole=600, ends=(r"nearest neighbour ([\d.]+)", 0.9)),
    Program(
        "text_ragged", "RaggedText", 100, (33, 61), whole=1200, ends=(r"accuracy ([\d.]+)", 0.5)
    ),
    Program("lstm_stateful", "StatefulLstm", 100, (33, 88), whole=1000),
    Program(
        "dqn", "Dqn", 60, (23, 41), whole=4000, ends=(r"step 4000/4000.*balanced ([\d.]+)", 80)
    ),
    Program(
        "best_model",
        "BestModel",
        60,
        (23, 41),
        hooks=lambda module: [module.KeepBest(every_steps=10)],
        whole=1000,
        ends=(r"best held-out accuracy ([\d.]+)", 0.95),
    ),
    Program(
        "several_phases",
        "SeveralPhases",
        60,
        (15, 33),
        arguments={"pretrain_steps": 20, "head_steps": 20},
        output="phase",
        flags=("--pretrain_steps=40", "--head_steps=40"),
        whole=1200,
        ends=(r"accuracy ([\d.]+)", 0.85),
    ),
    Program(
        "sweep",
        "Member",
        60,
        (23, 41),
        arguments={"rate": 0.01},
        flags=("--rate=0.01",),
        whole=500,
        ends=(r"'accuracy': ([\d.]+)", 0.9),
    ),
]
