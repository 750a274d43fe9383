"""The settings of a run and the flags of its program.

Owns the part `settings` of a fingerprint: the config, and the absl flags that the program defined
itself. Promises to leave out the flags of libraries, the run's folder, and what is named like a
secret. Refuses to parse a flag.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from collections.abc import Sequence
from typing import Any

from absl import flags

from trainer import config

_LIBRARIES = ("absl", "tensorflow", "tensorboard", "keras", "tf_keras", "jax", "grain", "trainer")
_SECRETS = (
    *("*password*", "*passwd*", "*secret*", "*token", "*tokens", "*api_key*", "*apikey*"),
    *("*credential*", "*private_key*", "*access_key*", "*auth_key*"),
)
# Where the run is, and what is not kept of itself.
_NO_PART = ("model_dir", "private_flags")


def read(settings: config.TrainerConfig, values: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
    """Returns the part `settings` of a fingerprint.

    Args:
        settings: the config.
        values: the program's flags.
    """
    fields = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(settings).items()
        if name not in _NO_PART
    }
    return {"config": fields, "flags": _own_flags(values, settings.private_flags)}


def _own_flags(values: flags.FlagValues, private: Sequence[str]) -> dict[str, Any]:
    if not values.is_parsed():
        return {}
    fields = {field.name for field in dataclasses.fields(config.TrainerConfig)}
    found = {}
    for module, defined in values.flags_by_module_dict().items():
        is_script = module.endswith(".py")  # the program's own, whatever it is called
        if module.split(".")[0] in _LIBRARIES and not is_script:
            continue
        for flag in defined:
            hidden = any(fnmatch.fnmatchcase(flag.name.lower(), p) for p in (*_SECRETS, *private))
            if flag.name not in fields and not hidden:
                found[flag.name] = _plain(flag.value)
    return dict(sorted(found.items()))


def _plain(value: Any) -> Any:
    """Returns a value as JSON holds it."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return str(getattr(value, "name", value))
