"""Checkpoints: folders that are written aside and renamed, never modified, and verified before use.

    checkpoints/step-2048/  policy.safetensors   the policy's weights; the same weights give the same bytes
                            state.safetensors    every other array
                            state.json           everything else, with references to those arrays
                            digest.json          checksums of the three files
    checkpoints/last, best, final                links to such folders, replaced atomically
    checkpoints/pieces/NAME.safetensors          append-only data (a replay buffer), in parts that checkpoints share

If the process is killed, the old or the new checkpoint is intact. At worst, a folder whose name starts with a dot
is left over. Reading runs no code: the files are JSON and safetensors.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
import psutil

from envfleet.errors import CheckpointError
from envfleet.runs.checkpoint_files import (
    PIECES,
    Checkpoint,
    OtherFormatError,
    UnreadableError,
    encoded,
    fingerprint,
    piece_path,
    read,
    verified,
)
from envfleet.runs.durable import discard, sync_folder, write_file, write_whole
from envfleet.settings.files import parse_json

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Checkpoint", "Checkpoints"]

Array = np.ndarray[Any, Any]

_MARKS = ("last", "best", "final")
_STEP = re.compile(r"step-(\d+)")
_LEFTOVER = re.compile(r"\.(?:writing|removing|linking)-.*-(\d+)")  # the process id comes last
_LOG = logging.getLogger("envfleet")


class Checkpoints:
    """The checkpoints of a run. Keeps the newest `keep`, and those that last, best and final point to."""

    def __init__(self, folder: str | Path, keep: int = 3) -> None:
        self.folder = Path(folder)
        self.keep = max(1, keep)
        self._fingerprints: dict[str, dict[str, Any]] = {}  # of the pieces written or read so far

    # ---- writing ----

    def save(
        self,
        step: int,
        policy: Mapping[str, Tensor],
        state: Any,
        pieces: Mapping[str, Mapping[str, Array] | None] | None = None,
    ) -> Path:
        """Write the checkpoint of `step`, point `last` to it, and remove old checkpoints.

        `pieces` are all pieces of the checkpoint, in order. Pieces that an earlier checkpoint wrote are None.
        """
        try:
            fingerprints = {name: self._written(name, arrays) for name, arrays in (pieces or {}).items()}
        except OSError as error:
            self._fail_to_write(step, error)
        contents = encoded(step, policy, state, fingerprints)
        target, aside = self.folder / f"step-{step}", self.folder / f".writing-step-{step}-{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            discard(aside)
            aside.mkdir()
            for name, content in contents.items():
                write_file(aside / name, content)
            sync_folder(aside)
            self._put(aside, target)
            self._point("last", target)
        except OSError as error:
            self._fail_to_write(step, error)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        self._remove_old()
        return target

    def _written(self, name: str, arrays: Mapping[str, Array] | None) -> dict[str, Any]:
        """Return the fingerprint of a piece, after writing it if it is new."""
        if arrays is not None:
            import safetensors.numpy

            content = safetensors.numpy.save({key: np.ascontiguousarray(array) for key, array in arrays.items()})
            path = piece_path(self.folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
            self._fingerprints[name] = fingerprint(content)
        elif name not in self._fingerprints:  # of a resumed run
            self._fingerprints[name] = fingerprint(piece_path(self.folder, name).read_bytes())
        return self._fingerprints[name]

    def mark(self, name: Literal["best", "final"], step: int) -> Path:
        """Point `best` or `final` to the checkpoint of `step`."""
        target = self.folder / f"step-{step}"
        if not target.is_dir():
            raise CheckpointError(
                f"there is no checkpoint of step {step} in {self.folder}, so it cannot become the {name} one"
            )
        try:
            self._point(name, target)
        except OSError as error:
            self._fail_to_write(step, error)
        self._remove_old()
        return self.folder / name

    def _put(self, aside: Path, target: Path) -> None:
        """Rename a finished folder to its final name."""
        if target.exists():
            # A resumed run reaches the same step again. If the content is the same, keep it.
            if _read_or_none(target / "digest.json") == (aside / "digest.json").read_bytes() and self._is_sound(target):
                return
            self._set_aside(target)
        aside.rename(target)
        sync_folder(self.folder)

    def _point(self, name: str, target: Path) -> None:
        link, aside = self.folder / name, self.folder / f".linking-{name}-{os.getpid()}"
        discard(aside)
        try:
            aside.symlink_to(target.name, target_is_directory=True)
        except (NotImplementedError, OSError) as error:
            if isinstance(error, OSError) and os.name != "nt" and not _lacks_symlinks(error):
                raise
            self._point_without_links(name, target)
            return
        try:
            if link.is_dir() and not link.is_symlink():
                self._set_aside(link)  # a copy, made on a file system without links
            aside.replace(link)
        finally:
            discard(aside)
        sync_folder(self.folder)

    def _point_without_links(self, name: str, target: Path) -> None:
        """Write a text file with the target's name; for `final`, whose files users open by path, a copy."""
        if name != "final":
            write_whole(self.folder / name, target.name.encode())
            return
        aside, link = self.folder / f".writing-{name}-{os.getpid()}", self.folder / name
        discard(aside)
        shutil.copytree(target, aside)
        if link.exists():
            self._set_aside(link)
        aside.rename(link)

    def _remove_old(self) -> None:
        wanted = {*self.steps()[-self.keep :], *(self.step_of(name) for name in _MARKS)}
        for step in self.steps():
            if step not in wanted:
                try:
                    self._set_aside(self.folder / f"step-{step}")
                except OSError as error:  # harmless
                    _LOG.warning("the old checkpoint step-%d cannot be removed: %s", step, error)
        if self._fingerprints:
            self._remove_old_pieces()

    def _remove_old_pieces(self) -> None:
        """Remove pieces that no checkpoint refers to any more."""
        used: set[str] = set()
        for step in self.steps():
            try:
                used |= parse_json((self.folder / f"step-{step}" / "digest.json").read_bytes())["pieces"].keys()
            except (KeyError, OSError, TypeError, ValueError):
                return  # the pieces of a damaged checkpoint are unknown
        for path in (self.folder / PIECES).glob("*.safetensors"):
            if path.stem not in used:
                path.unlink(missing_ok=True)
                self._fingerprints.pop(path.stem, None)

    def _set_aside(self, path: Path) -> None:
        """Remove a folder atomically: a partly deleted folder is never visible under its name."""
        aside = path.with_name(f".removing-{path.name}-{os.getpid()}")
        discard(aside)
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _fail_to_write(self, step: int, error: OSError) -> NoReturn:
        good = [f"step-{known}" for known in self.steps() if known != step]
        kept = f"{good[-1]} is kept; " if good else ""
        raise CheckpointError(
            f"the checkpoint of step {step} cannot be written to {self.folder}: {error.strerror or error}",
            hint=f"{kept}free some space or make the folder writable, then run `envfleet resume`",
        ) from error

    # ---- finding ----

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, in order."""
        try:
            names = [entry.name for entry in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):  # not created yet, or just deleted
            names = []
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be read: {error.strerror or error}") from error
        return sorted(int(match[1]) for name in names if (match := _STEP.fullmatch(name)))

    def step_of(self, name: str) -> int | None:
        """The step that `last`, `best` or `final` points to, or None."""
        link = self.folder / name
        try:
            if link.is_symlink():
                target = str(link.readlink())
            elif link.is_dir():
                target = f"step-{parse_json((link / 'digest.json').read_text())['step']}"
            else:
                target = link.read_text().strip()
        except (KeyError, OSError, TypeError, ValueError):
            return None
        match = _STEP.fullmatch(target)
        return int(match[1]) if match else None

    @property
    def finished(self) -> bool:
        """Whether the run has ended. A finished run that was extended and then stopped is past its `final`."""
        final = self.step_of("final")
        return final is not None and final == self.step_of("last")

    @property
    def default(self) -> str:
        """The checkpoint that is used if none is named: `final` of a finished run, otherwise `last`."""
        return "final" if self.finished else "last"

    # ---- reading ----

    def load(self, name: str | int = "last") -> Checkpoint:
        """Load and verify the checkpoint `name` (last, best, final, "step-N" or N), without changing anything.

        Does not load its pieces: only a resumed run needs them.
        """
        step = self.step_of(name) if name in _MARKS else _step_in(name)
        path = self.folder / f"step-{step}"
        if step is None or not path.is_dir():
            there = [mark for mark in _MARKS if self.step_of(mark) is not None]
            known = ", ".join([*there, *(f"step-{known}" for known in self.steps())]) or "none"
            raise CheckpointError(f"there is no checkpoint {name} in {self.folder}", hint=f"there are: {known}")
        return read(path, with_pieces=False)

    def load_newest_sound(self) -> Checkpoint:
        """Load the newest intact checkpoint for a resumed run. The caller must hold the run's lock.

        Renames damaged ones to `damaged-step-N`, and points `last` to the one used.
        """
        self._remove_leftovers()
        for step in reversed(self.steps()):
            path = self.folder / f"step-{step}"
            try:
                checkpoint = read(path, with_pieces=True)
            except (OtherFormatError, UnreadableError):
                raise
            except CheckpointError as error:
                _LOG.warning("%s; the checkpoint before it is used", str(error).partition("\n")[0])
                self._call_damaged(path)
                continue
            if self.step_of("last") != step:
                self._point("last", path)
            return checkpoint
        raise CheckpointError(
            f"there is no sound checkpoint in {self.folder}", hint="start the run again with --overwrite"
        )

    def _call_damaged(self, path: Path) -> None:
        renamed = path.with_name(f"damaged-{path.name}")
        try:
            discard(renamed)
            path.rename(renamed)
        except OSError:
            pass  # the next load finds it damaged again

    def _remove_leftovers(self) -> None:
        for torn in (self.folder / PIECES).glob(".*"):
            torn.unlink(missing_ok=True)
        for entry in self.folder.iterdir() if self.folder.is_dir() else ():
            match = _LEFTOVER.fullmatch(entry.name)
            if match and (int(match[1]) == os.getpid() or not psutil.pid_exists(int(match[1]))):
                discard(entry)

    def _is_sound(self, path: Path) -> bool:
        try:
            verified(path, with_pieces=True)
        except CheckpointError:
            return False
        return True


def _step_in(name: str | int) -> int | None:
    if isinstance(name, int):
        return name
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _read_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _lacks_symlinks(error: OSError) -> bool:
    return error.errno in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP}
