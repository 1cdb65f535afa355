"""Paths as users write them in flags, files and Python."""

from __future__ import annotations

import os.path
from pathlib import Path

__all__ = ["expanded"]


def expanded(path: str | Path) -> Path:
    """The path with a leading `~` replaced by the home folder, which a shell does not do in `--flag=~/folder`.

    `~name` stays as it is if there is no such user; `Path.expanduser` would raise a RuntimeError.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111
