"""The command line `python -m trainer`.

Owns the parsing. Promises the exit statuses 0 as asked, 1 a finding, 2 bad usage. Refuses to do
anything itself: each command calls the file that owns the matter.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any

from trainer import errors
from trainer.base import arguments as arguments_module
from trainer.base import shadow, versions
from trainer.base.log import LOG, make_visible
from trainer.commands import folder as folder_commands
from trainer.commands import supervise


def console() -> int:
    """Runs the command of this process's command line and returns the exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # a command's output is its own
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status.

    Args:
        arguments: the command line without the program's name; None: the process's.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, program_flags = _split(given)
    parser = _parser()
    options = parser.parse_args(own)
    if options.command == "supervise":
        return _supervise(parser, options, program_flags)
    if options.command == "prove":
        answer = _prove(parser, options, program_flags)
    elif program_flags:
        parser.error(f"{options.command} takes no flags after --")
    else:
        answer = _look(parser, options)
    print(json.dumps(answer.data, indent=1) if options.json else answer.text)
    return answer.status


def _look(parser: argparse.ArgumentParser, options: argparse.Namespace) -> folder_commands.Answer:
    folder = os.path.abspath(options.model_dir)
    run: dict[str, Callable[[], folder_commands.Answer]] = {
        "list": lambda: folder_commands.list_checkpoints(folder),
        "show": lambda: folder_commands.show(folder, options.step),
        "verify": lambda: folder_commands.verify(folder, options.step),
        "diff": lambda: folder_commands.diff(folder, options.one, options.two),
        "rollback": lambda: folder_commands.rollback(folder, options.step),
        "pin": lambda: folder_commands.pin(folder, options.step, on=True),
        "unpin": lambda: folder_commands.pin(folder, options.step, on=False),
        "prune": lambda: folder_commands.prune(folder, options.max_to_keep),
        "report": lambda: folder_commands.report(folder),
    }
    try:
        return run[options.command]()
    except ValueError as error:
        parser.error(str(error))
    except (errors.TrainerError, versions.NeedsTensorFlowError, OSError) as error:
        return folder_commands.Answer({"error": str(error)}, f"{error}", status=1)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer",
        description="Looks at the checkpoints of a run, and proves that a program resumes exactly.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, *steps: str, optional: bool = False) -> Any:
        added = subparsers.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print one JSON value")
        added.add_argument("model_dir", metavar="MODEL_DIR", help="folder of the run")
        for step in steps:
            nargs = "?" if optional else None
            added.add_argument(step, metavar=step.upper(), type=_AtLeast(0), nargs=nargs)
        return added

    command("list", "list the checkpoints: whole, damaged and set aside")
    command("show", "show what a checkpoint holds (default: the newest)", "step", optional=True)
    command("verify", "read checkpoints to the last bit (default: all)", "step", optional=True)
    command("diff", "compare the tensors of two checkpoints", "one", "two")
    command("rollback", "set the checkpoints after a step aside", "step")
    command("pin", "never remove a checkpoint", "step")
    command("unpin", "take the pin off", "step")
    pruned = command("prune", "remove leftovers and what was set aside")
    pruned.add_argument("--max_to_keep", type=_AtLeast(1), help="and all but the newest so many")
    command("report", "tell where the time of the run went")
    _add_prove(subparsers)
    _add_supervise(subparsers)
    return parser


def _add_prove(subparsers: Any) -> None:
    proof = subparsers.add_parser(
        "prove",
        help="prove that your program resumes exactly",
        description="Runs your program unbroken, and killed again and again at random places, and "
        "compares the states in which both end. The program's command goes after --, such as "
        "-- python train.py --flags; or name a class, and flags for it after --.",
    )
    proof.add_argument(
        "target",
        nargs="?",
        metavar="FILE.py:CLASS",
        help="a trainer class alone, without its program's hooks (default: the command after --)",
    )
    proof.add_argument("--steps", type=_AtLeast(1), required=True, help="steps of each run")
    proof.add_argument("--kills", type=_AtLeast(0), default=5, help="kills (default 5)")
    proof.add_argument(
        "--seed", type=_AtLeast(0), default=0, help="of the places and runs (default 0)"
    )
    proof.add_argument("--json", action="store_true", help="print one JSON object")


