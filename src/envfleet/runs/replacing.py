"""Replacing a run: the old one is kept until the new one has saved its first checkpoint.

First a journal in `.replaced/` of the run folder lists the old run's files. Then they are moved there, and the new run
writes in place. With its first checkpoint, the journal is marked as complete and the old files are deleted. If the new
run ends before that, its files are deleted and the files in the journal are moved back.

A process may be killed between any two of these steps. The next process that opens the folder finds the journal, sees
that nobody holds the run's lock, and puts the old run back. Repeating part of that is harmless. The user's own files
are in no list and stay where they are.

Checkpoints in a separate folder have a `.replaced/` there, on the same file system.
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
ENTRIES = (_CONFIG, _MANIFEST, "metrics.jsonl", "order.jsonl", "logs", "checkpoints", "videos", "report")
_COPIED = (_MANIFEST, _CONFIG)  # not moved: the new ones replace them atomically, so the folder is always a valid run
_STATES = re.compile(r"step-\d+|last|best|final|damaged-step-\d+")
_PIECES = "pieces"
_ASIDE, _JOURNAL = ".replaced", "journal.json"
_LOG = logging.getLogger("envfleet")


def states_in(checkpoints: Path) -> list[str]:
    """Names of the checkpoints in a folder, and of their pieces."""
    names = sorted(entry.name for entry in checkpoints.iterdir()) if checkpoints.is_dir() else []
    states = [name for name in names if _STATES.fullmatch(name)]
    return [*states, _PIECES] if states and _PIECES in names else states


def move_aside(run: Path, checkpoints: Path) -> None:
    """Move the files of the run in folder `run` aside. The caller must hold the run's lock."""
    entries = _entries_in(run)
    apart = checkpoints.absolute() != (run / "checkpoints").absolute()
    states = states_in(checkpoints) if apart else []
    aside = run / _ASIDE
    discard(aside)
    aside.mkdir(parents=True)
    journal = {
        "complete": False,  # True once nothing in `.replaced/` is needed any more
        "entries": entries,
        "checkpoints": str(checkpoints.absolute()) if states else None,
        "states": states,
    }
    write_whole(aside / _JOURNAL, json.dumps(journal).encode())
    sync_folder(run)
    if states:
        (checkpoints / _ASIDE).mkdir(exist_ok=True)
        _move(states, checkpoints, checkpoints / _ASIDE)
    for name in _COPIED:
        if name in entries:
            write_whole(aside / name, (run / name).read_bytes())
    _move([name for name in entries if name not in _COPIED], run, aside)


def keep_new(run: Path) -> None:
    """Delete the old run for good, now that the new one has saved a checkpoint."""
    journal = _journal(run)
    if journal is not None:
        write_whole(run / _ASIDE / _JOURNAL, json.dumps({**journal, "complete": True}).encode())
        with suppress(OSError):  # opening the run tries again
            _remove_old(run, journal)


def _remove_old(run: Path, journal: dict[str, Any]) -> None:
    if journal["checkpoints"] is not None:
        discard(Path(journal["checkpoints"]) / _ASIDE)
    discard(run / _ASIDE)


def recover(run: Path) -> None:
    """Put back a replaced run if the process that replaced it ended without a checkpoint."""
    ours = (run / _ASIDE / _JOURNAL).is_file() or ((run / _ASIDE).is_dir() and (run / _MANIFEST).is_file())
    if not ours or holder(run / ".lock") is not None:
        return
    try:
        with RunLock(run / ".lock"):
            put_back = _put_back(run)
    except OSError as error:
        raise SettingsError(
            f"the run in {run} was being replaced and cannot be restored: {error.strerror or error}",
            hint=f"its files are in {run / _ASIDE}; make the folder writable",
        ) from error
    if put_back:
        _LOG.warning("%s was restored: the run that replaced it saved no checkpoint", run)


def _put_back(run: Path) -> bool:
    """Put the old run back, or delete it if it was replaced for good. Returns whether it is back."""
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
    """Move `old` names back. A name that is not aside was never moved, or is back already."""
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
