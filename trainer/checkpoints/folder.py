"""A run folder as a reader sees it: which checkpoints there are, and what is in them.

Owns the listing, the reading and the marks of checkpoints. Promises that reading needs no lock,
never sees half a checkpoint and changes nothing. Refuses to save, to recover or to delete.
"""

from __future__ import annotations

import time

from trainer import errors
from trainer.checkpoints import file_names, reading
from trainer.checkpoints import files as files_module
from trainer.checkpoints import manifest as manifest_module

_LOOKS, _LOOK_SECS = 5, 0.02  # at a checkpoint that was just pinned
Found = tuple[manifest_module.Manifest, files_module.Tensors]


class Folder:
    """The checkpoints of one run folder, to read.

    Args:
        folder: the run folder, a local path or an address that `tf.io.gfile` can open.
        files: the file operations; None chooses by the folder.
    """

    def __init__(self, folder: str, files: files_module.Files | None = None):
        self.folder = folder
        self.files = files or files_module.for_path(folder)

    def holds(self, name: str) -> bool:
        """Tells whether something of this name lies in the folder."""
        return self.files.exists(self.files.join(self.folder, name))

    def numbered(self) -> list[int]:
        """Returns the steps that have a checkpoint folder of ours, whole or not, ascending."""
        steps = (file_names.step_of(name) for name in self.files.names(self.folder))
        return sorted(
            step
            for step in steps
            if step is not None and self._is_ours(file_names.checkpoint(step))
        )

    def recoverable(self) -> list[int]:
        """Returns the steps of `numbered`, and of those that a killed replacement put aside."""
        names = (file_names.replaced(name) or "" for name in self.files.names(self.folder))
        old = (file_names.step_of(name) for name in names)
        return sorted({*self.numbered(), *(step for step in old if step is not None)})

    def complete(self) -> list[int]:
        """Returns the steps whose checkpoint passes every check short of reading the tensors."""
        return [step for step in self.numbered() if self._plausible(step) is not None]

    def newest(self) -> manifest_module.Manifest | None:
        """Returns the manifest of the newest complete checkpoint, or None; changes nothing."""
        for step in reversed(self.numbered()):
            manifest = self._plausible(step)
            if manifest is not None:
                return manifest
        return None

    def read(self, step: int) -> Found:
        """Returns checkpoint `step`, verified to the last bit.

        Raises:
            DamagedCheckpointError: it cannot be trusted.
        """
        return reading.read(self.files, self.path(step))

    def manifest(self, step: int) -> manifest_module.Manifest:
        """Returns the manifest of checkpoint `step` after every check short of the tensors.

        Raises:
            DamagedCheckpointError: it cannot be trusted.
        """
        return reading.read_manifest(self.files, self.path(step))

    def set_aside(self) -> list[str]:
        """Returns the names of the checkpoints that were set aside."""
        return [name for name in self.files.names(self.folder) if file_names.is_set_aside(name)]

    def is_pinned(self, step: int) -> bool:
        """Tells whether checkpoint `step` is pinned: never removed to make room."""
        return self._is_marked(step, file_names.PIN)

    def pin(self, step: int, *, on: bool) -> None:
        """Pins checkpoint `step`, or takes the pin off; needs no lock.

        Raises:
            CheckpointError: the run that goes on removed it at that moment.
        """
        try:
            self._mark(step, file_names.PIN, on=on)
        except FileNotFoundError as error:
            raise _removed(step) from error
        # A save may have chosen it before it was pinned: it comes back then, in a moment.
        for _ in range(_LOOKS):
            if self.files.exists(self.files.join(self.path(step), file_names.MANIFEST)):
                return
            time.sleep(_LOOK_SECS)
        raise _removed(step)

    def best(self) -> int | None:
        """Returns the step of the checkpoint that is kept for being the best, or None."""
        marked = [step for step in self.numbered() if self._is_marked(step, file_names.BEST)]
        return max(marked, default=None)

    def mark_best(self, step: int) -> None:
        """Makes checkpoint `step` the one that is kept for being the best."""
        before = [old for old in self.numbered() if self._is_marked(old, file_names.BEST)]
        self._mark(step, file_names.BEST, on=True)
        for old in before:  # only now: a kill between leaves two kept, never none
            if old != step:
                self._mark(old, file_names.BEST, on=False)

    def _is_marked(self, step: int, mark: str) -> bool:
        return self.files.exists(self.files.join(self.path(step), mark))

    def _mark(self, step: int, mark: str, *, on: bool) -> None:
        path = self.files.join(self.path(step), mark)
        if on:
            self.files.write(path, b"")
            self.files.sync_folder(self.path(step))
        elif self.files.exists(path):
            self.files.remove(path)

    def path(self, step: int) -> str:
        """Returns the folder of checkpoint `step`."""
        return self.files.join(self.folder, file_names.checkpoint(step))

    def _is_ours(self, name: str) -> bool:
        """Tells a checkpoint folder, whole or damaged, from a stranger's folder of that name."""
        path = self.files.join(self.folder, name)
        if not self.files.is_folder(path):
            return False
        names = self.files.names(path)
        return not names or any(file_names.is_own(name) for name in names)

    def _plausible(self, step: int) -> manifest_module.Manifest | None:
        try:
            return self.manifest(step)
        except errors.DamagedCheckpointError:
            return None


def _removed(step: int) -> errors.CheckpointError:
    return errors.CheckpointError(
        f"checkpoint {step} is not pinned: the run that goes on removed it to make room meanwhile; "
        "pin a newer one, or keep more with max_to_keep"
    )
