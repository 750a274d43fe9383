"""Which of several hooks of one class is which.

Owns the settings of hooks: single plain attributes that their constructors gave them and that have
not changed since. Promises a warning when hooks of one class have changed places, so that each
would have the other's state. Refuses to move states: only the program's author knows which is
which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainer.base.log import LOG
from trainer.graph import inspection
from trainer.hooks.hook import Hook
from trainer.state import plain

Known = Mapping[str, Mapping[str, Any]]


class HookSettings:
    """The settings of the hooks of one trainer.

    Args:
        hooks: keys and hooks, before any has taken a state back.
    """

    def __init__(self, hooks: Iterable[tuple[str, Hook]]):
        self._made: dict[str, dict[str, Any]] = {}
        self._hooks: dict[str, Hook] = {}
        for key, hook in hooks:
            self.add(key, hook)

    def add(self, key: str, hook: Hook) -> None:
        """Takes note of a hook as its constructor made it.

        Args:
            key: its key; one that the program named cannot be mistaken for another's.
            hook: the hook.
        """
        if hook.name is None:
            found = {"every_steps": hook.every_steps, **inspection.vars_of(hook)}
            self._made[key], self._hooks[key] = plain.settings(found), hook

    def text(self, stateful: Iterable[str | None]) -> str | None:
        """Returns JSON text for a checkpoint, or None if there is nothing to tell apart.

        Args:
            stateful: keys of the hooks that have something in the checkpoint.
        """
        known = {}
        for key in sorted(self._made.keys() & set(stateful)):
            hook, made = self._hooks[key], self._made[key]
            now = plain.settings({"every_steps": hook.every_steps, **inspection.vars_of(hook)})
            known[key] = {n: v for n, v in made.items() if _same(now.get(n, ...), v)}
        return json.dumps(known) if any(known.values()) else None

    def warn_if_moved(self, known: Known) -> None:
        """Warns of hooks that are given the state of another of their class.

        Args:
            known: the settings in the checkpoint, by key.
        """
        for key, made in self._made.items():
            for other, settings in known.items():
                if _class_of(other) != type(self._hooks[key]).__name__ or other == key:
                    continue
                mistaken = key in known and _fits(made, known[key])
                if _fits(made, settings) and not mistaken and not self._stands(other, settings):
                    LOG.warning(
                        "hook %s has the settings that hook %s had when the checkpoint was "
                        "written (%s), and does not get its state: hooks of one class are told "
                        "apart by their order alone. Give each a name (hook.name = ...) to change "
                        "their order",
                        key,
                        other,
                        ", ".join(f"{n}={v!r}" for n, v in _telling(settings, known.values())),
                    )

    def _stands(self, key: str, settings: Mapping[str, Any]) -> bool:
        return key in self._made and _fits(self._made[key], settings)


def _fits(made: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    return all(name in made and made[name] == value for name, value in settings.items())


def _same(one: Any, two: Any) -> bool:
    return bool(plain.summary(one) == plain.summary(two))


def _telling(settings: Mapping[str, Any], all_of_them: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Returns the settings that not all hooks share."""
    known = list(all_of_them)
    telling = [i for i in settings.items() if any(o.get(i[0], ...) != i[1] for o in known)]
    return telling or list(settings.items())


def _class_of(key: str) -> str:
    return re.sub(r"_\d+$", "", key)
