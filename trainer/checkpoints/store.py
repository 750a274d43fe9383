"""The checkpoints of one run folder: recover, save, keep, set aside.

Owns a run folder. Promises that recovery depends on the folder's content alone, that a damaged
checkpoint is fallen back from and said so, that none is deleted before a newer one is on the disk,
and that a foreign file is never touched. Refuses to know when to save, what the tensors mean, or
what time it is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from trainer import errors
from trainer.base.log import LOG
from trainer.checkpoints import (
    commit,
    file_names,
    lock,
    reading,
    recovery,
    retention,
    room,
    tidying,
)
from trainer.checkpoints import files as files_module
from trainer.checkpoints import folder as folder_module
from trainer.checkpoints import manifest as manifest_module

pause = time.sleep  # tests replace it
_PAUSES = (0.1, 0.4, 1.6)  # seconds before a save that failed for a reason that may pass is retried

Found = folder_module.Found


class Store(folder_module.Folder):
    """The checkpoints of one run folder, to read and to write.

    Args:
        folder: the run folder, a local path or an address that `tf.io.gfile` can open.
        max_to_keep: newest checkpoints kept; None keeps all.
        keep_every_n_hours: also keep one per so many hours of training.
        files: the file operations; None chooses by the folder.

    Attributes:
        newest_before_recovery: the step of the newest checkpoint that `recover` saw, whole or not.
    """

    def __init__(
        self,
        folder: str,
        *,
        max_to_keep: int | None = None,
        keep_every_n_hours: float | None = None,
        files: files_module.Files | None = None,
    ):
        super().__init__(folder, files)
        self._max_to_keep = max_to_keep
        self._keep_secs = None if keep_every_n_hours is None else keep_every_n_hours * 3600
        self._lock: lock.Lock | None = None
        self._undeletable: set[str] = set()
        self._closed = False
        self._written: int | None = None  # the step of the newest save
        self._room = room.Room(folder, max_to_keep)
        self.newest_before_recovery = 0

    def own(self) -> None:
        """Makes the folder if need be and locks it.

        Raises:
            ModelDirInUseError: another process owns it.
            ValueError: the path is a file, a link that leads nowhere, or not writable.
        """
        _check_links(self.folder)
        try:
            self.files.make_folder(self.folder)
            if self.files.atomic_rename:
                self._lock = lock.Lock(self.folder)
            commit.put_back(self.files, self.folder)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(
                f"model_dir {self.folder!r} is a file, or lies below one; name a folder"
            ) from None
        except OSError as error:
            raise ValueError(
                f"model_dir {self.folder!r} is not writable ({error.strerror}); "
                "name a folder that this user may write to"
            ) from error

    def check_owned(self) -> None:
        """Raises `ModelDirInUseError` if this object no longer owns the folder."""
        if self._closed:
            raise errors.ModelDirInUseError(
                f"this trainer of {self.folder} was closed; construct it again to go on"
            )
        if self._lock is not None:
            self._lock.check()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the lock back; nothing is written after it."""
        self._closed = True
        if self._lock is not None:
            self._lock.release()

    def numbered(self) -> list[int]:
        """Returns the steps that have a checkpoint folder of ours, whole or not, ascending.

        What this object wrote last counts though a listing that lags does not show it yet.
        """
        listed = set(super().numbered())
        newest = self._written
        if newest is not None and newest not in listed and self._has_manifest(newest):
            listed.add(newest)
        return sorted(listed)

    def _has_manifest(self, step: int) -> bool:
        return self.files.exists(self.files.join(self.path(step), file_names.MANIFEST))

    def prune(self, keep: int | None) -> list[str]:
        """Removes leftovers, what was set aside, and all but the newest `keep`, if it is a number.

        Returns:
            The names of the checkpoints removed.
        """
        commit.put_back(self.files, self.folder)
        tidying.sweep(self.files, self.folder)
        doomed = self.set_aside()
        for name in doomed:
            self._delete(name)
        before = self.numbered()
        if keep is not None:
            self._max_to_keep = keep
            self._retain()
        return doomed + [file_names.checkpoint(n) for n in before if n not in self.numbered()]

    def recover(self, accept: Callable[[str, Found], None]) -> Found | None:
        """Reads the newest checkpoint that can be trusted and hands it to `accept`.

        Args:
            accept: takes the folder of the checkpoint and its content; what it raises is raised.

        Returns:
            What was accepted, or None if there is no checkpoint at all.

        Raises:
            NoReadableCheckpointError: there are checkpoints and none can be trusted.
        """
        self.newest_before_recovery = max(self.numbered(), default=0)
        return recovery.recover(self, accept)

    def save(
        self,
        step: int,
        tensors: files_module.Tensors,
        describe: commit.Describe,
        *,
        streams: int = 1,
    ) -> manifest_module.Manifest:
        """Writes checkpoint `step` durably, then removes what need not be kept any longer.

        Args:
            step: completed steps.
            tensors: name to tensor.
            describe: makes the manifest from the files' sizes and digests.
            streams: data files to write at once, 1 or 2.

        Raises:
            SaveError: it could not be written; what was there before is untouched.
            ModelDirInUseError: this object no longer owns the folder.
        """
        with self._owning():
            return self._save(step, tensors, describe, streams)

    def _owning(self) -> contextlib.AbstractContextManager[None]:
        self.check_owned()
        return contextlib.nullcontext() if self._lock is None else self._lock.held()

    def _save(
        self, step: int, tensors: files_module.Tensors, describe: commit.Describe, streams: int
    ) -> manifest_module.Manifest:
        import tensorflow as tf

        for secs in (*_PAUSES, None):
            try:
                manifest = commit.write(
                    self.files, self.folder, step, tensors, describe, streams=streams
                )
                self._written = step
                break
            except (OSError, tf.errors.OpError) as error:
                self._clean_up()
                if secs is None or not reading.may_pass(error):
                    raise errors.SaveError(self._save_failed(step, tensors, error)) from error
                LOG.warning("saving checkpoint %d: %s; trying again in %s s", step, error, secs)
                pause(secs)
            except Exception:
                self._clean_up()
                raise
        try:
            self._retain()
            self._room.check(self.files, manifest.bytes, len(self.numbered()))
        except (OSError, tf.errors.OpError) as error:
            LOG.warning("checkpoint %d is saved; could not remove older ones: %s", step, error)
        return manifest

    def rewind(self, step: int) -> list[int]:
        """Sets aside every checkpoint after `step`, newest first, and returns their steps."""
        later = [newer for newer in self.numbered() if newer > step]
        for newer in reversed(later):
            # Newest first: a kill between two renames leaves the run at a step between.
            tidying.set_aside(self.files, self.folder, file_names.checkpoint(newer), "superseded")
        commit.write_state_file(self.files, self.folder, self.complete())
        return later

    def _retain(self) -> None:
        """Removes what neither the newest nor the hourly rule keeps; the two rules add up."""
        manifests = [found for step in self.numbered() if (found := self._plausible(step))]
        marked = {found.step for found in manifests if self._must_stay(found.step)}
        doomed = retention.unneeded(manifests, self._max_to_keep, self._keep_secs, marked)
        kept = [found.step for found in manifests if found.step not in doomed]
        # Named before anything is deleted, so that TensorFlow's tools never follow a dead name.
        commit.write_state_file(self.files, self.folder, kept)
        for step in doomed:
            self._delete(file_names.checkpoint(step))

    def _must_stay(self, step: int) -> bool:
        names = self.files.names(self.path(step))
        strangers = [name for name in names if not file_names.is_own(name)]
        if strangers:
            LOG.warning("%s stays: it holds %s", self.path(step), strangers)
        return bool(strangers) or any(self._is_marked(step, mark) for mark in file_names.MARKS)

    def _delete(self, name: str) -> None:
        try:
            commit.delete(self.files, self.folder, name)
            self._undeletable.discard(name)
        except OSError as error:
            if name not in self._undeletable:  # said once, tried again after each save
                LOG.warning("could not delete %s (%s); training goes on", name, error)
                self._undeletable.add(name)

    def _clean_up(self) -> None:
        """Undoes what a failed save left, as far as a failing disk lets it."""
        try:
            commit.put_back(self.files, self.folder)
            tidying.sweep(self.files, self.folder)
        except OSError as error:
            LOG.warning("could not clean up %s (%s); the next start does", self.folder, error)

    def _save_failed(self, step: int, tensors: files_module.Tensors, error: Exception) -> str:
        from trainer.checkpoints import bundle

        newest = self.newest()  # texts and iterators have no size before they are written
        size = max(
            sum(bundle.size_of(tensor) for tensor in tensors.values()),
            0 if newest is None else newest.bytes,
        )
        reason = str(getattr(error, "message", error)).strip().splitlines()[0]
        return (
            f"could not save checkpoint {step} in {self.folder}: {reason}; "
            f"{room.needed(self.files, self.folder, size)}; checkpoints {self.complete()} are "
            "untouched. Free some space or lower max_to_keep, then save or run again."
        )


def _check_links(folder: str) -> None:
    """Refuses a path through a link that leads nowhere: what it leads to may come back."""
    path = folder
    while "://" not in folder and path != os.path.dirname(path):
        if os.path.islink(path) and not os.path.exists(path):
            raise ValueError(
                f"model_dir {folder!r} leads nowhere: {path} is a link to {os.readlink(path)}, "
                "which is not there; mount the disk that it is on, or remove the link"
            )
        path = os.path.dirname(path)
