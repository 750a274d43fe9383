"""Going on after an error that passes.

Owns the list of errors that a rebuilt iterator and a restored state can cure, and the pauses in
between. Promises that an error of the program is never tried again, and that retries which make no
progress end. Refuses to start a process: a restore in this one takes a hundredth of that.
"""

from __future__ import annotations

import time

import tensorflow as tf

from trainer import errors
from trainer.base.log import LOG
from trainer.run import saving
from trainer.run.parts import Parts, go_back

_MOST = 3  # in a row without a newer checkpoint
_FIRST_PAUSE_SECS, _LONGER = 0.1, 5.0  # 0.1, 0.5, 2.5
pause = time.sleep  # tests replace this


class Retry:
    """The retries of one `train()`.

    Args:
        parts: the trainer's parts.
        saver: the saves.
    """

    def __init__(self, parts: Parts, saver: saving.Saver):
        self._parts = parts
        self._saver = saver
        self._newest: int | None = None
        self._count = 0

    def again(self, error: Exception) -> None:
        """Goes back to the newest checkpoint, or raises the error again.

        Args:
            error: what ended the training.
        """
        parts = self._parts
        if error is not parts.progress.failure or not is_curable(error):
            raise error
        newest = self._saver.newest()
        if newest is None:
            errors.add_note(error, "not tried again: no checkpoint was written yet")
            raise error
        self._count = 1 if newest != self._newest else self._count + 1
        self._newest = newest
        if self._count > _MOST:
            errors.add_note(error, f"given up: tried {_MOST} times from checkpoint {newest}")
            raise error
        secs = _FIRST_PAUSE_SECS * _LONGER ** (self._count - 1)
        said = errors.brief(error)
        LOG.warning("%s; from checkpoint %d again in %.3g s", said, newest, secs)
        pause(secs)
        parts.progress.source.reopen()
        go_back(parts, newest)
        self._saver.went_back()
        parts.journal.note("retry", step=newest, error=said)


def is_curable(error: Exception) -> bool:
    """Tells whether an error of a device or a service may not come again.

    Args:
        error: what a compiled call raised.
    """
    if isinstance(error, tf.errors.AbortedError | tf.errors.UnavailableError):
        return True
    return isinstance(error, tf.errors.InternalError) and "collective" in error.message.lower()
