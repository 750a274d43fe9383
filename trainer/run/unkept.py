"""What changes in training and is in no checkpoint.

Owns the watch over it: attributes of hooks without `get_state` and of the program, variables behind
objects that are not looked into, and what hooks change where it comes too late or too often.
Promises a warning that names it, once, at the first save after it is seen; that nothing is looked
at between saves; and that each look is bounded. Refuses to keep anything, or to stop a run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from trainer.base import clock
from trainer.base.log import LOG
from trainer.checkpoints import bundle
from trainer.graph import inspection
from trainer.hooks import context
from trainer.run.parts import Parts, late_variables, user_attributes
from trainer.state import behind_objects, plain, seeds

_MOST_BYTES = 64 << 20  # of variables that are compared
_LOOKS, _SHARE = (
    3,
    0.01,
)  # each of the first saves is looked at; then 1 % of the time is spent on it


@contextlib.contextmanager
def tracing(program: Any) -> Iterator[None]:
    """Warns of counters that tracing changes: once a process, and not once a step.

    Args:
        program: the user's trainer.
    """
    before = plain.summaries(user_attributes(program))
    yield
    now = plain.summaries(user_attributes(program))
    counters = [
        name
        for name in plain.changed(before, now)
        if name in before and before[name] is not plain.OTHER and now[name][0] not in _FLAGS
    ]
    if counters:
        LOG.warning(
            "train_step changes the attribute %s in Python, which happens when it is compiled, "
            "once in a process and not once a step; make it a tf.Variable",
            _listed(counters),
        )


class Unkept:
    """The watch over what changes and is not kept.

    Args:
        parts: the trainer's parts.
    """

    def __init__(self, parts: Parts):
        self._parts = parts
        self._before: dict[str, dict[str, Any]] = {}
        self._hidden: dict[str, tuple[Any, Any]] = {}  # path to variable and the value it had
        self._warned: set[tuple[str, str]] = set()
        self._begun = self._looked = False
        self._looks, self._look_secs, self._since = 0, 0.0, clock.now()

    def begin(self, ctx: context.RunContext) -> None:
        """Calls `begin` of the hooks, and takes note of what there is before the first step.

        Args:
            ctx: the context of the hooks.

        Raises:
            ValueError: a hook's state cannot be kept.
        """
        again = self._parts.progress.restored_step is not None and not self._begun
        self._begun = True
        self._parts.hooks.begin(ctx, self._around_begin if again else _nothing)
        self._parts.hooks.refuse_unkept_states()
        self._before = self._attributes()
        found = self._search()
        values = _bounded({path: variable.read_value() for path, variable in found.items()})
        self._hidden = {path: (found[path], value) for path, value in values.items()}

    def after_save(self, ctx: context.RunContext) -> None:
        """Calls `after_save` of the hooks.

        Args:
            ctx: the context of the hooks.
        """
        busy = self._look_secs > _SHARE * (clock.now() - self._since)
        skip = self._looks >= _LOOKS and busy
        self._looks += 1
        self._parts.hooks.after_save(ctx, _nothing if skip else self._around_after_save)

    def end(self) -> None:
        """Takes note that the run is over: what the program does until the next is its own."""
        self._before, self._hidden = {}, {}

    def look(self) -> None:
        """Says before a save what has changed and is not in it."""
        now = self._attributes() if self._before else {}
        for owner, attributes in now.items():
            names = plain.changed(self._before.get(owner, {}), attributes)
            new = [name for name in names if (owner, name) not in self._warned]
            self._warned |= {(owner, name) for name in new}
            if new:
                _warn_of_attributes(owner, new)
        if not self._looked:
            self._say_at_first_save()
        for path, (variable, before) in list(self._hidden.items()):
            if _differ(before, variable.read_value()):
                del self._hidden[path]
                _warn_of_variables([path])

    def _say_at_first_save(self) -> None:
        self._looked = True
        warned = {owner for owner, _ in self._warned}
        stateless = [key for key in self._parts.hooks.stateless() if key not in warned]
        if stateless:
            LOG.info(
                "state of hook %s will not be kept: no get_state and set_state",
                ", ".join(stateless),
            )
        late = late_variables(self._parts)
        if late:
            LOG.warning(
                "not saved, because they came after construction: %s; make them in build()",
                ", ".join(late),
            )
        new = [path for path in self._search() if path not in self._hidden] if self._before else []
        if new:
            _warn_of_variables(new)

    def _attributes(self) -> dict[str, dict[str, Any]]:
        """Returns summaries of what may change unsaved, by owner; "" is the program."""
        stateless = set(self._parts.hooks.stateless())
        hooks = {
            key: plain.summaries(inspection.vars_of(hook).items())
            for key, hook in self._parts.hooks
            if key in stateless
        }
        return {"": plain.summaries(user_attributes(self._parts.program)), **hooks}

    def _search(self) -> dict[str, Any]:
        entries = self._parts.content.variables.entries.values()
        known = {id(entry.variable) for entry in entries}
        attributes = list(user_attributes(self._parts.program))
        for key, hook in self._parts.hooks:
            found = inspection.vars_of(hook).items()
            attributes += [(f"{key}.{name}", value) for name, value in found]
        return behind_objects.search(attributes, known)

    @contextlib.contextmanager
    def _around_begin(self, key: str) -> Iterator[None]:
        variables: list[str] = []
        drawn: list[str] = []
        with self._compared(variables, drawn):
            yield
        self._warn_of_moment(
            "begin of hook %s %s, at each start; an unbroken run does that once, so a resumed one "
            "differs: do it in build(), or keep in get_state that it is done",
            key,
            variables,
            drawn,
        )

    @contextlib.contextmanager
    def _around_after_save(self, key: str) -> Iterator[None]:
        variables: list[str] = []
        drawn: list[str] = []
        begun = clock.now()
        with self._compared(variables, drawn):
            ready = clock.now()
            yield
            done = clock.now()
        self._look_secs += ready - begun + clock.now() - done
        self._warn_of_moment(
            "after_save of hook %s %s; the checkpoint that was just written does not hold that, so "
            "a run resumed from it differs: do it in after_step",
            key,
            variables,
            drawn,
        )

    def _warn_of_moment(self, text: str, key: str, variables: list[str], drawn: list[str]) -> None:
        found = [f"changes {_listed(variables)}"] if variables else []
        found += [f"draws from {_listed(drawn)} global generator"] if drawn else []
        if found and (key, text) not in self._warned:
            self._warned.add((key, text))
            LOG.warning(text, key, " and ".join(found))

    @contextlib.contextmanager
    def _compared(self, variables: list[str], drawn: list[str]) -> Iterator[None]:
        """Fills in the names of variables that changed and whose generators were drawn from."""
        states = self._parts.content.variables
        before, standing = _bounded(states.values()), seeds.capture()
        yield
        now = states.values()
        variables += [name for name, value in before.items() if _differ(value, now.get(name))]
        drawn += seeds.capture().differing(standing)


_FLAGS = ("bool", "NoneType", "str", "bytes")


def _nothing(key: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def _bounded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns as many values, in order, as the bound allows."""
    left, found = _MOST_BYTES, {}
    for name, value in values.items():
        size = bundle.size_of(value)
        if size <= left:
            left -= size
            found[name] = value
    return found


def _differ(one: Any, two: Any) -> bool:
    """Tells whether two values differ in a bit; one buffer is not read twice."""
    if two is None:
        return False
    first, second = np.asarray(one), np.asarray(two)
    if first.dtype.hasobject or first.shape != second.shape:
        return not np.array_equal(first, second)
    return first.ctypes.data != second.ctypes.data and first.tobytes() != second.tobytes()


def _warn_of_attributes(owner: str, names: Iterable[str]) -> None:
    if owner:
        LOG.warning(
            "state of hook %s will not be kept: %s changed in training, and the class has no "
            "get_state and set_state; a resumed run starts with the constructor's values",
            owner,
            _listed(names),
        )
    else:
        LOG.warning(
            "the trainer's attribute %s changed in training and is in no checkpoint; make it a "
            "tf.Variable, or keep it in a hook's get_state and set it in set_state",
            _listed(names),
        )


def _warn_of_variables(paths: Iterable[str]) -> None:
    LOG.warning(
        "the variable %s is in no checkpoint: it is held by an object that is not looked into; "
        "make that a tf.Module, list or dict, or hold the variable as an attribute of its own",
        _listed(paths),
    )


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
