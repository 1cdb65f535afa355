"""The folder of a run: its paths, its manifest and its lock."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from envfleet.errors import SettingsError
from envfleet.paths import expanded
from envfleet.runs.checkpoint_owner import claim, refuse_other_owner, release
from envfleet.runs.durable import discard, write_whole, writing
from envfleet.runs.lock import RunLock
from envfleet.runs.manifest import new_manifest, refuse_other_format
from envfleet.runs.replacing import ENTRIES, keep_new, move_aside, recover, states_in
from envfleet.settings import read_settings_file
from envfleet.settings.files import parse_json

__all__ = ["RunFolder", "named_runs", "run_paths"]


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run, all absolute because an environment may change the working directory.

    Make one with `create` or `open`.
    """

    path: Path
    checkpoints: Path  # `checkpoints/` in it, unless the run was given another folder
    made: tuple[Path, ...] = ()  # parent folders that were created for it, nearest first
    # If `create` replaces a run, it takes the lock and keeps it; without a lock, `recover` puts the old run back.
    held: RunLock | None = field(default=None, compare=False, repr=False)
    typed: Path | None = None  # as the user gave it

    @property
    def shown(self) -> Path:
        """The path as the user gave it, for messages."""
        return self.path if self.typed is None else self.typed

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def order(self) -> Path:
        return self.path / "order.jsonl"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def videos(self) -> Path:
        return self.path / "videos"

    @property
    def report(self) -> Path:
        return self.path / "report"

    @classmethod
    def create(
        cls,
        path: str | Path | None = None,
        *,
        env: str,
        algorithm: str,
        seed: int,
        root: str | Path = "runs",
        overwrite: bool = False,
        checkpoint_dir: str | Path | None = None,
        base: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        libraries: Mapping[str, str] | None = None,
    ) -> RunFolder:
        """Create a run folder with its manifest, at `path` or under a new name in `root`.

        The manifest records the initial `settings`; a resume is checked against them. It also records the versions of
        `libraries`, beside those that every run needs.

        With `overwrite`, the old run is moved aside until `forget_replaced` or `remove_if_untrained` is called.
        Relative paths start from `base`, by default the current folder.
        """
        base = base or Path.cwd()
        elsewhere = None if checkpoint_dir is None else base / expanded(checkpoint_dir)
        given, root = None if path is None else expanded(path), expanded(root)
        manifest = new_manifest(env, algorithm, seed, elsewhere, settings, libraries or {})
        try:
            parents = (base / root / "run" if given is None else base / given).parents
            made = tuple(parent for parent in parents if not parent.exists())
            if elsewhere is not None:
                refuse_other_owner(elsewhere, None if given is None else base / given)
        except OSError as error:
            raise _cannot_be_made(given or root, error) from error
        typed = root / _claimed_name(base / root, env, algorithm, seed) if given is None else given
        folder = base / typed
        run = cls(folder, elsewhere or folder / "checkpoints", made, typed=typed)
        try:
            recover(folder)
            run = replace(run, held=run._make_room(overwrite=overwrite))
            folder.mkdir(parents=True, exist_ok=True)
            run.checkpoints.mkdir(parents=True, exist_ok=True)
            if elsewhere is not None:
                claim(elsewhere, folder)
            write_whole(run.manifest, (json.dumps(manifest, indent=2) + "\n").encode())
        except BaseException as error:
            if run.held is not None:
                run.remove_if_untrained()
            if not isinstance(error, OSError):
                raise
            raise _cannot_be_made(typed, error) from error
        return run

    @classmethod
    def refuse_taken(
        cls,
        path: str | Path | None,
        *,
        base: Path,
        overwrite: bool = False,
        checkpoint_dir: str | Path | None = None,
    ) -> None:
        """Raise a SettingsError if `create` would refuse these folders. Changes nothing."""
        folder = None if path is None else base / expanded(path)
        elsewhere = None if checkpoint_dir is None else base / expanded(checkpoint_dir)
        if elsewhere is not None:
            refuse_other_owner(elsewhere, folder)
        if path is not None and folder is not None:
            cls(folder, elsewhere or folder / "checkpoints", typed=expanded(path))._is_taken(overwrite=overwrite)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open the folder of an existing run."""
        typed = expanded(path)
        folder = typed.absolute()
        try:
            recover(folder)
            is_run, exists = (folder / "manifest.json").is_file(), folder.is_dir()
        except OSError as error:
            raise SettingsError(f"the run folder {typed} cannot be read: {error.strerror or error}") from error
        if not is_run:
            what = "is not a run: it has no manifest.json" if exists else "does not exist"
            raise SettingsError(f"the run folder {typed} {what}", hint=_near_runs(typed))
        manifest = cls(folder, folder).read_manifest()
        refuse_other_format(typed, manifest)
        elsewhere = manifest.get("checkpoint_dir")
        if not isinstance(elsewhere, str | None):
            raise SettingsError(f"{typed / 'manifest.json'} says checkpoint_dir: {elsewhere!r}, expected a path")
        return cls(folder, folder / (elsewhere or "checkpoints"), typed=typed)

    def lock(self) -> RunLock:
        """Lock the run for this process. Raises a SettingsError with the pid if a live process holds the lock."""
        if self.held is not None:
            return self.held
        try:
            return RunLock(self.path / ".lock")
        except OSError as error:
            raise SettingsError(
                f"the run folder {self.shown} cannot be written to: {error.strerror or error}"
            ) from error

    def write_config(self, settings: Mapping[str, Any]) -> None:
        """Write the resolved settings, as returned by `Settings.to_json`."""
        import yaml

        content = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True).encode()
        with writing("the settings", self.config):
            write_whole(self.config, content)

    def read_config(self) -> dict[str, Any]:
        return read_settings_file(self.config)

    def read_manifest(self) -> dict[str, Any]:
        try:
            content = parse_json(self.manifest.read_text())
        except (OSError, ValueError) as error:
            raise SettingsError(f"{self.manifest} cannot be read: {error}") from error
        if not isinstance(content, dict):
            raise SettingsError(f"{self.manifest} holds a {type(content).__name__}, expected a mapping")
        return content

    def update_manifest(self, **changes: Any) -> None:
        """Add entries to the manifest that are known only after the run has started."""
        content = {**self.read_manifest(), **changes}
        with writing("the manifest", self.manifest):
            write_whole(self.manifest, (json.dumps(content, indent=2) + "\n").encode())

    def forget_replaced(self) -> None:
        """Delete the replaced run for good. Called once this run has saved a checkpoint."""
        if self.held is not None:
            keep_new(self.path)

    def remove_if_untrained(self) -> None:
        """Remove a run that ended before its first metrics, so that its name is free again.

        A run that replaces another one is removed, and the old one put back, unless it has saved a checkpoint.
        """
        if self.held is not None:
            self.held.release()
            recover(self.path)
            release(self.checkpoints, self.path)
            if self.manifest.exists():
                return
        elif states_in(self.checkpoints) or (self.metrics.exists() and self.metrics.stat().st_size):
            return
        for entry in (*(self.path / name for name in ENTRIES), self.path / ".lock"):
            discard(entry)
        release(self.checkpoints, self.path)
        for folder in (self.checkpoints, self.path, *self.made):
            if folder.is_dir() and not _entries(folder):
                folder.rmdir()

    def _is_taken(self, *, overwrite: bool) -> bool:
        """Whether the folder has a run that `overwrite` replaces. Raises a SettingsError if it must stay."""
        if self.path.exists() and not self.path.is_dir():
            raise SettingsError(f"got --output-dir {self.shown}, which is a file, expected a folder")
        there = [entry for entry in self.path.iterdir() if entry.name != ".lock"] if self.path.exists() else []
        if not there and not states_in(self.checkpoints):
            return False
        if not overwrite and there:
            resume = f"envfleet resume {shlex.quote(str(self.shown))}"
            raise SettingsError(
                f"{self.shown} exists and is not empty",
                hint=f"continue it: `{resume}`; replace it: --overwrite; or give another folder",
            )
        if not overwrite:  # checkpoints in a separate folder, of a run whose folder was deleted
            raise SettingsError(
                f"{self.checkpoints} exists and is not empty",
                hint="replace its checkpoints: --overwrite; or give another --checkpoint-dir",
            )
        if there and not self.manifest.exists():
            raise SettingsError(
                f"{self.shown} is not a run, so --overwrite leaves it alone",
                hint="give a folder that is new or empty, or remove it yourself",
            )
        return True

    def _make_room(self, *, overwrite: bool) -> RunLock | None:
        """Refuse an occupied folder or, with `overwrite`, move the old run aside. Touches only files that runs write.

        Returns the lock of the old run in the second case.
        """
        if not self._is_taken(overwrite=overwrite):
            return None
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self.lock()
        try:
            move_aside(self.path, self.checkpoints)
        except BaseException:
            lock.release()
            recover(self.path)
            raise
        return lock


def named_runs(place: str | Path) -> list[Path]:
    """The run at `place`, or all runs in that folder. `place` itself if there is neither, so that opening it fails."""
    path = expanded(place)
    return [path] if _is_run(path) else run_paths(path) or [path]


def run_paths(root: Path) -> list[Path]:
    """Runs directly under `root`, by name."""
    return sorted(path for path in _entries(root) if _is_run(path))


def _is_run(path: Path) -> bool:
    try:
        return (path / "manifest.json").is_file()
    except OSError:  # e.g. a private folder of another user
        return False


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _cannot_be_made(folder: Path, error: OSError) -> SettingsError:
    return SettingsError(
        f"the run folder {folder} cannot be made: {error.strerror or error}",
        hint="give a folder that can be written to, with --output-dir",
    )


def _claimed_name(root: Path, env: str, algorithm: str, seed: int) -> str:
    """Make a folder with a new name in `root`, so that no other run takes the name."""
    now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    plain_env = re.sub(r"[^\w.-]+", "-", env).strip("-.") or "env"
    name = f"{plain_env}__{algorithm}__{seed}__{now}"
    numbered = [name, *(f"{name}-{number}" for number in range(2, 1000))]  # for runs started in the same second
    for candidate in numbered:
        try:
            (root / candidate).mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _cannot_be_made(root / candidate, error) from error
        return candidate
    raise SettingsError(f"{root} has too many runs named {name}", hint="name a folder, with --output-dir")


def _near_runs(folder: Path) -> str:
    try:
        roots = (folder,) if run_paths(folder) else (folder.parent, Path("runs"))
        found = {run.name: run for root in roots for run in run_paths(root)}
    except OSError:  # the message is about the folder, not about its neighbours
        found = {}
    near = difflib.get_close_matches(folder.name, found, n=3, cutoff=0.4) or sorted(found)[-3:]
    return f"there are {', '.join(str(found[name]) for name in near)}" if near else "`envfleet runs` lists all runs"
