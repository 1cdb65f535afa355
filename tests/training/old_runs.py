"""Half-trained runs of earlier versions; `tests/data/old_runs/README.md` says how they were made."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["OLD_RUNS", "copy_of"]

_FOLDER = Path(__file__).parents[1] / "data" / "old_runs"
OLD_RUNS = sorted(path.name for path in _FOLDER.iterdir() if path.is_dir())


def copy_of(name: str, folder: Path) -> Path:
    """Copy the old run of this name to `folder`, where it may be changed."""
    return shutil.copytree(_FOLDER / name, folder)
