"""Reading one checkpoint, and telling damage from everything else.

Owns the checks on one checkpoint and the one place where a low-level error becomes
`DamagedCheckpointError`. Promises that what it returns is byte for byte what was written: the
manifest vouches for the index, the index for each tensor. Refuses to call a checkpoint damaged for
reasons that may pass (permission, an unavailable file system, a later format): those are raised.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from trainer import errors
from trainer.base import versions
from trainer.checkpoints import file_names
from trainer.checkpoints import files as files_module
from trainer.checkpoints import manifest as manifest_module

# What a lost or rotten file looks like; any other OSError says nothing about the content.
_DAMAGE = (errno.ENOENT, errno.EIO, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


# Reasons that may pass by themselves; a write that failed so is worth another attempt.
_PASSING = (errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT, errno.ESTALE)


def may_pass(error: Exception) -> bool:
    """Tells whether the same operation may go through a little later."""
    tf = versions.tensorflow()

    if isinstance(error, OSError):
        return error.errno in _PASSING
    passing = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
    return isinstance(error, passing)


def read_manifest(files: files_module.Files, path: str) -> manifest_module.Manifest:
    """Returns the manifest of the checkpoint folder `path` after the checks that need no tensor.

    Raises:
        DamagedCheckpointError: a file is missing, of another size, or not the one described.
        CheckpointError: it was written by a later version.
        OSError: the files cannot be reached just now.
    """
    content = _read(files, path, file_names.MANIFEST)
    try:
        manifest = manifest_module.decode(content)
    except manifest_module.LaterFormatError as error:
        raise errors.CheckpointError(f"{path}: {error}") from None
    except ValueError as error:
        raise errors.DamagedCheckpointError(path, str(error)) from None
    named = file_names.step_of(files.split(path)[1])
    if named is not None and named != manifest.step:
        reason = f"{file_names.MANIFEST} is that of step {manifest.step}"
        raise errors.DamagedCheckpointError(path, reason)
    index = _read(files, path, file_names.INDEX)
    _check_size(path, file_names.INDEX, len(index), manifest)
    if manifest_module.sha256(index) != manifest.files[file_names.INDEX]["sha256"]:
        raise errors.DamagedCheckpointError(
            path, f"{file_names.INDEX} is not the one it was saved with"
        )
    for name in _data_files(manifest):
        with _judging(path, name):
            size = files.size(files.join(path, name))
        _check_size(path, name, size, manifest)
    return manifest


def read(
    files: files_module.Files, path: str
) -> tuple[manifest_module.Manifest, files_module.Tensors]:
    """Returns the manifest and every tensor of the checkpoint folder `path`, all verified.

    Raises:
        DamagedCheckpointError: as for `read_manifest`, or a tensor does not have its checksum.
        CheckpointError, OSError, tf.errors.OpError: as for `read_manifest`.
    """
    tf = versions.tensorflow()

    manifest = read_manifest(files, path)
    dtypes = {name: tf.as_dtype(dtype) for name, (dtype, _) in manifest.tensors.items()}
    passing = (
        tf.errors.PermissionDeniedError,
        tf.errors.UnavailableError,
        tf.errors.DeadlineExceededError,
        tf.errors.ResourceExhaustedError,
        tf.errors.CancelledError,
    )
    try:
        return manifest, files.read_bundle(files.join(path, file_names.BUNDLE), dtypes)
    except passing:
        raise
    except (tf.errors.OpError, IndexError, ValueError) as error:
        # TensorFlow's ways to say truncated, changed or missing.
        line = str(getattr(error, "message", error)).strip().splitlines()[0]
        names = ", ".join(_data_files(manifest))
        raise errors.DamagedCheckpointError(path, f"{names}: {line}") from error


def _data_files(manifest: manifest_module.Manifest) -> list[str]:
    return [name for name in manifest.files if file_names.is_data(name)]


def _read(files: files_module.Files, path: str, name: str) -> bytes:
    with _judging(path, name):
        return files.read(files.join(path, name))


@contextlib.contextmanager
def _judging(path: str, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise errors.DamagedCheckpointError(path, f"{name} is missing") from error
        if error.errno in _DAMAGE:
            reason = f"{name} cannot be read ({error.strerror})"
            raise errors.DamagedCheckpointError(path, reason) from error
        raise


def _check_size(path: str, name: str, size: int, manifest: manifest_module.Manifest) -> None:
    expected = manifest.files[name]["bytes"]
    if size != expected:
        raise errors.DamagedCheckpointError(
            path, f"{name} has {size:,} bytes, {expected:,} were written"
        )
