"""The command line `python -m trainer`.

Owns the commands and their exit status: 0 as asked, 1 a finding, 2 bad usage. Refuses to do
anything itself: each command calls the file that owns the matter.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from trainer import prove


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status.

    Args:
        arguments: the command line without the program's name; None: the process's.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, program_flags = _split(given)
    parser = _parser()
    options = parser.parse_args(own)
    if program_flags and options.command != "prove":
        parser.error(f"{options.command} takes no flags after --")
    return _prove(parser, options, program_flags)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    proof = commands.add_parser(
        "prove",
        help="prove that your program resumes exactly",
        description="Runs your program unbroken, and killed again and again at random places, and "
        "compares the states in which both end. Flags of the program go after --.",
    )
    proof.add_argument("target", metavar="FILE.py:CLASS", help="the program's trainer class")
    proof.add_argument("--steps", type=_AtLeast(1), required=True, help="steps of each run")
    proof.add_argument("--kills", type=_AtLeast(0), default=5, help="kills (default 5)")
    proof.add_argument(
        "--seed", type=_AtLeast(0), default=0, help="of the places and runs (default 0)"
    )
    proof.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _prove(
    parser: argparse.ArgumentParser, options: argparse.Namespace, program_flags: list[str]
) -> int:
    path, _, name = options.target.rpartition(":")
    if not name or not os.path.isfile(path):
        parser.error(f"{options.target!r} is not FILE.py:CLASS with an existing file")
    if options.kills > options.steps:
        parser.error(f"--kills={options.kills} needs at least as many --steps, got {options.steps}")
    verdict = prove.prove(
        prove.Request(options.target, options.steps, options.kills, options.seed, program_flags)
    )
    if options.json:
        print(json.dumps({"exact": verdict.exact, "report": verdict.lines}))
    else:
        print("\n".join(verdict.lines))
    return 0 if verdict.exact else 1


class _AtLeast:
    """A whole number with a lower bound, for argparse."""

    def __init__(self, least: int):
        self._least = least

    def __call__(self, text: str) -> int:
        value = int(text)
        if value < self._least:
            raise argparse.ArgumentTypeError(f"must be at least {self._least}, got {value}")
        return value

    def __repr__(self) -> str:
        return f"whole number of at least {self._least}"
