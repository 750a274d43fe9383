"""Every operation on files that the checkpoint store makes.

Owns the list of operations and their two implementations: the local file system, and whatever else
`tf.io.gfile` can open. Promises that nothing else in `checkpoints` touches a file, so that a test
can number these calls and fail any of them. Refuses to know what a checkpoint is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from trainer.base import versions

Tensors = dict[str, Any]


class LocalFiles:
    """File operations of the local file system, with POSIX durability."""

    atomic_rename = True

    def join(self, *parts: str) -> str:
        return os.path.join(*parts)

    def split(self, path: str) -> tuple[str, str]:
        return os.path.split(path)

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def names(self, path: str) -> list[str]:
        """Returns the names in a folder, sorted; empty if there is no such folder."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def free(self, path: str) -> int | None:
        """Returns the bytes that may still be written to the volume of a folder."""
        return shutil.disk_usage(path).free

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, content: bytes) -> None:
        with open(path, "wb") as file:
            file.write(content)

    def append(self, path: str, content: bytes) -> None:
        with open(path, "ab") as file:
            file.write(content)

    def sync(self, path: str) -> None:
        """Forces a file's content to the disk."""
        _sync(path, os.O_RDONLY)

    def sync_folder(self, path: str) -> None:
        """Forces a folder's entries (creations, renames, deletions) to the disk."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_folder(self, path: str) -> None:
        if os.path.islink(path):
            os.unlink(path)
        else:
            shutil.rmtree(path)

    def write_bundle(self, prefix: str, tensors: Tensors, streams: int) -> None:
        """Writes named tensors as `prefix.index` and, with two streams, up to two data files."""
        from trainer.checkpoints import bundle

        bundle.write(prefix, tensors, streams)

    def read_bundle(self, prefix: str, dtypes: dict[str, Any]) -> Tensors:
        """Reads named tensors of a bundle; TensorFlow checks each against its crc32c."""
        from trainer.checkpoints import bundle

        with _readable_name(prefix) as name:
            return bundle.restore(name, dtypes)


class RemoteFiles:
    """File operations through `tf.io.gfile`, where a rename is copy and delete, and sync is close.

    Object stores make an object visible, complete and durable when its writer is closed.
    """

    atomic_rename = False

    def __init__(self) -> None:
        self._gfile = versions.tensorflow().io.gfile

    def join(self, *parts: str) -> str:
        return "/".join([*(part.rstrip("/") for part in parts[:-1]), parts[-1]])

    def split(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rpartition("/")
        return folder, name

    def make_folder(self, path: str) -> None:
        self._gfile.makedirs(path)

    def exists(self, path: str) -> bool:
        return bool(self._gfile.exists(path))

    def is_folder(self, path: str) -> bool:
        return bool(self._gfile.isdir(path))

    def names(self, path: str) -> list[str]:
        """Returns the names in a folder, sorted; empty if there is no such folder."""
        if not self._gfile.isdir(path):
            return []
        return sorted({name.rstrip("/") for name in self._gfile.listdir(path)})

    def size(self, path: str) -> int:
        with _missing_as_os_error(path):
            return int(self._gfile.stat(path).length)

    def free(self, path: str) -> int | None:
        """Returns None: an object store has no such figure."""
        return None

    def read(self, path: str) -> bytes:
        with _missing_as_os_error(path), self._gfile.GFile(path, "rb") as file:
            return bytes(file.read())

    def write(self, path: str, content: bytes) -> None:
        with self._gfile.GFile(path, "wb") as file:
            file.write(content)

    def append(self, path: str, content: bytes) -> None:
        with self._gfile.GFile(path, "ab") as file:
            file.write(content)

    def sync(self, path: str) -> None:
        """Nothing: the object became durable when its writer was closed."""

    def sync_folder(self, path: str) -> None:
        """Nothing: there are no folders to sync."""

    def rename(self, old: str, new: str) -> None:
        self._gfile.rename(old, new, overwrite=True)

    def remove(self, path: str) -> None:
        self._gfile.remove(path)

    def remove_folder(self, path: str) -> None:
        self._gfile.rmtree(path)

    def write_bundle(self, prefix: str, tensors: Tensors, streams: int) -> None:
        """Writes named tensors as `prefix.index` and `prefix.data-00000-of-00001`."""
        del streams  # the network is the bottleneck
        from trainer.checkpoints import bundle

        bundle.save(prefix, tensors)

    def read_bundle(self, prefix: str, dtypes: dict[str, Any]) -> Tensors:
        """Reads named tensors of a bundle; TensorFlow checks each against its crc32c."""
        from trainer.checkpoints import bundle

        return bundle.restore(prefix, dtypes)


Files = LocalFiles | RemoteFiles


def for_path(path: str) -> Files:
    """Returns the operations for a local path or for an address with a scheme."""
    return RemoteFiles() if "://" in path else LocalFiles()


@contextlib.contextmanager
def _readable_name(prefix: str) -> Iterator[str]:
    """Gives a name for `prefix` without glob characters: TensorFlow reads a prefix as a pattern."""
    if not any(character in prefix for character in "*?[]{}\\"):
        yield prefix
        return
    folder, base = os.path.split(prefix)
    with tempfile.TemporaryDirectory(prefix="trainer-") as scratch:
        link = os.path.join(scratch, "folder")
        os.symlink(os.path.abspath(folder), link)
        yield os.path.join(link, base)


@contextlib.contextmanager
def _missing_as_os_error(path: str) -> Iterator[None]:
    import tensorflow as tf

    try:
        yield
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "no such object", path) from error


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
