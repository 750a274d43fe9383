"""The protocol that makes a checkpoint appear at once, complete and durable, and disappear at once.

Owns the order of file operations. Promises that whatever instant the machine stops at, the folder
holds either the checkpoint as it was before or the new one, whole, under its name. Refuses to know
when to save or which checkpoints to keep. Each step names the crash that it survives.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from trainer.base import probe
from trainer.checkpoints import file_names
from trainer.checkpoints import files as files_module
from trainer.checkpoints import manifest as manifest_module

Describe = Callable[[dict[str, dict[str, Any]]], manifest_module.Manifest]


def write(
    files: files_module.Files,
    folder: str,
    step: int,
    tensors: files_module.Tensors,
    describe: Describe,
    *,
    streams: int = 1,
) -> manifest_module.Manifest:
    """Writes checkpoint `step`; when this returns, it is on the disk.

    Args:
        files: the file operations.
        folder: the run folder.
        step: completed steps; gives the name.
        tensors: name to tensor.
        describe: makes the manifest from the files' sizes and digests.
        streams: data files to write at once, 1 or 2.

    Returns:
        The manifest, as written.

    Raises:
        OSError, tf.errors.OpError: an operation failed; the folder is as it was but for leftovers.
    """
    final = files.join(folder, file_names.checkpoint(step))
    if not files.atomic_rename:
        return _write_marked(files, final, tensors, describe)
    # A fresh folder: a kill while writing leaves every existing checkpoint as it is.
    scratch = files.join(folder, file_names.passing(file_names.checkpoint(step), "tmp"))
    files.make_folder(scratch)
    probe.at(probe.SAVE, folder, step, f"of step {step}, before its content")
    for mark in file_names.MARKS:
        if files.exists(files.join(final, mark)):  # saved again at the same step: still pinned
            files.write(files.join(scratch, mark), b"")
    manifest = _fill(files, scratch, tensors, describe, streams)
    for name in (*manifest.files, file_names.MANIFEST):
        # Content before name: a power cut after the rename cannot leave empty files behind it.
        files.sync(files.join(scratch, name))
    files.sync_folder(scratch)  # the three entries themselves
    probe.at(probe.SAVE, folder, step, f"of step {step}, before its rename")
    old = None
    if files.exists(final):
        # The name is taken (an explicit save at a step saved before). A kill between the two
        # renames is undone by `put_back`.
        old = files.join(folder, file_names.passing(file_names.checkpoint(step), "old"))
        files.rename(final, old)
    files.rename(scratch, final)  # the commit: before it there is nothing, after it everything
    files.sync_folder(folder)  # a power cut from here on cannot take the rename back
    probe.at(probe.SAVE, folder, step, f"of step {step}, after its rename")
    if old is not None:
        files.remove_folder(old)
    return manifest


def put_back(files: files_module.Files, folder: str) -> None:
    """Undoes a replacement that a kill cut between its two renames."""
    names = set(files.names(folder))
    for name in sorted(names):
        original = file_names.replaced(name)
        if original is not None and original not in names:
            files.rename(files.join(folder, name), files.join(folder, original))
            files.sync_folder(folder)


def delete(files: files_module.Files, folder: str, name: str) -> None:
    """Removes a checkpoint: in one rename for readers, then file by file.

    One that was pinned after it had been chosen goes back to its place.
    """
    path = files.join(folder, name)
    if files.atomic_rename:
        # A kill while unlinking must not leave half a checkpoint under a checkpoint's name.
        doomed = files.join(folder, file_names.passing(name, "deleted"))
        files.rename(path, doomed)
        marked = any(files.exists(files.join(doomed, mark)) for mark in file_names.MARKS)
        if marked and file_names.step_of(name) is not None:
            files.rename(doomed, path)
            return
        files.remove_folder(doomed)
    else:
        files.remove(files.join(path, file_names.MANIFEST))  # the mark goes first
        files.remove_folder(path)


def write_state_file(files: files_module.Files, folder: str, steps: list[int]) -> None:
    """Writes TensorFlow's text file `checkpoint`, for TensorFlow's own tools.

    Format: text proto `tensorflow.CheckpointState`. Written after the checkpoints that it names, so
    that a kill leaves it stale at worst; recovery never reads it, and rewrites it.
    """
    path = files.join(folder, file_names.STATE_FILE)
    if not files.atomic_rename:
        files.write(path, state_file_content(steps))
        return
    scratch = files.join(folder, file_names.passing(file_names.STATE_FILE, "tmp"))
    files.write(scratch, state_file_content(steps))
    files.sync(scratch)
    files.rename(scratch, path)  # never half a file under the name that TensorFlow trusts
    files.sync_folder(folder)


def state_file_content(steps: list[int]) -> bytes:
    """Returns the text proto that names the checkpoints `steps`, ascending."""
    paths = [json.dumps(f"{file_names.checkpoint(step)}/{file_names.BUNDLE}") for step in steps]
    lines = [f"model_checkpoint_path: {paths[-1]}\n"] if paths else []
    lines += [f"all_model_checkpoint_paths: {path}\n" for path in paths]
    return "".join(lines).encode()


def _write_marked(
    files: files_module.Files,
    final: str,
    tensors: files_module.Tensors,
    describe: Describe,
) -> manifest_module.Manifest:
    """Where a rename is copy and delete, the manifest is written last and is the mark."""
    mark = files.join(final, file_names.MANIFEST)
    files.make_folder(final)
    if files.exists(mark):
        files.remove(mark)
    return _fill(files, final, tensors, describe, streams=1)


def _fill(
    files: files_module.Files,
    scratch: str,
    tensors: files_module.Tensors,
    describe: Describe,
    streams: int,
) -> manifest_module.Manifest:
    files.write_bundle(files.join(scratch, file_names.BUNDLE), tensors, streams)
    index = files.read(files.join(scratch, file_names.INDEX))
    written = {file_names.INDEX: {"bytes": len(index), "sha256": manifest_module.sha256(index)}}
    written |= {
        name: {"bytes": files.size(files.join(scratch, name))}
        for name in files.names(scratch)
        if file_names.is_data(name)
    }
    manifest = describe(written)
    files.write(files.join(scratch, file_names.MANIFEST), manifest_module.encode(manifest))
    return manifest
