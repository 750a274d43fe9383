"""The program of a proof of one class: `prove FILE.py:CLASS` runs it in place of a command.

Owns the way from FILE.py:CLASS and flags to a run of that class, without hooks. Promises to be no
more than that: what a proof changes in a run is in `base.probe`. Refuses to run a program's own
main, and so the hooks and the defaults of flags that it has there.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from absl import flags

from trainer import app


def load_class(target: str) -> Any:
    """Returns the class that FILE.py:CLASS names.

    Args:
        target: the file and the class.

    Raises:
        ValueError: there is no such file or class.
    """
    path, _, name = target.rpartition(":")
    if not os.path.isfile(path):
        raise ValueError(f"{target!r}: there is no file {path!r}; write FILE.py:CLASS")
    stem = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{target!r}: {path!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise ValueError(f"{target!r}: {path} has no class {name!r}")
    return getattr(module, name)


def main() -> None:
    """Trains the class in the first argument with the flags in the others."""
    target, *given = sys.argv[1:]
    program_class = load_class(target)
    app.define_flags()
    app.parse([target, *given])
    with program_class(app.config_from_flags(flags.FLAGS)) as program:
        sys.exit(program.train().exit_code)


if __name__ == "__main__":
    main()
