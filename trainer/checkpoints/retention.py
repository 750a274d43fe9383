"""Which checkpoints need not be kept any longer.

Owns the rules: the newest so many, one per so many hours of training, the pinned, the best; they
add up.
Promises to look at nothing but its arguments, so that the same checkpoints give the same answer in
every process. Refuses to remove anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer.checkpoints import manifest


def unneeded(
    manifests: Sequence[manifest.Manifest],
    max_to_keep: int | None,
    keep_secs: float | None,
    marked: set[int],
) -> list[int]:
    """Returns the steps of the checkpoints that no rule keeps, ascending.

    Args:
        manifests: of the complete checkpoints, by step, ascending.
        max_to_keep: newest checkpoints kept; None keeps all.
        keep_secs: also keep one per so many seconds of training; None: no such rule.
        marked: steps kept whatever the rules say: pinned, or the best.
    """
    if max_to_keep is None:
        return []
    older = manifests[:-max_to_keep]
    kept = marked | _spaced(older, keep_secs)
    return [found.step for found in older if found.step not in kept]


def _spaced(manifests: Sequence[manifest.Manifest], keep_secs: float | None) -> set[int]:
    kept: set[int] = set()
    last = 0.0
    for found in manifests:
        if keep_secs is not None and found.trained_secs - last >= keep_secs:
            kept.add(found.step)
            last = found.trained_secs
    return kept