def _prove(
    parser: argparse.ArgumentParser, options: argparse.Namespace, program_flags: list[str]
) -> folder_commands.Answer:
    target, alone = options.target or "", options.target is not None
    flags, command = (program_flags, []) if alone else ([], program_flags)
    if not alone:
        if not command:
            parser.error("prove needs a command after --, such as -- python train.py, or a class")
        if shutil.which(command[0]) is None:
            parser.error(f"there is no program {command[0]!r}")
    else:
        path, _, name = target.rpartition(":")
        if not name or not os.path.isfile(path):
            parser.error(f"{target!r} is not FILE.py:CLASS with an existing file")
        hiding = shadow.found(os.path.dirname(os.path.abspath(path)), os.getcwd())
        if hiding is not None:
            parser.error(shadow.sentence(hiding))
    if options.kills > options.steps:
        parser.error(f"--kills={options.kills} needs at least as many --steps, got {options.steps}")
    from trainer.testing import prove  # here: it needs TensorFlow, which most commands do without

    verdict = prove.prove(
        prove.Request(target, options.steps, options.kills, options.seed, flags, command)
    )
    data = {
        "exact": verdict.exact,
        "verdict": verdict.word,
        "report": verdict.lines,
        "differs": verdict.differs and dataclasses.asdict(verdict.differs),
        "suspects": list(verdict.suspects),
    }
    return folder_commands.Answer(data, "\n".join(verdict.lines), 0 if verdict.exact else 1)


def _add_supervise(subparsers: Any) -> None:
    added = subparsers.add_parser(
        "supervise",
        help="start a command again when it is preempted or dies",
        description="Starts COMMAND, again when it ends with status 75 (preempted), and with "
        "growing pauses when it fails; ends with its last status. The command goes after --.",
    )
    added.add_argument(
        "--max_restarts", type=_AtLeast(0), default=10, help="after failures (default 10)"
    )
    added.add_argument(
        "--backoff_secs", type=float, default=1.0, help="pause after a failure (default 1)"
    )
    added.add_argument(
        "--max_idle_restarts",
        type=_AtLeast(1),
        default=3,
        help="in a row without a newer checkpoint (default 3)",
    )
    added.add_argument(
        "--model_dir", metavar="MODEL_DIR", help="folder of the run (default: the command's)"
    )


def _supervise(
    parser: argparse.ArgumentParser, options: argparse.Namespace, command: list[str]
) -> int:
    if not command:
        parser.error("supervise needs a command after --, such as -- python train.py --model_dir=x")
    folder = options.model_dir or _flag(command, "model_dir")
    if folder is None:
        parser.error("the command has no --model_dir; name the folder before the --")
    if options.backoff_secs < 0:
        parser.error(f"--backoff_secs must be at least 0, got {options.backoff_secs:g}")
    if shutil.which(command[0]) is None:
        parser.error(f"there is no program {command[0]!r}")
    make_visible()
    hiding = shadow.found(os.getcwd())
    if hiding is not None:
        LOG.warning("%s", shadow.sentence(hiding))
    request = supervise.Request(
        command,
        os.path.abspath(folder),
        options.max_restarts,
        options.backoff_secs,
        options.max_idle_restarts,
    )
    return supervise.Supervisor(request).run()


def _flag(command: list[str], name: str) -> str | None:
    """Returns the value of a flag in a command line as absl reads it, or None."""
    found = None
    for word, following in zip(command, [*command[1:], None], strict=True):
        for dashes in ("--", "-"):
            if word == dashes + name:
                found = following
            elif word.startswith(f"{dashes}{name}="):
                found = word.split("=", 1)[1]
    return found


class _AtLeast:
    """A whole number with a lower bound, for argparse."""

    def __init__(self, least: int):
        self._least = least

    def __call__(self, text: str) -> int:
        try:
            value = arguments_module.whole_in(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text}: {error}") from None
        if value < self._least:
            raise argparse.ArgumentTypeError(f"must be at least {self._least}, got {value}")
        return value

    def __repr__(self) -> str:
        return f"whole number of at least {self._least}"
