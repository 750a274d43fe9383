"""The machine and the software that a run is on.

Owns the part `machine` of a fingerprint: versions, threads, instruction set, oneDNN's switches,
devices, and TensorFlow's determinism switch. Promises that the host's name, the number of its
processors and its load are no part of it. Refuses to change any of them (see `threads`).
"""

from __future__ import annotations

import functools
import os
import platform
from collections import Counter

import tensorflow as tf
from tensorflow.python.framework import config as tf_config

from trainer.base import versions
from trainer.fingerprint import threads

# Extensions of the instruction set that libraries choose kernels by.
_EXTENSIONS = ("sse4", "avx", "fma", "f16c", "amx", "asimd", "sve", "bf16", "i8mm")
_SWITCHES = (
    *(
        "TF_ENABLE_ONEDNN_OPTS",
        "ONEDNN_MAX_CPU_ISA",
        "DNNL_MAX_CPU_ISA",
        "ONEDNN_DEFAULT_FPMATH_MODE",
    ),
    *("TF_XLA_FLAGS", "XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "TF_USE_LEGACY_KERAS"),
)
# Name in a checkpoint's versions to the one that people know.
_PACKAGES = {"tensorflow": "TensorFlow", "keras": "Keras", "numpy": "NumPy"}


def read() -> dict[str, str | int]:
    """Returns the part `machine` of a fingerprint."""
    found: dict[str, str | int] = {"Python": platform.python_version()}
    installed = versions.installed()
    found |= {name: installed[key] for key, name in _PACKAGES.items() if key in installed}
    found[threads.KEY] = threads.used()
    found["instruction set"] = _instruction_set()
    for name in _SWITCHES:
        if name in os.environ:
            found[name] = os.environ[name]
    devices = Counter(device.device_type for device in tf.config.list_logical_devices())
    found["devices"] = ", ".join(f"{count} {kind}" for kind, count in sorted(devices.items()))
    found["op determinism"] = "on" if tf_config.is_op_determinism_enabled() else "off"
    return found


@functools.cache
def _instruction_set() -> str:
    flags: list[str] = []
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    flags = line.split(":", 1)[1].split()
                    break
    except OSError:
        pass  # no Linux: the architecture must do
    known = sorted(flag for flag in flags if flag.startswith(_EXTENSIONS))
    return " ".join([platform.machine(), *known])
