"""Writes the pages of the reference that are made from code: flags and commands.

    python docs/make_reference.py

Owns `docs/reference/flags.md` and `docs/reference/commands.md`. Promises that they say what
`TrainerConfig` and the command line's parser say; a test compares. Refuses to describe anything by
itself.
"""

import argparse
import dataclasses
import inspect
import pathlib
import re
import typing

from trainer import config
from trainer.commands import cli

REFERENCE = pathlib.Path(__file__).parent / "reference"
HEAD = "<!-- Made by docs/make_reference.py; change the code, not this page. -->\n"


def flags_page():
    """Returns the page on flags."""
    described = _arguments(inspect.getdoc(config.TrainerConfig))
    types = typing.get_type_hints(config.TrainerConfig)
    rows = []
    for field in dataclasses.fields(config.TrainerConfig):
        given = "required" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        kind = " or ".join(_kinds(types[field.name]))
        text = described[field.name].replace("|", "\\|")
        rows.append(f"| `{field.name}` | {kind} | {given} | {text} |")
    return f"""# Flags

{HEAD}
Every field of `trainer.TrainerConfig` is a flag of a program that `trainer.app.run` runs:
`TrainerConfig(save_every_steps=100)` is `--save_every_steps=100`. A flag that is true or false is
`--jit_compile` or `--nojit_compile`; one that may be None takes `none`; one that is a list takes
values with commas. `--help` lists them; a program's own absl flags work beside them.
`trainer.app.run(…, seed=7)` sets a default. A value that breaks a rule ends with status 2, and in
Python with a `ValueError`.

| flag | type | default | |
|---|---|---|---|
{chr(10).join(rows)}

```console
$ python digits.py --model_dir=runs/x --max_steps=1000 --save_every_secs=60 --max_to_keep=none
$ python digits.py --model_dir=runs/x --epochs=3 --noasync_save --keep_program_values=optimizer/*
```
"""


def commands_page():
    """Returns the page on commands."""
    parser = cli._parser()
    choices = next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    parts = []
    for pseudo in choices._choices_actions:
        command = choices.choices[pseudo.dest]
        rows = [_row(action) for action in command._actions if action.dest != "help"]
        usage = " ".join(_word(action) for action in command._actions if action.dest != "help")
        after = {"prove": " -- COMMAND or FLAGS", "supervise": " -- COMMAND"}.get(pseudo.dest, "")
        parts.append(
            f"## {pseudo.dest}\n\n{_sentence(command.description)}\n\n"
            f"```text\npython -m trainer {pseudo.dest} {usage}{after}\n```\n\n"
            f"| argument | |\n|---|---|\n{chr(10).join(rows)}\n"
        )
    return f"""# Commands

{HEAD}
`python -m trainer COMMAND`, or the console command `unbroken COMMAND`, which a file of yours named
`trainer.py` cannot hide. `--help` says what is here. What their statuses mean:
[Exit statuses](exit-statuses.md). Examples: [Look at and repair a folder](../how-to/folder.md),
[Stop and restart](../how-to/stop-and-restart.md),
[Test your own program](../how-to/test-your-program.md).

{chr(10).join(parts)}"""


PAGES = {"flags.md": flags_page, "commands.md": commands_page}


def _arguments(docstring):
    """Returns name to text of the section Args of a docstring."""
    section = re.search(r"Args:\n(.*?)\n\n", docstring + "\n\n", re.DOTALL)[1]
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", section, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", text) for name, text in found}


def _kinds(hint):
    names = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}
    if typing.get_origin(hint) is tuple:
        return [f"{names[typing.get_args(hint)[0].__name__]}s, with commas"]
    parts = typing.get_args(hint)
    if parts:
        return [kind for part in parts for kind in _kinds(part)]
    return [names.get(hint.__name__, "none")]


def _word(action):
    word = action.option_strings[-1] if action.option_strings else str(action.metavar)
    if action.option_strings and action.nargs != 0:
        word += f"={action.metavar or action.dest.upper()}"
    needed = action.required and action.nargs != "?"
    return word if needed else f"[{word}]"


def _row(action):
    name = action.option_strings[-1] if action.option_strings else str(action.metavar)
    text = action.help or "a step that has a checkpoint"
    return f"| `{name}` | {text} |"


def _sentence(text):
    text = text[0].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


if __name__ == "__main__":
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make())
        print(REFERENCE / name)
