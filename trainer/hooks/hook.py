"""The hook interface: what runs between compiled calls.

Owns `Hook`, which users derive from. Promises the order of its calls:

    begin(ctx)                each hook, in order
    loop:
        before_step(ctx)      hooks due at the next step, in order; ctx.step = steps completed
        run steps in the graph up to the boundary
        after_step(ctx)       hooks due at ctx.step, in order
        save, if due          after every hook of that step has returned
        after_save(ctx)       each hook, once the checkpoint is durable; ctx.saved_step
    final save                unless that step is saved already
    end(ctx)                  reverse order, exactly once for each hook whose begin returned

    event                                     after_step of that step        saved?  train()
    max_steps, epochs, stop request           ran, for all hooks due         yes     returns
    data ends                                 ran for the last whole step    yes     returns
    a step or a hook raises                   hooks after it: no             no      raises that
    an output is not finite                   no                             no      raises

Refuses to call anything (see `hook_list`), or to know what a step is, when a save is due, or what
is in a checkpoint.
"""

from __future__ import annotations

from typing import Any

from trainer.hooks.context import RunContext


class Hook:
    """Something called between steps; override what you need.

        class Patience(trainer.Hook):
            every_steps = 100

            def __init__(self):
                self.best, self.waited = float("inf"), 0

            def after_step(self, ctx):
                loss = float(ctx.outputs["loss"])
                self.waited = 0 if loss < self.best else self.waited + 1
                self.best = min(self.best, loss)
                if self.waited == 5:
                    ctx.request_stop("the loss has not fallen for 500 steps")

            def get_state(self):
                return {"best": self.best, "waited": self.waited}

            def set_state(self, state):
                self.best, self.waited = state["best"], state["waited"]

    A hook acts on the step it is given, never on calls it counted: a resumed run then calls it as
    the unbroken run would have. With `every_steps = k` it gets `before_step` with
    `ctx.step == m * k - 1` and `after_step` with `ctx.step == m * k`.

    Attributes:
        every_steps: called around each step whose number is a multiple of this.
        every_secs: for a hook with `only_outputs`: called when so many seconds of training have
            gone by since its last call, for the last step that is done then, instead of at the
            multiples of `every_steps`; `ctx.history` is that of the steps since. Up to 0.2 s late.
        name: key of the state in the checkpoint; None: the class's name, numbered.
        only_outputs: `after_step` looks at numbers of `ctx` alone (step, outputs, history, time),
            not at variables or at the data, and asks for no stop. Compiled calls need not end for
            it then, which makes it free: it is called for each of its steps in order, after the
            call in which they ran and up to 0.2 s late; for those of a call that raised, not.
            Where `train_step` returns metrics, calls end for it, to know their values at its steps.
        may_refuse: it may raise `StepRefusedError` to have a step undone; the run then begins with
            a checkpoint, so that there is a way back.
    """

    every_steps: int = 1
    every_secs: float | None = None
    name: str | None = None
    only_outputs: bool = False
    may_refuse: bool = False

    def begin(self, ctx: RunContext) -> None:
        """Called once before the first step of a `train()`."""

    def before_step(self, ctx: RunContext) -> None:
        """Called before a step that is due; `ctx.step` steps are completed."""

    def after_step(self, ctx: RunContext) -> None:
        """Called after a step that is due; `ctx.step` steps are completed."""

    def after_save(self, ctx: RunContext) -> None:
        """Called when checkpoint `ctx.saved_step` is on the disk.

        A large state is written while training goes on, so `ctx.step` may be a later step.
        """

    def end(self, ctx: RunContext) -> None:
        """Called once, however the run ended; `ctx.error` is the exception or None."""

    def get_state(self) -> dict[str, Any]:
        """Returns what a resume must know: all that the hook has and that changes in training.

        `tf.Variable`s held as attributes are saved without being listed here; a hook without
        attributes needs none. It is called at each save, and once before the first step, so that a
        value which cannot be kept is refused then.

        Returns:
            Name to value. Kept exactly, type and dtype included, at any depth: numbers, texts,
            bytes, None, lists, tuples, sets, `deque`s, dicts with such keys, NumPy scalars and
            arrays, eager tensors. Anything else (a named tuple, a dataclass, an `Enum`, a date)
            is refused by its place in the state; turn it into these.
        """
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` returned, before `begin`.

        Args:
            state: equal to what `get_state` returned, tuples as tuples and `np.float32` as
                `np.float32`.
        """
