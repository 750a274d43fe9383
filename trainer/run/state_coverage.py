"""Variables that the step uses and no checkpoint would hold.

Owns the check that construction makes before anything is restored or trained. Promises to name each
such variable, where it was seen, and the line to write. Refuses to find variables (see
`state.discovery`), or to let one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer import errors
from trainer.graph import compiled, inspection, way
from trainer.state import variables as variables_module


def check(
    step: compiled.Step,
    variables: variables_module.State,
    attributes: Mapping[str, Any],
    elsewhere: Mapping[str, Any] | None = None,
) -> None:
    """Checks that every variable which the step touches would be saved.

    Args:
        step: the traced step.
        variables: what would be saved.
        attributes: the trainer's, to tell where a forgotten variable is.
        elsewhere: what else the program's methods may have it from, by what it is.

    Raises:
        StateCoverageError: some would not.
    """
    held = inspection.handles(entry.variable for entry in variables.entries.values())
    touched = inspection.touched_variables(step.function)
    missing = {handle: name for handle, name in touched.items() if handle not in held}
    if missing:
        ways = {
            handle: [way.way_to(handle, roots) for roots in (attributes, elsewhere or {})]
            for handle in missing
        }
        advice = [f"{name}: {_advice(*ways[handle])}" for handle, name in missing.items()]
        raise errors.StateCoverageError(list(missing.values()), advice)


def _advice(found: way.Way | None, elsewhere: way.Way | None) -> str:
    nothing = "no attribute leads to it; write self.<name> = <what holds it> in build()"
    if found is not None and found.kind == "function":
        return f"{nothing} (the function {found.holder} alone holds it: {found.path})"
    if found is not None and found.kind:
        article = "an" if found.kind[0].lower() in "aeiou" else "a"
        return (
            f"in attribute {found.holder} ({found.kind}), which cannot be looked into: "
            f"{found.path} leads to it, through {article} {found.kind}; make it a tf.Module, list "
            "or dict with texts as keys, or write self.<name> = <the variable>"
        )
    if elsewhere is not None:
        return (
            f"it is {elsewhere.path}, no attribute; write self.<name> = <the variable> in build()"
        )
    return nothing
