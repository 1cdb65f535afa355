"""The files of one checkpoint: written, verified and read as bytes.

`digest.json` holds the checksums of the other files and of the pieces that the checkpoint shares with others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envfleet.errors import CheckpointError, StateError
from envfleet.runs.plain_state import state_files, state_in
from envfleet.settings.files import parse_json

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "PIECES",
    "Checkpoint",
    "OtherFormatError",
    "UnreadableError",
    "encoded",
    "fingerprint",
    "piece_path",
    "read",
    "verified",
]

Array = np.ndarray[Any, Any]

PIECES = "pieces"
_FORMAT = 1  # raise it if older checkpoints can no longer be resumed
_FILES = ("policy.safetensors", "state.safetensors", "state.json")
_DAMAGE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)  # other OSErrors may be temporary
_PIECE_NAME = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    step: int
    policy: dict[str, Tensor]
    state: Any
    path: Path
    pieces: dict[str, dict[str, Array]] = field(default_factory=dict)  # in the order they were saved


class OtherFormatError(CheckpointError):
    """A valid checkpoint of another Envfleet version. It is left alone."""


class UnreadableError(CheckpointError):
    """A checkpoint that cannot be read now, for example because a disk or network fails. It may be intact."""


def encoded(
    step: int, policy: Mapping[str, Tensor], state: Any, pieces: Mapping[str, dict[str, Any]]
) -> dict[str, bytes]:
    """Return the files of a checkpoint by name, the digest last."""
    import safetensors.torch

    # Clones, because safetensors refuses tensors that share memory, such as tied weights.
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in policy.items()}
    files = {"policy.safetensors": safetensors.torch.save(weights), **state_files(state)}
    fingerprints = {name: fingerprint(files[name]) for name in _FILES}
    digest = {"format": _FORMAT, "step": step, "files": fingerprints, "pieces": dict(pieces)}
    return {**files, "digest.json": json.dumps(digest, indent=2).encode()}


def fingerprint(content: bytes) -> dict[str, Any]:
    """The checksum and size of a file."""
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def verified(path: Path, *, with_pieces: bool) -> tuple[int, dict[str, bytes], dict[str, bytes]]:
    """Return step, files and pieces of a checkpoint. Raises if they do not match the digest."""
    try:
        digest = parse_json((path / "digest.json").read_bytes())
        version, step, fingerprints = digest["format"], int(digest["step"]), digest["files"]
        if version != _FORMAT:
            raise OtherFormatError(
                f"the checkpoint {path} has format {version!r}; this version reads format {_FORMAT}",
                hint="use the version of Envfleet that saved it",
            )
        contents = {name: (path / name).read_bytes() for name in _FILES}
        pieces = {name: piece_path(path.parent, name).read_bytes() for name in digest["pieces"] if with_pieces}
        wrong = [name for name in _FILES if fingerprints[name] != fingerprint(contents[name])]
        wrong += [name for name, content in pieces.items() if digest["pieces"][name] != fingerprint(content)]
    except (*_DAMAGE, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint {path} is incomplete: {type(error).__name__}: {error}") from error
    except OSError as error:
        raise UnreadableError(
            f"the checkpoint {path} cannot be read: {error.strerror or error}",
            hint="it may be intact, and nothing was changed; try again when its files can be read",
        ) from error
    if wrong or path.name != f"step-{step}":
        raise CheckpointError(f"the checkpoint {path} is damaged: {', '.join(wrong) or 'digest.json'} changed")
    return step, contents, pieces


def piece_path(folder: Path, name: str) -> Path:
    """The file of a piece; `folder` holds all checkpoints."""
    if not _PIECE_NAME.fullmatch(name):  # a forged digest must not lead to other paths
        raise ValueError(f"{name!r} is no name of a piece")
    return folder / PIECES / f"{name}.safetensors"


def read(path: Path, *, with_pieces: bool) -> Checkpoint:
    """Verify and read a checkpoint."""
    import safetensors
    import safetensors.numpy
    import safetensors.torch

    step, contents, pieces = verified(path, with_pieces=with_pieces)
    try:
        policy = safetensors.torch.load(contents["policy.safetensors"])
        state = state_in(contents)
        grown = {name: safetensors.numpy.load(content) for name, content in pieces.items()}
    except (
        AttributeError, KeyError, RecursionError, StateError, TypeError, ValueError, safetensors.SafetensorError
    ) as error:  # fmt: skip
        raise CheckpointError(f"the checkpoint {path} cannot be read: {type(error).__name__}: {error}") from error
    return Checkpoint(step, policy, state, path, grown)
