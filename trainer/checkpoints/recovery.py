"""Which checkpoint a run goes on from, and what becomes of damaged ones.

Owns the way from a folder to the newest checkpoint that can be trusted. Promises that a run
never starts over in silence: damage is told and set aside, and if nothing can be read, that is an
error; and that a crash at any point leaves a folder from which the same call gives the same result,
since only after `accept` has returned is anything changed. Refuses to judge a file (see `reading`).
"""

from __future__ import annotations

from collections.abc import Callable

from trainer import errors
from trainer.base.log import LOG
from trainer.checkpoints import commit, file_names, tidying
from trainer.checkpoints import folder as folder_module
from trainer.checkpoints.folder import Found


def recover(run: folder_module.Folder, accept: Callable[[str, Found], None]) -> Found | None:
    """Reads the newest checkpoint that can be trusted and hands it to `accept`.

    Args:
        run: the run folder, owned by this process.
        accept: takes the folder of the checkpoint and its content; what it raises is raised.

    Returns:
        What was accepted, or None if there is no checkpoint at all.

    Raises:
        NoReadableCheckpointError: there are checkpoints and none can be trusted.
    """
    commit.put_back(run.files, run.folder)
    damaged: list[errors.DamagedCheckpointError] = []
    found: Found | None = None
    for step in reversed(run.numbered()):
        try:
            found = run.read(step)
            break
        except errors.DamagedCheckpointError as error:
            damaged.append(error)
    if found is None and damaged:
        raise errors.NoReadableCheckpointError(_none_readable(run.folder, damaged))
    if found is not None:
        accept(run.path(found[0].step), found)
        _report(run, damaged, found[0].step)
    for bad in damaged:
        tidying.set_aside(run.files, run.folder, run.files.split(bad.path)[1], "damaged")
    tidying.sweep(run.files, run.folder)
    tidying.repair_state_file(run.files, run.folder, run.complete())
    return found


def _report(
    run: folder_module.Folder, damaged: list[errors.DamagedCheckpointError], step: int
) -> None:
    for error in damaged:
        lost = (file_names.step_of(run.files.split(error.path)[1]) or step) - step
        LOG.warning("%s; falling back to checkpoint %d, %d steps lost", error, step, lost)


def _none_readable(folder: str, damaged: list[errors.DamagedCheckpointError]) -> str:
    return (
        f"{folder} has {len(damaged)} checkpoint(s) and none can be read:\n"
        + "".join(f"  {error}\n" for error in damaged)
        + "Nothing was changed and training does not start over by itself: bring one of them back, "
        "or name another model_dir."
    )
