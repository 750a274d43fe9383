"""Room on the volume of a run folder.

Owns the comparison of what checkpoints take with what is free. Promises to warn while there still
is room for the present checkpoint, and once for each time that it gets short. Refuses to delete
anything, or to stop a save that may yet fit.
"""

from __future__ import annotations

from trainer.base.log import LOG
from trainer.checkpoints import files as files_module


class Room:
    """Watches the room for the checkpoints of one folder.

    Args:
        folder: the run folder.
        max_to_keep: newest checkpoints kept; None keeps all.
    """

    def __init__(self, folder: str, max_to_keep: int | None):
        self._folder = folder
        self._max_to_keep = max_to_keep
        self._was_short = False

    def check(self, files: files_module.Files, size: int, there: int) -> None:
        """Warns if the volume cannot hold the checkpoints that are still to come.

        Args:
            files: the file operations.
            size: bytes of one checkpoint.
            there: checkpoints on the disk now.
        """
        free = files.free(self._folder)
        if free is None:
            return
        # A new one is complete before an old one goes, so there is one more at times.
        to_come = 1 if self._max_to_keep is None else max(1, self._max_to_keep + 1 - there)
        short = free < size * to_come
        if short and not self._was_short:
            LOG.warning(
                "%s: %s bytes are free, and %d more checkpoint(s) of %s bytes are to come with "
                "max_to_keep=%s; free some space or lower max_to_keep before saves fail",
                self._folder,
                f"{free:,}",
                to_come,
                f"{size:,}",
                self._max_to_keep,
            )
        self._was_short = short


def needed(files: files_module.Files, folder: str, size: int) -> str:
    """Returns words for what a save that failed would have needed, and what is free."""
    free = files.free(folder)
    return f"about {size:,} bytes are needed" + ("" if free is None else f", {free:,} are free")
