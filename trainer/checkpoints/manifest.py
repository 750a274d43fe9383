"""The file `manifest.json` of a checkpoint.

Owns its format, version 1. Promises that a manifest vouches for every byte of the checkpoint: it
holds its own digest, the size and digest of the index, and the size of the data, whose tensors the
index vouches for one by one with a crc32c. Refuses to read a file itself.

Format: one JSON object. `digest` is the SHA-256 of the same object without that key, written with
sorted keys and no blanks. `files` maps a file name to its `bytes` and, for the index, `sha256`.
`tensors` maps each name to `[dtype, shape]`, `variables` lists those that are variables. `step`,
`trained_secs`, `seed` and `written_at` (seconds since 1970, for display only) describe the run,
`versions` the software. Two fields may be missing: `fingerprint` says what the program was made of,
in named parts; `outputs` holds what hooks may read of the last step, `[dtype, bytes in base 64]`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from trainer.checkpoints import file_names

FORMAT = 1
_MAY_BE_MISSING = ("fingerprint", "outputs")


class LaterFormatError(ValueError):
    """The manifest is sound and of a format that this version does not know."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a checkpoint says of itself.

    Args:
        step: completed train steps.
        trained_secs: seconds of training up to that step, over all resumes.
        seed: seed of the run.
        files: name to {"bytes": int, "sha256": str (index only)}.
        tensors: name to [dtype name, shape as a list].
        variables: names of the tensors that are variables of the program.
        written_at: seconds since 1970, for display only.
        versions: package name to version.
        fingerprint: what the program was made of (see `trainer.fingerprint`); None: not known.
        outputs: name of each output of the step to [dtype name, its bytes in base 64].
    """

    step: int
    trained_secs: float
    seed: int
    files: dict[str, dict[str, Any]]
    tensors: dict[str, tuple[str, list[int]]]
    variables: list[str]
    written_at: float
    versions: dict[str, str]
    fingerprint: dict[str, Any] | None = None
    outputs: dict[str, list[str]] | None = None

    @property
    def bytes(self) -> int:
        """Size of the tensors' files in bytes."""
        return sum(int(entry["bytes"]) for entry in self.files.values())


def encode(manifest: Manifest) -> bytes:
    """Returns the content of the file."""
    content = {"format": FORMAT, **dataclasses.asdict(manifest)}
    for name in _MAY_BE_MISSING:
        if content[name] is None:
            del content[name]
    content["digest"] = _digest(content)
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def decode(content: bytes) -> Manifest:
    """Returns the manifest that a file holds.

    Raises:
        ValueError: the content is not a manifest, or was changed; the text says which.
        LaterFormatError: the manifest is sound and of a later format.
    """
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{file_names.MANIFEST} is no JSON ({error})") from None
    if not isinstance(parsed, dict) or "digest" not in parsed:
        raise ValueError(f"{file_names.MANIFEST} has no digest")
    digest = parsed.pop("digest")
    if digest != _digest(parsed):
        raise ValueError(f"{file_names.MANIFEST} does not have the digest that it names")
    written = parsed.pop("format", None)
    if written != FORMAT:
        raise LaterFormatError(
            f"{file_names.MANIFEST} is of format {written!r} and this version reads format "
            f"{FORMAT}; use the version that wrote it"
        )
    known = {field.name for field in dataclasses.fields(Manifest)}
    try:  # a later version of this format may say more, which is passed over
        return Manifest(**{name: value for name, value in parsed.items() if name in known})
    except TypeError as error:
        raise ValueError(
            f"{file_names.MANIFEST} has other fields than this format ({error})"
        ) from None


def sha256(content: bytes) -> str:
    """Returns the SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _digest(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
