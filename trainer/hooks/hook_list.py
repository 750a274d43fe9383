"""The hooks of one trainer, called in order.

Owns the list, the key of each hook's state in a checkpoint, and which hook is due at which step.
Promises the order that `hook` states. Refuses to know what a step is, when a save is due, or what
is in a checkpoint.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainer import errors
from trainer.base import probe
from trainer.base.log import LOG
from trainer.hooks import hook_rules, state_text
from trainer.hooks.context import RunContext
from trainer.hooks.hook import Hook
from trainer.hooks.hook_rules import overrides

Around = Callable[[str], contextlib.AbstractContextManager[None]]


class HookList:
    """The hooks of one trainer, in order, each under the key of its state.

    Args:
        hooks: the hooks.

    Raises:
        ValueError: it is no sequence, or one of them cannot be added.

    Attributes:
        under_way: the moment ("after_step", say) for which hooks still have to be called, or None.
    """

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        if not isinstance(hooks, Sequence):
            raise ValueError(f"hooks must be a list of hooks, got {hooks!r}")
        self._hooks: dict[str, Hook] = {}
        self._begun: list[str] = []
        self._seen: dict[str, tuple[int, float]] = {}  # last call of hooks that go by time
        self.under_way: str | None = None
        for hook in hooks:
            self.add(hook)

    def add(self, hook: Hook) -> str:
        """Appends a hook and returns its key.

        Raises:
            ValueError: it is no Hook, its cadence is neither a whole number of at least 1 nor a
                time, its name is taken, or it has a `before_step` and looks only at outputs.
        """
        hook_rules.check(hook)
        key = self._key(hook)
        self._hooks[key] = hook
        return key

    def __iter__(self) -> Iterator[tuple[str, Hook]]:
        return iter(self._hooks.items())

    def __len__(self) -> int:
        return len(self._hooks)

    @property
    def any_only_outputs(self) -> bool:
        """Whether a hook looks only at outputs, so that it is called after the fact."""
        return any(hook.only_outputs for hook in self._hooks.values())

    @property
    def may_refuse(self) -> bool:
        """Whether a hook may have a step undone."""
        return any(hook.may_refuse for hook in self._hooks.values())

    def next_boundary(self, step: int, *, only_outputs: bool = False) -> int | None:
        """Returns the next step after `step` at which a call must end for a hook, or None.

        Args:
            step: completed steps.
            only_outputs: whether it must for hooks that look only at outputs, too.
        """
        boundaries = []
        for hook in self._hooks.values():
            every = hook.every_steps
            ends = not hook.only_outputs or (only_outputs and hook.every_secs is None)
            if ends and overrides(hook, "after_step"):
                boundaries.append(step - step % every + every)
            if overrides(hook, "before_step"):  # due one step earlier
                boundaries.append(step + 1 - (step + 1) % every + every - 1)
        return min(boundaries, default=None)

    def limit_for_only_outputs(self, step: int, limit: int) -> int:
        """Returns how many of `limit` steps to run so that a hook that looks on is not kept late.

        Args:
            step: completed steps.
            limit: steps in the next call at most.
        """
        last = step + limit
        looks = [
            last - last % hook.every_steps
            for hook in self._hooks.values()
            if hook.only_outputs and hook.every_secs is None
        ]
        return max((look - step for look in looks if look > step), default=limit)

    def history_start(self, step: int) -> int:
        """Returns the first step whose outputs an `after_step` may still ask for after `step`."""
        due = [
            step - step % hook.every_steps + 1
            for hook in self._hooks.values()
            if overrides(hook, "after_step")
        ]
        return min(due, default=step + 1)

    def outputs_start(self, step: int) -> int:
        """Returns the first step whose outputs a `before_step` may ask for; `step` at most."""
        due = [
            step + -(step + 1) % hook.every_steps - hook.every_steps + 1
            for hook in self._hooks.values()
            if overrides(hook, "before_step")
        ]
        return max(1, min([step, *due]))

    def memory_start(self, step: int) -> int:
        """Returns the first step whose outputs a hook may still ask for once `step` is done.

        Hooks that go by time look further back; a resumed run begins their time anew.
        """
        by_time = [seen + 1 for seen, _ in self._seen.values()]
        return min(self.history_start(step), self.outputs_start(step), *by_time)

    def begin(self, ctx: RunContext, around: Around) -> None:
        """Calls `begin` of each hook, in order.

        Args:
            ctx: the context.
            around: what to do around the call of a hook that has a `begin`.
        """
        self._begun, self._seen = [], {}
        with self._calling("begin"):
            for key, hook in self._with_last_free():
                with around(key) if overrides(hook, "begin") else contextlib.nullcontext():
                    self._call(key, hook.begin, ctx)
                self._begun.append(key)

    def before_step(self, ctx: RunContext) -> None:
        """Calls `before_step` of the hooks due at the next step, in order."""
        with self._calling("before_step"):
            for key, hook in self:
                if (ctx.step + 1) % hook.every_steps == 0 and overrides(hook, "before_step"):
                    self._call(key, hook.before_step, ctx)

    def after_steps(self, ctx: RunContext, first: int, last: int) -> None:
        """Calls `after_step` of the hooks due at the steps of a call, step by step, in order.

        Args:
            ctx: the context, turned to each step in turn and to the last in the end.
            first: first step of the call.
            last: last step of it.
        """
        listening = [(key, hook) for key, hook in self if overrides(hook, "after_step")]
        due = {last}
        for key, hook in listening:
            every = hook.every_steps
            if hook.every_secs is None:
                due.update(range(first + -first % every, last + 1, every))
            elif key not in self._seen:
                ctx.show_step(first, behind=last - first)
                self._seen[key] = (first - 1, ctx.trained_secs)
        with self._calling("after_step"):
            for step in sorted(due):
                ctx.show_step(step, behind=last - step)
                for key, hook in listening:
                    if self._is_due(key, hook, ctx, last):
                        self._call(key, hook.after_step, ctx)
                        if key in self._seen:
                            self._seen[key] = (step, ctx.trained_secs)

    def _is_due(self, key: str, hook: Hook, ctx: RunContext, last: int) -> bool:
        if hook.every_secs is None:
            return ctx.step % hook.every_steps == 0
        return ctx.step == last and ctx.trained_secs - self._seen[key][1] >= hook.every_secs

    def after_save(self, ctx: RunContext, around: Around) -> None:
        """Calls `after_save` of each hook, in order.

        Args:
            ctx: the context.
            around: what to do around the call of a hook that has an `after_save`.
        """
        with self._calling("after_save"):
            for key, hook in self._with_last_free():
                with around(key) if overrides(hook, "after_save") else contextlib.nullcontext():
                    self._call(key, hook.after_save, ctx)

    @contextlib.contextmanager
    def _calling(self, moment: str) -> Iterator[None]:
        before, self.under_way = self.under_way, moment
        try:
            yield
        finally:
            self.under_way = before

    def _with_last_free(self) -> Iterator[tuple[str, Hook]]:
        """Yields the hooks; when it comes to the last, no other has still to be called."""
        left = len(self)
        for key, hook in self:
            left -= 1
            if not left:
                self.under_way = None
            yield key, hook

    def end(self, ctx: RunContext) -> BaseException | None:
        """Calls `end` of each hook whose `begin` returned, last first.

        Every one is called. An error in an `end` is logged; the first is returned if the run itself
        ended without one.
        """
        first: BaseException | None = None
        begun, self._begun = self._begun, []
        for key in reversed(begun):
            try:
                self._call(key, self._hooks[key].end, ctx)
            except BaseException as error:
                LOG.error("hook %s raised in end: %r", key, error)
                if not isinstance(error, errors.EvaluationStoppedError):  # the run is as it was
                    first = first or error
        return first if ctx.error is None else None

    def states(self) -> dict[str, str]:
        """Returns the text of the state of each hook that has one, by key.

        Raises:
            ValueError: a state is no dict, or holds what cannot be kept (see `state_text`).
        """
        states = {}
        for key, hook in self:
            try:
                state = hook.get_state()
            except BaseException as error:
                errors.add_note(error, f"raised by {key}.get_state")
                raise
            # An empty state is one too, for a hook that takes it back.
            if state or overrides(hook, "set_state"):
                states[key] = state_text.encode(key, state)
        return states

    def refuse_unkept_states(self) -> None:
        """Refuses a state that cannot be kept before the first step, and not at the first save.

        Raises:
            ValueError: a state is no dict, or holds what cannot be kept.
        """
        for key, hook in self:
            try:
                state = hook.get_state()
            except Exception:  # it may need a step to have run; a save will tell
                continue
            state_text.encode(key, state)

    def stateless(self) -> list[str]:
        """Returns the keys of the hooks that have attributes to keep and offer no state."""
        return [
            key for key, hook in self if not overrides(hook, "get_state") and _has_something(hook)
        ]

    def give(self, key: str, state: dict[str, Any]) -> None:
        """Gives a hook its saved state.

        Args:
            key: of the hook.
            state: what a checkpoint holds for it.
        """
        try:
            self._hooks[key].set_state(state)
        except BaseException as error:
            errors.add_note(error, f"raised by {key}.set_state, given {_short(state)}")
            raise

    def _key(self, hook: Hook) -> str:
        if hook.name is not None:
            if not isinstance(hook.name, str) or not hook.name or "/" in hook.name:
                raise ValueError(f"a hook's name must be a text without '/', got {hook.name!r}")
            if hook.name in self._hooks:
                raise ValueError(f"two hooks have the name {hook.name!r}; give each its own")
            return hook.name
        base = key = type(hook).__name__
        number = 0
        while key in self._hooks:
            number += 1
            key = f"{base}_{number}"
        return key

    def _call(self, key: str, method: Callable[[RunContext], None], ctx: RunContext) -> None:
        hook = self._hooks[key]
        steps = ctx.step - self._seen[key][0] if key in self._seen else hook.every_steps
        ctx.calling(key, steps, may_stop=not hook.only_outputs)
        try:
            if probe.job() is None:
                method(ctx)
            else:
                with probe.calling(key, method, ctx):
                    method(ctx)
        except SystemExit as error:
            raise errors.TrainerError(
                f"hook {key} called sys.exit({error.code!r}) in {method.__name__} at step "
                f"{ctx.step}: an exit there is an error of the run, whose last steps are not "
                "saved; ctx.request_stop(reason) in after_step ends it, saved"
            ) from error
        except BaseException as error:
            errors.add_note(error, f"raised by {key}.{method.__name__} at step {ctx.step}")
            raise


def _has_something(hook: Hook) -> bool:
    """Tells whether a hook has attributes that a resume loses: settings and variables apart."""
    of_all = vars(Hook).keys() | getattr(Hook, "__annotations__", {}).keys()
    return any(
        name not in of_all and not hasattr(value, "assign") for name, value in vars(hook).items()
    )


def _short(state: Any) -> str:
    text = repr(state)
    return text if len(text) <= 200 else f"{text[:200]} ..."
