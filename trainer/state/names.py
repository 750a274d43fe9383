"""The names in a checkpoint that are not a program's own.

Owns them, one constant each, and the table of all names, which `run.content` shows. Promises that a
name is written once in this package: names are public, and golden checkpoints hold them. Refuses to
know what becomes of a value.
"""

from __future__ import annotations

OWN = "trainer/"  # a program's attribute paths never begin so: `trainer` is no attribute of its own
STEP = "trainer/step"
HOOKS = "trainer/hooks/"
DATA = "trainer/data/"
ITERATOR = "trainer/data/iterator"
EPOCH_START = "trainer/data/epoch_start"
HISTORY = "trainer/history/"
OPTIMIZERS = "trainer/optimizers"
RANDOM = "trainer/random/"
PYTHON_RANDOM = "trainer/random/python"
NUMPY_RANDOM = "trainer/random/numpy"
TENSORFLOW_RANDOM = "trainer/random/tensorflow"
KERAS_RANDOM = "trainer/random/keras"
HOOK_SETTINGS = "trainer/hook_settings"
STOP = "trainer/stop"
LEFT_OUT = "trainer/left_out"
KEPT = "trainer/kept"
SECS = "trainer/secs"

TABLE = {
    STEP: "completed steps (a variable)",
    "<attribute path>": "every other variable of the program",
    HOOKS + "<key>/<path>": "variables of hooks",
    HOOKS + "<key>": "JSON text: what a hook's get_state returned (see `hooks.state_text`)",
    DATA + "position": "int64: batches drawn",
    DATA + "epoch": "int64[3]: passes completed, batches of this one, passes asked for",
    ITERATOR: "variant: the iterator, where it can be saved",
    EPOCH_START: "variant: the iterator at the start of the pass, where needed",
    DATA + "state": "text: the state of a Python source",
    DATA + "indexed": "int64[5]: what the order of an Indexed depends on",
    HISTORY + "<output>": "float32[n]: values not yet shown to a hook",
    OPTIMIZERS: "JSON text: settings of optimizers that are no variables",
    PYTHON_RANDOM: "JSON text: Python's global generator",
    NUMPY_RANDOM: "JSON text: NumPy's global generator",
    TENSORFLOW_RANDOM: "JSON text: what seeds eager random operations; absent if unused",
    KERAS_RANDOM: "JSON text: Keras's global generator; absent if unused",
    HOOK_SETTINGS: "JSON text: settings by which hooks of one class are told apart",
    STOP: "JSON text: who asked the run to stop, or null",
    KEPT: "JSON text: keep_program_values it was written with; absent if none",
    LEFT_OUT: "JSON text: steps whose batches are left out; absent if none is",
    SECS: "float64: seconds of training",
}

# Differ between an unbroken run and a cut one of equal state: a time, how far a prefetch has got,
# which hooks watch.
_NOT_COMPARED = (SECS, ITERATOR, EPOCH_START, HOOK_SETTINGS)


def is_compared(name: str) -> bool:
    """Tells whether a name is part of a digest of the state."""
    return name not in _NOT_COMPARED


def table() -> str:
    """Returns the names and what is under each, a line each."""
    return "".join(f"    {name:<29} {what}\n" for name, what in TABLE.items())
