"""The manifest of a run: its format, and what made it."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from envfleet import machine
from envfleet.errors import SettingsError

__all__ = ["new_manifest", "refuse_other_format"]

_FORMAT = 1  # of the run folder; raise it if older runs can no longer be read
_OF_CLUSTER = ("address", "runtime-env")


def new_manifest(
    env: str,
    algorithm: str,
    seed: int,
    checkpoint_dir: Path | None,
    settings: Mapping[str, Any] | None,
    libraries: Mapping[str, str],
) -> dict[str, Any]:
    """Return the manifest of a run that starts now; the arguments are those of `RunFolder.create`."""
    return {
        "format": _FORMAT,
        "env": env,
        "algorithm": algorithm,
        "seed": seed,
        "envfleet": metadata.version("envfleet"),
        "code": _code_digest(),
        "git": _git_commit(),
        "machine": machine.describe(libraries=libraries),  # and the versions of Python, torch, Gymnasium and NumPy
        "command": _without_cluster(sys.argv),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "checkpoint_dir": None if checkpoint_dir is None else str(checkpoint_dir),
        **({} if settings is None else {"settings": dict(settings)}),
    }


def refuse_other_format(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise a SettingsError if this version cannot read the run."""
    found, wrote = manifest.get("format"), manifest.get("envfleet", "unknown")
    if found != _FORMAT:
        raise SettingsError(
            f"the run {path} has format {found!r} (it was made by Envfleet {wrote}); this is Envfleet "
            f"{metadata.version('envfleet')}, which reads format {_FORMAT}",
            hint="use the version of Envfleet that made it",
        )


def _without_cluster(command: list[str]) -> list[str]:
    """The command without the values of flags that describe a cluster, because run folders are passed on."""
    kept: list[str] = []
    for word in command:
        flag = word.partition("=")[0].lstrip("-").replace("_", "-")
        if kept and kept[-1].lstrip("-").replace("_", "-") in _OF_CLUSTER and kept[-1].startswith("--"):
            kept.append("...")
        elif flag in _OF_CLUSTER and "=" in word:
            kept.append(f"{word.partition('=')[0]}=...")
        else:
            kept.append(word)
    return kept


@functools.cache  # the files may change later, but not the code that this process has loaded
def _code_digest() -> str:
    """Digest of the files of this package, which tells whether two runs had the same Envfleet."""
    package = Path(machine.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _git_commit() -> dict[str, Any] | None:
    """The commit of the current folder, which may have the user's own code, and whether files differ from it."""
    try:
        commit, changes = (
            subprocess.run(["git", *words], capture_output=True, text=True, timeout=5, check=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "changed": bool(changes)}
