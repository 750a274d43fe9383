"""The entry point of a training program.

Owns the flags made from `TrainerConfig`, their help, and the exit status of the process. Promises
that a program's own flags keep working, that a wrong flag ends with status 2 and says what is
known, and that what this package refuses is said without a traceback. Refuses to define a flag when
it is imported.

Exit status: 0 for a run that ended as it should, 1 for an error, 2 for bad flags, 75 ("run me
again") after SIGTERM, 130 after SIGINT (Ctrl-C).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from absl import app as absl_app
from absl import flags

from trainer import config, errors, trainer
from trainer.base import arguments as arguments_module
from trainer.base import probe, shadow, wording
from trainer.base.log import LOG, make_visible
from trainer.fingerprint import threads
from trainer.hooks.hook import Hook
from trainer.run import signals

Hooks = Callable[[], Sequence[Hook]] | Sequence[Hook]
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = (
    "absl",
    "tensorflow",
    "keras",
    "tf_keras",
    "trainer",
)  # flags that are not a program's


def run(
    trainer_class: Callable[..., trainer.Trainer],
    hooks: Hooks | None = None,
    *,
    argv: Sequence[str] | None = None,
    **defaults: Any,
) -> typing.NoReturn:
    """Parses the flags, constructs the trainer, trains, and ends the process.

    What this package refuses (a folder in use, a checkpoint of another program, a wrong setting) is
    said in words alone; an error of the program's own keeps its traceback.

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

    def main(rest: Sequence[str]) -> int:
        settings = config_from_flags()
        _warn_of_shadow(rest[0])
        try:
            with signals.watch(stops=settings.stop_signals):
                threads.adopt(settings.model_dir, settings.intra_op_threads)
                made = list(hooks() if callable(hooks) else hooks or ())
                with trainer_class(settings, hooks=made) as program:
                    return program.train().exit_code
        except KeyboardInterrupt:
            return 130
        except Exception as error:
            if not _is_refusal(error):
                raise
            LOG.debug("refused", exc_info=True)
            notes = getattr(error, "__notes__", ())
            print("\n".join([f"{rest[0]}: {error}", *notes]), file=sys.stderr)
            return 1

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
        for name in probe.settings({field.name: None for field in _fields()}):
            # The program's own look at a flag shows what holds in a proof.
            values[name].value = getattr(config_from_flags(values), name)
        config_from_flags(values)
    except flags.UnrecognizedFlagError as error:
        near = wording.nearest(error.flagname, values)
        raise (
            flags.UnrecognizedFlagError(error.flagname, suggestions=near) if near else error
        ) from None
    except ValueError as error:
        raise flags.Error(str(error)) from None
    return rest


def help_text(program: str, values: flags.FlagValues = flags.FLAGS, *, full: bool = False) -> str:
    """Returns the flags of a run and of the program, with their meaning and defaults.

    Args:
        program: the program's name.
        values: the flags.
        full: show those of every module.
    """
    about = (getattr(sys.modules.get("__main__"), "__doc__", None) or "").strip()
    modules = values.flags_by_module_dict()
    own = [name for name in modules if name.split(".")[0] not in _LIBRARIES]
    others = [name for name in modules if name not in own and name != "trainer"]
    shown = ["trainer", *own, *(others if full else ())]
    return "\n".join(
        [
            f"usage: {program} --model_dir=FOLDER [--flag=value ...]",
            *([about] if about else []),
            *(values.module_help(name).rstrip() for name in shown),
            *([] if full else ["", "--helpfull shows the flags of every module."]),
        ]
    )


def _set_defaults(defaults: dict[str, Any]) -> None:
    known = [field.name for field in _fields()]
    for name, value in defaults.items():
        if name not in known:
            meant = wording.did_you_mean(name, [*known, "hooks", "argv"])
            raise ValueError(
                f"there is no flag {name!r} to set a default of.{meant} There are {known}"
            )
        flags.FLAGS.set_default(name, list(value) if isinstance(value, tuple) else value)


def _warn_of_shadow(program: str) -> None:
    """Says where a file of the user's stands in this package's way."""
    path = shadow.found(os.path.dirname(os.path.abspath(program)), os.getcwd())
    if path is not None:
        make_visible()
        LOG.warning("%s", shadow.sentence(path))


def _is_refusal(error: Exception) -> bool:
    """Tells whether this package raised an error by itself, with no line of the program's in it.

    A constructor that hands over to `super().__init__` is no such line.
    """
    codes, at = [], error.__traceback__
    while at is not None:
        codes.append(at.tb_frame.f_code)
        at = at.tb_next
    ours = [os.path.abspath(code.co_filename).startswith(_PACKAGE + os.sep) for code in codes]
    if not ours[-1] or not isinstance(
        error, errors.TrainerError | ValueError | NotImplementedError
    ):
        return False
    return all(
        known or code.co_name == "__init__" or _is_of_python(code.co_filename)
        for known, code in zip(ours, codes, strict=True)
    )


def _is_of_python(path: str) -> bool:
    return path.startswith((os.path.dirname(os.__file__), "<")) or "site-packages" in path


def _parse(arguments: Sequence[str]) -> list[str]:
    """Parses for absl, which by itself would end with status 1."""
    for name, short, text in (
        ("help", "?", "Show the flags of this program."),
        ("helpshort", "h", "Show the flags of this program."),
        ("helpfull", None, "Show the flags of every module too."),
    ):
        free = short if short == "?" or (short and short not in flags.FLAGS) else None
        flags.DEFINE_flag(_Help(name, free, text, arguments[0]), module_name="absl.app")
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
    elif plain in (int, float):
        flags.DEFINE(_Number(whole=plain is int), field.name, default, text, **common)
    elif plain is str:
        flags.DEFINE_string(field.name, default, text, **common)
    else:
        flags.DEFINE_list(field.name, list(default or ()), text, **common)


def _plain_type(hint: Any) -> Any:
    """Returns the type T of a field annotated `T` or `T | None`."""
    if isinstance(hint, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not types.NoneType)
    return hint


class _Number(flags.ArgumentParser):  # type: ignore[type-arg]
    """Parses a number, and "none" as None.

    Args:
        whole: whether it must be a whole one.
    """

    def __init__(self, *, whole: bool):
        self._whole = whole
        self.syntactic_help = self.flag_type()

    def parse(self, argument: Any) -> Any:
        """Returns the value of a flag's text."""
        if not isinstance(argument, str):
            return argument
        if argument.strip().lower() == "none":
            return None
        read = arguments_module.whole_in if self._whole else arguments_module.number_in
        return read(argument)

    def flag_type(self) -> str:
        """Returns the type's name for the help text."""
        return f"{'a whole number' if self._whole else 'a number'} or none"


class _Help(flags.BooleanFlag):
    """Shows flags and ends the process with status 0, where absl's own ends it with 1.

    Args:
        name: "help", "helpshort" or "helpfull".
        short_name: one letter, or None.
        text: what it does.
        program: the program's name.
    """

    def __init__(self, name: str, short_name: str | None, text: str, program: str):
        super().__init__(name, False, text, short_name=short_name, allow_override=True)
        self._program = program

    def parse(self, argument: Any) -> None:
        """Shows the flags."""
        if self._parse(argument):
            with contextlib.suppress(
                BrokenPipeError
            ):  # the reader, such as `head`, has seen enough
                print(help_text(self._program, full=self.name == "helpfull"), flush=True)
            sys.exit(0)
