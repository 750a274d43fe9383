"""Small lives of a checkpoint folder, without a trainer, and what must hold after any crash."""

import os

import tensorflow as tf

from trainer.checkpoints import file_names, manifest, store


def tensors(step):
    """The state after a step: small, and different for each."""
    return {"w": tf.constant([float(step)] * 4), "trainer/step": tf.constant(step, tf.int64)}


def save(target, step):
    target.save(
        step,
        tensors(step),
        lambda sizes: manifest.Manifest(
            step=step,
            trained_secs=float(step),
            seed=7,
            files=sizes,
            tensors={"w": ("float32", [4]), "trainer/step": ("int64", [])},
            variables=["w", "trainer/step"],
            written_at=0.0,
            versions={},
        ),
    )


def check_recovery(folder, acknowledged, written):
    """What must hold of a folder after any crash, in terms of what was promised before it."""
    recovered = store.Store(folder, max_to_keep=2)
    found = recovered.recover(lambda path, found: None)
    if found is None:
        assert acknowledged is None, f"started over though {acknowledged} was acknowledged"
    else:
        step = found[0].step
        assert step in written
        assert acknowledged is None or step >= acknowledged, f"{step} after {acknowledged}"
        assert found[1]["w"].numpy().tolist() == [float(step)] * 4
    save(recovered, 100)
    left = [name for name in os.listdir(folder) if file_names.is_leftover(name)]
    assert left == []
    assert len(recovered.complete()) <= 2
    assert recovered.complete()[-1] == 100


def life(target, note=lambda step: None):
    """Saves with deletions, a replacement, a rewind and a recovery in between."""
    for step in (1, 2, 3, 4):
        save(target, step)
        note(step)
    save(target, 4)  # again: takes the place of the first
    note(4)
    target.recover(lambda path, found: None)
    note(4)
