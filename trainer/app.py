"""The entry point of a training program.

Owns the flags made from `TrainerConfig` and the exit status of the process. Promises that a
program's own flags keep working, and that a wrong flag ends with status 2 and says what is known.
Refuses to define a flag when it is imported.

Exit status: 0 for a run that ended as it should, 1 for an error, 2 for bad flags, 75 ("run me
again") after SIGTERM, 130 after SIGINT (Ctrl-C).
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from absl import app as absl_app
from absl import flags

from trainer import config, trainer
from trainer.fingerprint import threads
from trainer.hooks.hook import Hook
from trainer.run import signals

Hooks = Callable[[], Sequence[Hook]] | Sequence[Hook]


def run(
    trainer_class: Callable[..., trainer.Trainer],
    hooks: Hooks | None = None,
    *,
    argv: Sequence[str] | None = None,
    **defaults: Any,
) -> typing.NoReturn:
    """Parses the flags, constructs the trainer, trains, and ends the process.

    Args:
        trainer_class: called as `trainer_class(config, hooks=[...])`.
        hooks: the hooks, or a function that returns them; called after the flags are parsed.
        argv: command line, the program's name first; None: the process's.
        **defaults: defaults of flags, by the names of `TrainerConfig`'s fields.

    Raises:
        ValueError: a default is for a flag that does not exist.
    """
    define_flags()
    _set_defaults(defaults)

    def main(_: Sequence[str]) -> int:
        settings = config_from_flags()
        try:
            with signals.watch(stops=settings.stop_signals):
                threads.adopt(settings.model_dir, settings.intra_op_threads)
                made = list(hooks() if callable(hooks) else hooks or ())
                with trainer_class(settings, hooks=made) as program:
                    return program.train().exit_code
        except KeyboardInterrupt:
            return 130

    absl_app.run(main, argv=list(argv) if argv else None, flags_parser=_parse)
    raise AssertionError("absl.app.run does not return")


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines one flag for each field of `TrainerConfig`, but for names that the program has.

    Args:
        values: where to define them.
    """
    types_of = typing.get_type_hints(config.TrainerConfig)
    for field in _fields():
        if field.name not in values:
            _define(field, types_of[field.name], values)


def config_from_flags(values: flags.FlagValues = flags.FLAGS) -> config.TrainerConfig:
    """Returns the config that the parsed flags describe.

    Args:
        values: the parsed flags.

    Raises:
        ValueError: a value breaks a rule of `TrainerConfig`.
    """
    given: dict[str, Any] = {field.name: values[field.name].value for field in _fields()}
    for field in _fields():
        if isinstance(field.default, tuple):
            given[field.name] = tuple(given[field.name] or ())
    return config.TrainerConfig(**given)


def parse(arguments: Sequence[str], values: flags.FlagValues = flags.FLAGS) -> list[str]:
    """Parses a command line and checks that it makes a valid config.

    Args:
        arguments: the program's name first.
        values: the flags.

    Returns:
        What is left of the command line.

    Raises:
        flags.Error: an unknown flag, or a value that is not of its type or breaks a rule.
    """
    try:
        rest = list(values(list(arguments)))
        if len(rest) > 1:
            raise flags.Error(f"what is {rest[1]!r}? Every argument must be a --flag=value")
        config_from_flags(values)
    except ValueError as error:
        raise flags.Error(str(error)) from None
    return rest


def _set_defaults(defaults: dict[str, Any]) -> None:
    known = [field.name for field in _fields()]
    for name, value in defaults.items():
        if name not in known:
            raise ValueError(f"there is no flag {name!r} to set a default of; there are {known}")
        flags.FLAGS.set_default(name, list(value) if isinstance(value, tuple) else value)


def _parse(arguments: Sequence[str]) -> list[str]:
    """Parses for absl, which by itself would end with status 1."""
    try:
        return parse(arguments)
    except flags.Error as error:
        print(f"{arguments[0]}: {error}\nTry --help for the flags.", file=sys.stderr)
        sys.exit(2)


def _fields() -> list[dataclasses.Field[Any]]:
    return list(dataclasses.fields(config.TrainerConfig))


def _define(field: dataclasses.Field[Any], hint: Any, values: flags.FlagValues) -> None:
    text = field.metadata["help"]
    default: Any = None if field.default is dataclasses.MISSING else field.default
    common: dict[str, Any] = {"flag_values": values, "module_name": "trainer"}
    plain = _plain_type(hint)
    if plain is bool:
        flags.DEFINE_boolean(field.name, default, text, **common)
    elif plain is int:
        flags.DEFINE(_Optional(flags.IntegerParser()), field.name, default, text, **common)
    elif plain is float:
        flags.DEFINE(_Optional(flags.FloatParser()), field.name, default, text, **common)
    elif plain is str:
        flags.DEFINE_string(field.name, default, text, **common)
    else:
        flags.DEFINE_list(field.name, list(default or ()), text, **common)


def _plain_type(hint: Any) -> Any:
    """Returns the type T of a field annotated `T` or `T | None`."""
    if isinstance(hint, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not types.NoneType)
    return hint


class _Optional(flags.ArgumentParser):  # type: ignore[type-arg]
    """Parses as another parser does, and "none" as None."""

    def __init__(self, parser: Any):
        self._parser = parser

    def parse(self, argument: Any) -> Any:
        """Returns the value of a flag's text."""
        if isinstance(argument, str) and argument.lower() == "none":
            return None
        return self._parser.parse(argument)

    def flag_type(self) -> str:
        """Returns the type's name for the help text."""
        return f"{self._parser.flag_type()} or none"
