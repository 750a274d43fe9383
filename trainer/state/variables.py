"""The variables of a trainer, as one named whole.

Owns reading them all at one instant, comparing them with a checkpoint, and setting them. Promises
that a comparison comes before any change: either every value is set or none is. Refuses to find
variables (see `discovery`) or to read files.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import errors
from trainer.base import wording
from trainer.base.log import LOG
from trainer.graph import snapshot
from trainer.state.discovery import Entry

# Names of hyper-parameters that optimizers hold as variables. What they hold besides (slots,
# counts, Nadam's product, the scale of a loss) changes by itself.
_SETTINGS = r"lr|(.*_)?(rate|decay|beta|rho|epsilon|lambda|clip)|beta_?\d|clip(norm|value)"

Described = Mapping[str, tuple[str, list[int]]]

# Other names that a pattern may be for.
_NO_VARIABLES = ("trainer/data/iterator", "trainer/data/order")


class State:
    """Named variables.

    Args:
        entries: the variables, in the order in which they are listed.
        keep_program_values: glob patterns of names that a restore leaves alone, once: a checkpoint
            that was written with a pattern is restored whole (see `restoring_from`).
    """

    def __init__(self, entries: Sequence[Entry], keep_program_values: Sequence[str] = ()):
        self.entries = {entry.name: entry for entry in entries}
        self.patterns = tuple(keep_program_values)
        self._keep = self.patterns
        self._read = snapshot.Reader([entry.variable for entry in entries])

    def renewed(self, entries: Sequence[Entry]) -> State:
        """Returns a state of other variables under the same patterns."""
        other = State(entries, self.patterns)
        other._keep = self._keep
        return other

    def names(self, kind: str | None = None) -> list[str]:
        """Returns the names of all variables, or of one kind."""
        return [name for name, entry in self.entries.items() if kind in (None, entry.kind)]

    def values(self) -> dict[str, tf.Tensor]:
        """Returns every value, all of one instant; later changes do not show in them."""
        return dict(zip(self.entries, self._read(), strict=True))

    def restoring_from(self, written_with: Sequence[str]) -> None:
        """Takes note of the checkpoint that the next `check` and `assign` are about.

        Args:
            written_with: the patterns that it was written with, whose names hold the program's
                values already.
        """
        self._keep = tuple(p for p in self.patterns if p not in set(written_with))

    def check(self, path: str, described: Described, *, but: Sequence[str] = ()) -> None:
        """Compares the program's variables with others, by name, shape and dtype.

        Args:
            path: where the others are, for the message.
            described: name to dtype and shape of each of the others.
            but: names of variables left out of the comparison.

        Raises:
            CheckpointMismatchError: they differ in a name that no pattern of
                `keep_program_values` excuses.
        """
        wanted = [name for name in self.entries if name not in set(but)]
        only_there = [name for name in described if name not in self.entries]
        only_here = [name for name in wanted if name not in described]
        different = [
            line
            for name in self._not_kept([name for name in wanted if name in described])
            if (line := _difference(name, self.entries[name].variable, described[name]))
        ]
        for pattern in self._keep:
            if not fnmatch.filter([*self.entries, *described, *_NO_VARIABLES], pattern):
                LOG.warning(
                    "keep_program_values: %r matches no name.%s",
                    pattern,
                    wording.did_you_mean(pattern, {*self.entries, *described}),
                )
        mismatch = (self._not_kept(only_there), self._not_kept(only_here), different)
        if any(mismatch):
            raise errors.CheckpointMismatchError(path, *mismatch)
        if only_there or only_here:
            LOG.warning(
                "%s fits in part, as keep_program_values allows\n%s%s",
                path,
                errors.listing("there only, not used", only_there),
                errors.listing("here only, left as the program set them", only_here),
            )

    def assign(self, values: Mapping[str, tf.Tensor]) -> None:
        """Sets the variables named in `values`, after `check`, but for those to be kept.

        Args:
            values: name to value; names that are no variables are passed over.
        """
        dropped = []
        for name, entry in self.entries.items():
            if name not in values:
                continue
            kept = self.is_kept(name)
            _log_difference(entry, values[name], kept)
            if kept:
                dropped.append(name)
            else:
                entry.variable.assign(values[name])
        if dropped:
            LOG.warning(
                "keep_program_values: the program's values stay, and the checkpoint's are dropped, "
                "of %s%s; a checkpoint written from now on is restored whole",
                ", ".join(dropped[:10]),
                f" and {len(dropped) - 10} more" if len(dropped) > 10 else "",
            )

    def is_kept(self, name: str) -> bool:
        """Tells whether a pattern of `keep_program_values` matches a name."""
        if name == "trainer/step":
            return False  # the checkpoint's number: there is no other truth
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._keep)

    def _not_kept(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not self.is_kept(name)]


def describe(tensors: Mapping[str, Any]) -> dict[str, tuple[str, list[int]]]:
    """Returns the dtype name and shape of each tensor."""
    return {
        name: (tf.as_dtype(t.dtype).name, [int(n) for n in t.shape]) for name, t in tensors.items()
    }


def _difference(name: str, variable: tf.Variable, described: tuple[str, list[int]]) -> str | None:
    dtype, shape = described
    if dtype == variable.dtype.name and variable.shape.is_compatible_with(shape):
        return None
    return (
        f"{name}: {dtype}{list(shape)} in the checkpoint, "
        f"{variable.dtype.name}{variable.shape.as_list()} in the program"
    )


def _is_setting(entry: Entry) -> bool:
    """Tells a hyper-parameter of an optimizer from its state, such as the scale of a loss."""
    *above, last = entry.name.split("/")
    of_old_keras = above[-1:] == ["hyper"]
    return entry.kind == "optimizer" and (of_old_keras or re.fullmatch(_SETTINGS, last) is not None)


def _log_difference(entry: Entry, value: tf.Tensor, kept: bool) -> None:
    """Says in one line where a hyper-parameter of the program is not the checkpoint's."""
    if not _is_setting(entry) or value.shape.rank != 0 or not value.dtype.is_floating:
        return
    saved, asked = np.asarray(value), np.asarray(entry.variable.read_value())
    if saved != asked:
        LOG.warning(
            "%s: the checkpoint has %s, the program asks %s, using %s%s",
            entry.name,
            saved,
            asked,
            asked if kept else saved,
            "" if kept else f" (keep_program_values=({entry.name!r},) uses the program's)",
        )
