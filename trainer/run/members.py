"""The names in a user's classes: those that the trainer needs for itself, and those nobody calls.

Owns the two rules. Promises that a name which the trainer needs is refused where it is set or at
construction, and that a method of another framework, or one spelled a little wrong, is told what
calls it here; and silence for a method that the program itself calls. Refuses to guess beyond that.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from trainer.base.log import LOG
from trainer.hooks.hook import Hook
from trainer.run import inside

_FILLED_IN = ("build", "train_dataset", "train_step", "eval_dataset", "eval_step")
_OF_HOOKS = ("begin", "before_step", "after_step", "after_save", "end", "get_state", "set_state")
_NEAR = 0.85
_GIVEN = ("config", "model_dir", "seed", "step", "restored_step", "checkpoints")

# The end of an error about an attribute that is not there while a trainer is constructed.
WHEN_TO_SET = (
    " (yet): super().__init__() calls build(), train_dataset() and train_step(), so set what they "
    "use in the lines before it, or in build()"
)

# Names of Keras, Lightning, Hugging Face and Estimator, and what does their work here.
_ELSEWHERE = (
    (r"(training|fit|compute)_step|optimizer_step|compute_loss", "train_step"),
    (r"(validation|val|valid|test|evaluation|evaluate|predict(ion)?)_step", "eval_step"),
    (r"configure_optimizers?|create_optimizers?|model_fn|configure_model", "build"),
    (r"(get_)?train(ing)?_(data(loader|set)?|ds|input_fn)|input_fn|prepare_data", "train_dataset"),
    (
        r"(get_)?(val(id(ation)?)?|test|eval(uation)?|predict)_(data(loader|set)?|ds)",
        "eval_dataset",
    ),
)
_MOMENTS = (
    (r".*epoch.*", "after_step of a trainer.Hook, which looks at ctx.epoch_ended"),
    (r"on_(fit|train|training|run)_(begin|start)|(before|on)_(fit|run|train|training)", "begin"),
    (r"on_(fit|train|training|run)_(end|finish)|after_(fit|run|train|training)", "end"),
    (r".*(save|checkpoint).*", "after_save"),
    (r"before_.*|on_.*(begin|start)", "before_step"),
    (r"after_.*|on_.*", "after_step"),
)


class Guarded:
    """Looks at each attribute that a program sets or misses; the trainer is derived from it."""

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property of the program's that raised
            return object.__getattribute__(self, name)
        rule = "" if inside.is_constructed(self) else WHEN_TO_SET
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{rule}")

    def __setattr__(self, name: str, value: Any) -> None:
        base = next(cls for cls in type(self).__mro__ if Guarded in cls.__bases__)
        may_be_set(self, name, vars(base))
        if inside.is_constructed(self):
            warn_if_late(self, name, sys._getframe(1))
        super().__setattr__(name, value)


def may_be_set(program: Any, name: str, methods: Iterable[str]) -> None:
    """Refuses an attribute that would hide what the trainer itself needs.

    Args:
        program: the user's trainer.
        name: of the attribute.
        methods: names of the trainer's own.

    Raises:
        ValueError: it is one of them.
    """
    if name.startswith("_") or name not in methods:
        return
    there = f"; self.{name} is there without it" if name in _GIVEN else ""
    raise ValueError(
        f"the attribute {name!r} of {type(program).__name__} hides Trainer.{name}, a name that is "
        f"reserved{there}; give it another name, such as self.my_{name}"
    )


def warn_if_late(program: Any, name: str, setting: types.FrameType) -> None:
    """Warns of an attribute that a constructor sets when the step that uses it is compiled already.

    Args:
        program: the user's trainer, constructed.
        name: of the attribute.
        setting: the frame in which it is set.
    """
    code = setting.f_code
    own = code.co_name == "__init__" and code.co_argcount
    if own and setting.f_locals.get(code.co_varnames[0]) is program and name in _seen(program):
        LOG.warning(
            "self.%s is set after super().__init__(), which has called build(), train_dataset() "
            "and train_step(): they have not seen it; set it in the lines before",
            name,
        )


def _seen(program: Any) -> set[str]:
    """Returns the names that construction uses: those in `build`, say, and what that calls."""
    left, seen = ["build", "train_dataset", "train_step"], set[str]()
    while left:
        for function in _functions(inspect.getattr_static(type(program), left.pop(), None)):
            new = set(_names(function.__code__)) - seen
            seen |= new
            left += new
    return seen


def check(program: Any, hooks: Iterable[Hook], methods: Iterable[str]) -> None:
    """Checks the names of a program's class and of its hooks' classes.

    Args:
        program: the user's trainer.
        hooks: the hooks.
        methods: names of the trainer's own.

    Raises:
        ValueError: the class overrides what must not be overridden.
    """
    reserved = {name for name in methods if not name.startswith("_")} - set(_FILLED_IN)
    classes = _own_classes(type(program))
    for cls in classes:
        for name in vars(cls):
            if name in reserved:
                raise ValueError(
                    f"{cls.__name__}.{name} overrides Trainer.{name}, a name that is reserved; "
                    f"give it another name, such as my_{name}. Fill in "
                    f"{', '.join(_FILLED_IN)}; what is to happen between steps belongs in a Hook"
                )
    hooks = list(hooks)
    called = _names_used([program, *hooks])
    for cls, name in _methods(classes, called | set(_FILLED_IN)):
        advice = _meant_in_trainer(name)
        if advice is not None:
            LOG.warning("nothing calls %s.%s: %s", cls.__name__, name, advice)
    for hook in hooks:
        of_hook(hook, called)


def of_hook(hook: Hook, called: set[str] | None = None) -> None:
    """Warns of methods of a hook that look like an event and that nothing calls.

    Args:
        hook: the hook.
        called: names that the program uses; None: those that the hook uses.
    """
    called = _names_used([hook]) if called is None else called
    for cls, name in _methods(_own_classes(type(hook)), called | set(_OF_HOOKS)):
        advice = _meant_in_hook(name)
        if advice is not None:
            LOG.warning("nothing calls %s.%s: %s", cls.__name__, name, advice)


def _meant_in_trainer(name: str) -> str | None:
    if name in _OF_HOOKS:
        return f"{name} is a method of trainer.Hook, not of the trainer; write a hook"
    near = difflib.get_close_matches(name, _FILLED_IN, 1, _NEAR)
    meant = [to for pattern, to in _ELSEWHERE if re.fullmatch(pattern, name)] or near
    if meant:
        return f"the trainer calls {meant[0]}; rename it if that is meant"
    if re.fullmatch(r"on_\w+_(begin|start|end)|(before|after)_(step|epoch|train\w*|fit|run)", name):
        return _moment(name)
    return None


def _meant_in_hook(name: str) -> str | None:
    near = difflib.get_close_matches(name, _OF_HOOKS, 1, _NEAR)
    if near:
        return f"hooks are called by {near[0]}; rename it if that is meant"
    return _moment(name) if re.match(r"(on|before|after)_", name) else None


def _moment(name: str) -> str:
    to = next(to for pattern, to in _MOMENTS if re.fullmatch(pattern, name))
    return f"what does that here is {to if ' ' in to else f'{to} of a trainer.Hook'}"


def _own_classes(cls: type) -> list[type]:
    """Returns the classes of a class's line that are not of this package or of Python."""
    package = __name__.split(".")[0]
    return [c for c in cls.__mro__ if c is not object and c.__module__.split(".")[0] != package]


