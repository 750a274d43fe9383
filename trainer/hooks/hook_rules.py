"""What a hook must be to be taken in.

Owns the rules for a hook's class and for when it is called. Promises a message that names the hook,
the value and what to write. Refuses to keep hooks (see `hook_list`).
"""

from __future__ import annotations

from typing import Any

from trainer.base import arguments
from trainer.hooks.hook import Hook


def check(hook: Any) -> None:
    """Checks one hook.

    Args:
        hook: what a user gave as one.

    Raises:
        ValueError: it is no Hook, its cadence breaks a rule, or it has a `before_step` and looks
            only at outputs.
    """
    if not isinstance(hook, Hook):
        made = " (a class: write its parentheses)" if isinstance(hook, type) else ""
        raise ValueError(
            f"a hook must be an instance of trainer.Hook, got {hook!r}{made}; "
            "derive its class from trainer.Hook"
        )
    _check_cadence(hook)
    if hook.only_outputs and overrides(hook, "before_step"):
        raise ValueError(
            f"{type(hook).__name__} has only_outputs = True and a before_step, for which "
            "compiled calls must end; set only_outputs = False"
        )


def overrides(hook: Hook, method: str) -> bool:
    """Tells whether a hook has a method of its own."""
    return getattr(type(hook), method) is not getattr(Hook, method) or method in vars(hook)


def _check_cadence(hook: Hook) -> None:
    made, every, secs = type(hook).__name__, hook.every_steps, hook.every_secs
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise ValueError(
            f"every_steps of {made} must be a whole number of at least 1, got {every!r}"
        )
    if secs is None:
        return
    if not (arguments.is_number(secs) and 0 < secs < float("inf")):
        raise ValueError(f"every_secs of {made} must be a number above 0 or None, got {secs!r}")
    if not hook.only_outputs:
        raise ValueError(
            f"{made} has every_secs = {secs!r}: only a hook with only_outputs = True may go by "
            "time, since what the others do must not depend on it; set every_steps instead"
        )
