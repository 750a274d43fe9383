"""Lines that a user sees.

Owns the logger named "trainer". Promises that its lines reach standard error even where the program
has not set up logging, and reach the program's own handlers where it has. Refuses to do anything at
import: the handler is attached when the first trainer is constructed.
"""

from __future__ import annotations

import logging
import sys

from trainer.base import probe

LOG = logging.getLogger("trainer")


class _StandardError(logging.Handler):
    """Writes to the current `sys.stderr`, unless a handler of the root logger does so already."""

    def emit(self, record: logging.LogRecord) -> None:
        if not _root_writes_to_terminal():
            print(self.format(record), file=sys.stderr, flush=True)


def _root_writes_to_terminal() -> bool:
    for handler in logging.getLogger().handlers:
        python_handler = getattr(handler, "python_handler", handler)  # absl wraps one
        if getattr(python_handler, "stream", None) in (sys.stderr, sys.stdout):
            return True
    return False


def make_visible() -> None:
    """Attaches the handler and opens the level for information, once; a trainer begins so."""
    probe.listen(LOG)
    if any(isinstance(handler, _StandardError) for handler in LOG.handlers):
        return
    handler = _StandardError()
    handler.setFormatter(logging.Formatter("[trainer] %(levelname)s %(message)s"))
    LOG.addHandler(handler)
    if LOG.level == logging.NOTSET:
        LOG.setLevel(logging.INFO)
