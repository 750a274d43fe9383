"""Which TensorFlow: the oldest that was tested, and what there is.

Owns the oldest version, and the sentence for a TensorFlow that is missing or older. Promises that
loading this file loads nothing else, and that a version is found under whatever name TensorFlow was
installed (`tensorflow-cpu`, `tf-nightly`, a build of one's own). Refuses to decide by version what
can be tried out: no other file compares versions.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

OLDEST = (2, 16)

# Name in a checkpoint, which is the distribution's usual name, to the module that has the version.
_MODULES = {"unbroken": "trainer", "tensorflow": "tensorflow", "keras": "keras", "numpy": "numpy"}


class NeedsTensorFlowError(ImportError):
    """There is no TensorFlow here that this package was tested with."""


def tensorflow() -> Any:
    """Imports TensorFlow and returns it.

    Raises:
        NeedsTensorFlowError: it is not installed, or too old.
    """
    try:
        module = importlib.import_module("tensorflow")
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise _needs(f"there is none in {sys.prefix}", "tensorflow") from None
    version = getattr(module, "__version__", None)
    if version is None:  # a folder of that name, such as a broken installation leaves behind
        raise _needs(f"{_place(module)} is called tensorflow and holds none", "tensorflow")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise _needs(f"found {version} in {_place(module)}", _distribution())
    return module


def installed() -> dict[str, str]:
    """Returns the versions that results depend on, by the packages' usual names."""
    found = {name: _version(name, module) for name, module in _MODULES.items()}
    return {name: version for name, version in found.items() if version is not None}


def _version(name: str, module: str) -> str | None:
    """Returns what the module says, whoever distributes it; of one not in use, what pip says."""
    version = getattr(sys.modules.get(module), "__version__", None)
    if isinstance(version, str):
        return version
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _needs(found: str, distribution: str) -> NeedsTensorFlowError:
    oldest = ".".join(map(str, OLDEST))
    return NeedsTensorFlowError(
        f"unbroken needs TensorFlow {oldest} or newer, and {found}; "
        f"run: {sys.executable} -m pip install --upgrade '{distribution}>={oldest}'",
        name="tensorflow",
    )


def _place(module: Any) -> str:
    return next(iter(getattr(module, "__path__", ())), "this process")


def _distribution() -> str:
    """Returns the name under which TensorFlow was installed."""
    from importlib import metadata

    names = metadata.packages_distributions().get("tensorflow", [])
    return "tensorflow" if "tensorflow" in names or not names else names[0]
