"""Order in a run folder after a crash.

Owns what happens to damaged checkpoints, leftovers and a wrong state file. Promises to touch only
names of our own making, and that doing it twice, or half and then again, comes to the same. Refuses
to decide which checkpoint is good.
"""

from __future__ import annotations

from trainer.base.log import LOG
from trainer.checkpoints import commit, file_names
from trainer.checkpoints import files as files_module


def set_aside(files: files_module.Files, folder: str, name: str, why: str) -> None:
    """Renames a checkpoint so that nothing resumes from it and nothing is lost."""
    target, number = f"{name}.{why}", 1
    while files.exists(files.join(folder, target)):
        target, number = f"{name}.{why}-{number}", number + 1
    files.rename(files.join(folder, name), files.join(folder, target))
    files.sync_folder(folder)
    LOG.warning("set %s aside as %s", name, target)


def sweep(files: files_module.Files, folder: str) -> None:
    """Removes what killed saves and deletions left: names of our own making only."""
    for name in files.names(folder):
        if not file_names.is_leftover(name):
            continue
        path = files.join(folder, name)
        try:
            if files.is_folder(path):
                files.remove_folder(path)
            else:
                files.remove(path)
        except OSError as error:
            LOG.warning("could not remove the leftover %s (%s)", name, error)


def repair_state_file(files: files_module.Files, folder: str, steps: list[int]) -> None:
    """Makes TensorFlow's state file name the checkpoints `steps`, if it does not."""
    expected = commit.state_file_content(steps)
    path = files.join(folder, file_names.STATE_FILE)
    try:
        seen = files.read(path)
    except FileNotFoundError:
        seen = None
    except OSError as error:
        LOG.warning("%s is no file (%s); TensorFlow's tools will not find the run", path, error)
        return
    if seen == expected or (seen is None and not steps):
        return
    try:
        commit.write_state_file(files, folder, steps)
    except OSError as error:
        LOG.warning("%s and cannot be rebuilt (%s)", _wrong(path, seen), error)
        return
    LOG.warning("%s; rebuilt the list from the folder: %s", _wrong(path, seen), steps)


def _wrong(path: str, seen: bytes | None) -> str:
    if seen is None:
        return f"{path} is missing"
    if not seen:
        return f"{path} is empty"
    try:
        text = seen.decode()
    except UnicodeDecodeError:
        return f"{path} is not text"
    first = text.splitlines()[0] if text.splitlines() else text
    return f"{path} does not fit the folder (it says {first[:80]!r})"