def _methods(classes: Iterable[type], called: set[str]) -> Iterator[tuple[type, str]]:
    for cls in classes:
        for name, value in vars(cls).items():
            if not name.startswith("_") and name not in called and _functions(value):
                yield cls, name


def elsewhere(program: object) -> dict[str, Any]:
    """Returns what a program's methods use that is no attribute of it, by what it is in words."""
    found: dict[str, Any] = {}
    for cls in _own_classes(type(program)):
        for name, value in vars(cls).items():
            if not name.startswith("__") and not _functions(value):
                found[f"the class attribute {cls.__name__}.{name}"] = value
    for function in _functions_used([program]):
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        found |= {f"{name} of the function around it": cell for name, cell in cells}
        for name in _names(function.__code__):
            value = function.__globals__.get(name)
            if not isinstance(value, types.ModuleType | types.FunctionType | type):
                found[f"the global {name}"] = value
    return found


def _names_used(made: Iterable[object]) -> set[str]:
    """Returns the names that the methods of objects use, and the functions that lead to them."""
    return {name for function in _functions_used(made) for name in _names(function.__code__)}


def _functions_used(made: Iterable[object]) -> list[types.FunctionType]:
    """Returns the methods of objects, and the functions that they call or that make the objects."""
    kinds = [type(value) for value in made]
    values = [v for kind in kinds for c in _own_classes(kind) for v in vars(c).values()]
    left = [function for value in values for function in _functions(value)]
    for kind in kinds:  # a function beside the class that makes one may call what it likes
        beside = vars(sys.modules.get(kind.__module__, types)).values()
        left += [f for f in beside if inspect.isfunction(f) and kind.__name__ in _names(f.__code__)]
    seen: dict[int, types.FunctionType] = {}
    while left:
        function = left.pop()
        if id(function) not in seen:
            seen[id(function)] = function
            there = (function.__globals__.get(name) for name in _names(function.__code__))
            left += [other for other in there if inspect.isfunction(other)]
    return list(seen.values())


def _functions(value: Any) -> list[types.FunctionType]:
    """Returns the function that a method is, whatever it is wrapped in."""
    if isinstance(value, property):
        return [f for part in (value.fget, value.fset) if part for f in _functions(part)]
    value = getattr(value, "__func__", value)  # of a static or class method
    if isinstance(value, functools.partial | functools.partialmethod):
        value = value.func
    if not inspect.isfunction(value):
        value = getattr(value, "python_function", getattr(value, "__wrapped__", None))
    function = inspect.unwrap(value) if inspect.isfunction(value) else None
    return [function] if inspect.isfunction(function) else []


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
