"""A file of the user's that has this package's name.

Owns finding one. Promises to name the file and what to do. Refuses to change how Python imports:
where such a file comes first, `import trainer` finds it, and nothing of this package runs.
"""

from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def found(*folders: str) -> str | None:
    """Returns the first file in one of the folders that hides this package, or None.

    Args:
        folders: where Python looks first: the program's folder, the current one.
    """
    name = os.path.basename(_PACKAGE)
    for folder in folders:
        for path in (os.path.join(folder, name, "__init__.py"), os.path.join(folder, f"{name}.py")):
            ours = os.path.join(_PACKAGE, "__init__.py")
            if os.path.isfile(path) and not os.path.samefile(path, ours):
                return os.path.abspath(path)
    return None


def sentence(path: str) -> str:
    """Returns what such a file does, and the two ways on.

    Args:
        path: the file.
    """
    return (
        f"{path} has the name of this package: a program in its folder, and `python -m trainer` "
        "started there, find that file instead; rename it (the command `unbroken` works everywhere)"
    )
