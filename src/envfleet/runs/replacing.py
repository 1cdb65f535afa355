"""Replacing a run: the old one is kept until the new one has saved its first checkpoint.

The old run's files are moved into `.replaced/` of the same folder, after a journal there has listed them. The new run
writes in place. With its first checkpoint the journal is marked as complete, and the old files are removed. A new run
that ends before that is taken back: what it wrote is removed, and the files that the journal lists return.

A process may be killed between any two of these steps. Whoever opens the folder next finds the journal, sees that
nobody holds the run's lock, and puts the old run back; doing part of that twice changes nothing. The user's own files
are in no list and stay where they are.

Checkpoints in a folder of their own have a `.replaced/` there, on the same file system, with a file that names the run.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from envfleet.errors import SettingsError
from envfleet.runs.durable import discard, sync_folder, write_whole
from envfleet.runs.lock import RunLock, holder

__all__ = ["ENTRIES", "keep_new", "move_aside", "recover", "states_in"]

_MANIFEST, _CONFIG = "manifest.json", "config.yaml"
ENTRIES = (_CONFIG, _MANIFEST, "metrics.jsonl", "logs", "checkpoints", "videos", "report")
_COPIED = (_MANIFEST, _CONFIG)  # the new ones replace them in one step, so the folder is a run at every moment
_STATES = re.compile(r"step-\d+|last|best|final|damaged-step-\d+")
_PIECES = "pieces"
_ASIDE, _JOURNAL, _OWNER = ".replaced", "journal.json", "run"
_LOG = logging.getLogger("envfleet")


def states_in(checkpoints: Path) -> list[str]:
    """The names of the checkpoints in a folder, and of what belongs to them."""
    names = sorted(entry.name for entry in checkpoints.iterdir()) if checkpoints.is_dir() else []
    states = [name for name in names if _STATES.fullmatch(name)]
    return [*states, _PIECES] if states and _PIECES in names else states


def move_aside(run: Path, checkpoints: Path) -> None:
    """Moves the files of the run in the folder `run` out of the way; call it with the run's lock."""
    entries = _entries_in(run)
    apart = checkpoints.absolute() != (run / "checkpoints").absolute()
    states = states_in(checkpoints) if apart else []
    aside = run / _ASIDE
    discard(aside)
    aside.mkdir(parents=True)
    journal = {
        "complete": False,  # nothing in `.replaced/` is needed any more
        "entries": entries,
        "checkpoints": str(checkpoints.absolute()) if states else None,
        "states": states,
    }
    write_whole(aside / _JOURNAL, json.dumps(journal).encode())
    sync_folder(run)
    if states:
        (checkpoints / _ASIDE).mkdir(exist_ok=True)
        write_whole(checkpoints / _ASIDE / _OWNER, str(run.absolute()).encode())
        _move(states, checkpoints, checkpoints / _ASIDE)
    for name in _COPIED:
        if name in entries:
            write_whole(aside / name, (run / name).read_bytes())
    _move([name for name in entries if name not in _COPIED], run, aside)


def keep_new(run: Path) -> None:
    """The new run has saved a checkpoint: the old one is removed for good."""
    journal = _journal(run)
    if journal is not None:
        write_whole(run / _ASIDE / _JOURNAL, json.dumps({**journal, "complete": True}).encode())
        with suppress(OSError):  # it is tried again when the run is opened
            _remove_old(run, journal)


def _remove_old(run: Path, journal: dict[str, Any]) -> None:
    if journal["checkpoints"] is not None:
        discard(Path(journal["checkpoints"]) / _ASIDE)
    discard(run / _ASIDE)


def recover(run: Path, checkpoints: Path | None = None) -> None:
    """Puts back a run that was to be replaced, if the process that replaced it has ended without a checkpoint.

    `checkpoints` may have been taken by another run, whose journal then knows of them.
    """
    owner = None if checkpoints is None else checkpoints / _ASIDE / _OWNER
    for path in (run, Path(owner.read_text()) if owner is not None and owner.is_file() else run):
        ours = (path / _ASIDE / _JOURNAL).is_file() or ((path / _ASIDE).is_dir() and (path / _MANIFEST).is_file())
        if not ours or holder(path / ".lock") is not None:
            continue
        try:
            with RunLock(path / ".lock"):
                put_back = _put_back(path)
        except OSError as error:
            raise SettingsError(
                f"the run in {path} was to be replaced and cannot be put back: {error.strerror or error}",
                hint=f"its files are in {path / _ASIDE}; make the folder writable",
            ) from error
        if put_back:
            _LOG.warning("%s is as it was before: the run that was to replace it saved no checkpoint", path)


def _put_back(run: Path) -> bool:
    """Whether the old run is back; one that was replaced for good is removed."""
    journal = _journal(run)
    if journal is None:
        discard(run / _ASIDE)
        return False
    if not journal["complete"]:
        apart = None if journal["checkpoints"] is None else Path(journal["checkpoints"])
        if apart is not None and apart.is_dir():
            _return(journal["states"], apart / _ASIDE, apart, states_in(apart))
        _return(journal["entries"], run / _ASIDE, run, _entries_in(run))
        write_whole(run / _ASIDE / _JOURNAL, json.dumps({**journal, "complete": True}).encode())
    _remove_old(run, journal)
    return not journal["complete"]


def _return(old: Sequence[str], aside: Path, folder: Path, there: Sequence[str]) -> None:
    """Moves `old` names back. One that is not aside was never moved, or is back already."""
    for name in there:
        if name not in old:
            discard(folder / name)
    for name in old:
        if os.path.lexists(aside / name):
            if name not in _COPIED:
                discard(folder / name)
            (aside / name).replace(folder / name)
    sync_folder(folder)


def _move(names: Sequence[str], here: Path, there: Path) -> None:
    for name in names:
        (here / name).rename(there / name)
    sync_folder(there)
    sync_folder(here)


def _entries_in(run: Path) -> list[str]:
    return [name for name in ENTRIES if os.path.lexists(run / name)]


def _journal(run: Path) -> dict[str, Any] | None:
    path = run / _ASIDE / _JOURNAL
    try:
        journal: dict[str, Any] = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    return journal
