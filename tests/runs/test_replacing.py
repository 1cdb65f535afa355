"""Replacing a run: a kill at any time leaves the whole old or the whole new run, and keeps the user's own files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from envfleet.errors import SettingsError
from envfleet.runs.folder import RunFolder
from envfleet.runs.listing import runs_in
from envfleet.runs.lock import holder
from envfleet.runs.replacing import ENTRIES


def create(path: Path, **options: object) -> RunFolder:
    return RunFolder.create(path, env="E", algorithm="ppo", seed=7, **options)  # type: ignore[arg-type]


def fill(run: RunFolder, what: str) -> RunFolder:
    """Add files that replacing the run would remove."""
    run.write_config({"name": what})
    run.metrics.write_text(what)
    (run.checkpoints / f"step-{len(what)}").mkdir()
    (run.checkpoints / "last").symlink_to(f"step-{len(what)}")
    (run.checkpoints / "pieces").mkdir()
    (run.checkpoints / "pieces" / "rows-0-1").write_text(what)
    return run


def content(*folders: Path) -> dict[str, str]:
    """Return the content of every file and link below the folders."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            # Temporary files that were never renamed do no harm.
            if path.name != ".lock" and not re.fullmatch(r"\.(manifest\.json|config\.yaml)\.\d+", path.name):
                held = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else "folder"
                found[str(path)] = held
    return found


def test_everything_that_a_run_writes_is_replaced(tmp_path: Path) -> None:
    run = create(tmp_path / "run")
    paths = [getattr(run, name) for name in vars(RunFolder) if isinstance(getattr(RunFolder, name), property)]
    assert {path.name for path in paths if path.parent == run.path} | {"checkpoints"} == set(ENTRIES)


@pytest.mark.parametrize("apart", [False, True])
def test_the_old_run_stays_until_the_new_one_has_a_checkpoint(
    tmp_path: Path, apart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"checkpoint_dir": tmp_path / "states"} if apart else {}
    folders = (tmp_path / "run", tmp_path / "states")
    fill(create(tmp_path / "run", **options), "old")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    before = content(*folders)
    for _ in range(2):
        new = fill(create(tmp_path / "run", overwrite=True, **options), "newer")
        new.videos.mkdir()
        new.remove_if_untrained()
        assert content(*folders) == before
        assert "saved no checkpoint" in caplog.text
        assert holder(tmp_path / "run" / ".lock") is None
    new = fill(create(tmp_path / "run", overwrite=True, **options), "newer")
    new.forget_replaced()
    new.remove_if_untrained()
    after = content(*folders)
    assert set(after) == {name.replace("step-3", "step-5") for name in before}
    assert after[str(tmp_path / "run" / "notes.txt")] == "mine"
    assert new.metrics.read_text() == "newer"


def test_a_run_that_is_being_replaced_is_left_to_the_process_that_does_it(tmp_path: Path) -> None:
    fill(create(tmp_path / "run"), "old")
    new = create(tmp_path / "run", overwrite=True)
    new.metrics.write_text("newer")
    (summary,) = runs_in(tmp_path)
    assert summary.state == "running"
    assert RunFolder.open(tmp_path / "run").metrics.read_text() == "newer"
    with pytest.raises(SettingsError, match="in use by process"):
        create(tmp_path / "run", overwrite=True)
    new.remove_if_untrained()
    assert RunFolder.open(tmp_path / "run").metrics.read_text() == "old"


def test_a_checkpoint_folder_that_was_only_claimed_is_free_again(tmp_path: Path) -> None:
    fill(create(tmp_path / "run"), "old")
    before = content(tmp_path)
    create(tmp_path / "run", checkpoint_dir=tmp_path / "states", overwrite=True).remove_if_untrained()
    (tmp_path / "states").rmdir()  # empty
    assert content(tmp_path) == before


def test_a_folder_that_is_no_run_keeps_what_only_has_our_name(tmp_path: Path) -> None:
    (tmp_path / ".replaced").mkdir()
    with pytest.raises(SettingsError, match="is not a run"):
        RunFolder.open(tmp_path)
    assert (tmp_path / ".replaced").exists()


KILLED_ANYWHERE = """
import os, shutil, sys
from pathlib import Path
from envfleet.runs import manifest as module
from envfleet.runs.folder import RunFolder
from tests.runs.test_replacing import content, create, fill

os.fsync = lambda descriptor: None  # a killed process loses nothing that it gave to the system
module._git_commit, module.machine.describe = lambda: None, lambda **_: {}  # slow, and not the subject
module._code_digest = lambda: ""
CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "shutil.rmtree"}
apart = sys.argv[2] == "True"

def killed_after(events, work):
    \"\"\"Whether a process was killed before it had changed that many files.\"\"\"
    pid = os.fork()
    if not pid:
        left = events
        def hook(event, arguments):
            nonlocal left
            if event in CHANGES:
                left -= 1
                if left < 0:
                    os._exit(9)
        sys.addaudithook(hook)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9

def place(number):
    root = Path(sys.argv[1]) / str(number)
    return root / "run", ({"checkpoint_dir": root / "states"} if apart else {}), root

def prepare(number):
    path, options, root = place(number)
    run = create(path, **options)
    fill(run, "old")
    (path / "notes.txt").write_text("mine")
    return content(root)

def new_run(number):
    path, options, _ = place(number)
    run = create(path, overwrite=True, **options)
    fill(run, "newer")
    run.forget_replaced()

def shape(found, root):
    named = {name.removeprefix(str(root)): value.replace(str(root), "") for name, value in found.items()}
    return {name: value for name, value in named.items() if "manifest" not in name}

prepare(0); new_run(0)
whole = shape(content(place(0)[2]), place(0)[2])
kept = {"old": 0, "new": 0}
for events in range(1, 400):
    before = prepare(events)
    path, _, root = place(events)
    killed = killed_after(events, lambda: new_run(events))
    for more in (7 * events % 26, 11 * events % 26):  # and whoever puts it back is killed as well
        killed_after(more, lambda: RunFolder.open(path))
    RunFolder.open(path)
    after = content(root)
    kept["old" if after == before else "new"] += 1
    assert after == before or shape(after, root) == whole, (events, before, after)
    shutil.rmtree(root)
    if not killed:
        break
else:
    raise AssertionError("it never came to its end")
assert kept["old"] > 10 and kept["new"] > 1, kept
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it forks")
@pytest.mark.parametrize("apart", [False, True])
def test_a_kill_at_any_moment_leaves_the_old_run_or_the_new_one(tmp_path: Path, apart: bool) -> None:
    command = [sys.executable, "-c", KILLED_ANYWHERE, str(tmp_path), str(apart)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
