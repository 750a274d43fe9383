"""Whether TensorFlow's operations give the same bits each time.

Owns the switch of TensorFlow's op determinism. Promises to turn it on before a program builds, and
to say so where nobody asked for it, with what it costs. Refuses to turn it off: it is the
process's, and another trainer of it may need it.
"""

from __future__ import annotations

import tensorflow as tf

from trainer.base.log import LOG


def turn_on(wanted: bool | None) -> None:
    """Turns op determinism on, if it is wanted.

    Args:
        wanted: the config's; None: where a GPU is visible.
    """
    if wanted is False:
        return
    if wanted is None:
        if not tf.config.get_visible_devices("GPU"):
            return
        LOG.info(
            "a GPU is visible, whose operations may give other bits each time: TensorFlow's "
            "deterministic ones are used, some of which are slower; deterministic=False turns them "
            "off, and a resumed run may then differ in the last bits"
        )
    tf.config.experimental.enable_op_determinism()
