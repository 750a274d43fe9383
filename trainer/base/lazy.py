"""Public names that are imported when they are used first.

Owns the module functions `__getattr__` and `__dir__` of packages that offer names from their files.
Promises that a package offers its names without loading one of its files, so that a command which
only lists files does not pay for TensorFlow. Refuses to know the names.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a `__getattr__` for a package.

    Args:
        package: its name.
        homes: public name to the module that it stands in, or is: one whose last part is the name.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(homes[name])
        is_module = homes[name].rpartition(".")[2] == name
        value = home if is_module else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    return find
