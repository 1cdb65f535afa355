"""The owner of a separate checkpoint folder: a file in it names the run, so that two runs never share the folder."""

from __future__ import annotations

import os
from pathlib import Path

from envfleet.errors import SettingsError
from envfleet.runs.replacing import states_in
from envfleet.settings.files import parse_json

__all__ = ["claim", "refuse_other_owner", "release"]

_MARK = ".run"  # it contains the path of the run


def refuse_other_owner(checkpoints: Path, run: Path | None) -> None:
    """Raise a SettingsError if the folder belongs to another run than the one in `run`.

    `run` is None for a run whose folder has no name yet. A folder without checkpoints is free once its owner is gone.
    """
    if checkpoints.exists() and not checkpoints.is_dir():
        raise SettingsError(f"got --checkpoint-dir {checkpoints}, which is a file, expected a folder")
    owner = _owner(checkpoints)
    lives = owner is not None and owner.is_dir()
    if run is not None and (owner == run.resolve() or (not lives and _records(run, checkpoints))):
        return
    if lives or states_in(checkpoints):
        whose = "another run" if owner is None else f"the run {owner}"
        raise SettingsError(
            f"the checkpoint folder {checkpoints} belongs to {whose}", hint="give another --checkpoint-dir"
        )


def claim(checkpoints: Path, run: Path) -> None:
    """Write into the folder that it belongs to `run`. Of two runs that start at the same time, one is refused."""
    owner = _owner(checkpoints)
    if owner == run.resolve():
        return
    refuse_other_owner(checkpoints, run)
    if owner is not None:  # its folder was deleted or renamed
        (checkpoints / _MARK).unlink()
    try:
        with open(checkpoints / _MARK, "xb") as file:
            file.write(os.fsencode(run.resolve()))
    except FileExistsError:
        refuse_other_owner(checkpoints, run)


def release(checkpoints: Path, run: Path) -> None:
    """Undo `claim` for a run that was removed without a checkpoint, unless the run that it replaced is back."""
    if _owner(checkpoints) == run.resolve() and not states_in(checkpoints) and not _records(run, checkpoints):
        (checkpoints / _MARK).unlink()


def _owner(checkpoints: Path) -> Path | None:
    try:
        return Path(os.fsdecode((checkpoints / _MARK).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _records(run: Path, checkpoints: Path) -> bool:
    """Whether the manifest of a run names the folder. The run may be of a version that did not write the mark."""
    try:
        recorded = Path(parse_json((run / "manifest.json").read_bytes())["checkpoint_dir"])
    except (FileNotFoundError, KeyError, NotADirectoryError, TypeError, ValueError):
        return False
    return recorded.resolve() == checkpoints.resolve()
