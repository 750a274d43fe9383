"""A fingerprint as rows for a reader.

Owns the words of `python -m trainer show`. Promises that every setting, flag and stage is there.
Refuses to import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def rows(fingerprint: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Returns names and values.

    Args:
        fingerprint: of a manifest; None gives no row.
    """
    if fingerprint is None:
        return []
    step, data = fingerprint["step"], fingerprint["data"]
    settings = fingerprint["settings"]
    operations = sum(step["operations"].values())
    found = [
        ("step", f"{operations:,} operations, {step['operations'].get('Const', 0):,} constants")
    ]
    found += [("data", _stage(*stage)) for stage in data["stages"]] or [("data", data["kind"])]
    found.append(("batch", data["element"]))
    if "files" in data:
        found.append(("files", f"{data['files']['count']:,}, {data['files']['bytes']:,} B"))
    found += [(f"--{name}", _text(value)) for name, value in settings["flags"].items()]
    given = {name: value for name, value in settings["config"].items() if value not in (None, [])}
    found += [(name, _text(value)) for name, value in given.items()]
    return found + [(name, _text(value)) for name, value in fingerprint["machine"].items()]


def _stage(name: str, arguments: Mapping[str, Any]) -> str:
    given = (f"{key}={_text(value)}" for key, value in arguments.items())
    return f"{name}({', '.join(given)})"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value).partition(" #")[0]
