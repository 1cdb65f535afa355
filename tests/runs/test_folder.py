"""Run folders: created, refused, replaced, locked and listed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from envfleet.errors import SettingsError
from envfleet.runs import folder as folder_module
from envfleet.runs import lock as lock_module
from envfleet.runs import manifest as manifest_module
from envfleet.runs.folder import RunFolder
from envfleet.runs.listing import runs_in
from envfleet.runs.lock import holder
from envfleet.runs.metrics import MetricsWriter


def create(path: Path | None = None, **options: object) -> RunFolder:
    return RunFolder.create(path, env="ALE/Pong-v5", algorithm="ppo", seed=7, **options)  # type: ignore[arg-type]


# ---- creating and opening ----


def test_a_run_gets_a_name_of_its_own(tmp_path: Path) -> None:
    runs = [create(root=tmp_path) for _ in range(3)]
    assert len({run.path for run in runs}) == 3
    assert re.fullmatch(r"ALE-Pong-v5__ppo__7__\d{8}-\d{6}(-\d)?", runs[0].path.name)
    assert runs[0].checkpoints == runs[0].path / "checkpoints"
    assert runs[0].checkpoints.is_dir()


def test_a_new_name_is_taken_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs may be started in the same second: neither may see the other's name as free."""
    monkeypatch.setattr(folder_module, "datetime", _StoppedClock)
    claimed = [folder_module._claimed_name(tmp_path / "runs", "CartPole-v1", "ppo", 1) for _ in range(3)]
    assert claimed == [f"CartPole-v1__ppo__1__{_StoppedClock.NOW}{end}" for end in ("", "-2", "-3")]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted(claimed)


class _StoppedClock:
    NOW = "20260101-000000"

    @classmethod
    def now(cls) -> type[_StoppedClock]:
        return cls

    @classmethod
    def astimezone(cls) -> type[_StoppedClock]:
        return cls

    @classmethod
    def strftime(cls, form: str) -> str:
        return cls.NOW


def test_threads_of_one_process_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the operating system's locks, so a second one must see that the first is taking it."""
    monkeypatch.setattr(lock_module, "_ATTEMPTS", 1)
    create(tmp_path / "run")
    take, both = lock_module.RunLock._take_file, threading.Barrier(2)

    def slowly(self: lock_module.RunLock) -> bool:
        taken = take(self)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # the other thread would come here too
        return taken

    monkeypatch.setattr(lock_module.RunLock, "_take_file", slowly)
    outcomes: list[object] = []

    def lock() -> None:
        try:
            outcomes.append(lock_module.RunLock(tmp_path / "run" / ".lock"))
        except SettingsError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=lock) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = [each for each in outcomes if isinstance(each, lock_module.RunLock)]
    assert len(held) == 1
    held[0].release()


def test_the_manifest_says_what_made_the_run(tmp_path: Path) -> None:
    manifest = json.loads(create(tmp_path / "run").manifest.read_text())
    assert (manifest["env"], manifest["algorithm"], manifest["seed"]) == ("ALE/Pong-v5", "ppo", 7)
    assert manifest["machine"]["python"].endswith(".".join(map(str, sys.version_info[:3])))
    assert set(manifest["machine"]["libraries"]) == {"gymnasium", "numba", "numpy", "torch"}
    assert manifest["envfleet"] == "0.1.0"
    assert manifest["command"] == sys.argv


def test_the_manifest_names_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert create(tmp_path / "a").read_manifest()["git"] is None
    for words in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "x", "--allow-empty"]):
        subprocess.run(["git", *words], check=True)
    git = create(tmp_path / "b").read_manifest()["git"]
    assert re.fullmatch("[0-9a-f]{40}", git["commit"])
    assert git["changed"] is False


def test_the_manifest_has_a_digest_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch("[0-9a-f]{64}", create(tmp_path / "run").read_manifest()["code"])
    package, digests = tmp_path / "package", []
    monkeypatch.setattr(manifest_module.machine, "__file__", str(package / "__init__.py"))
    for name, content in (("__init__.py", "1"), ("b/c.py", "2"), ("b/c.py", "3"), ("b/__pycache__/c.pyc", "4")):
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        digests.append(manifest_module._code_digest.__wrapped__())
    assert len(set(digests)) == 3 and digests[2] == digests[3]
    package.rename(tmp_path / "elsewhere")
    monkeypatch.setattr(manifest_module.machine, "__file__", str(tmp_path / "elsewhere" / "__init__.py"))
    assert manifest_module._code_digest.__wrapped__() == digests[-1]


def test_an_existing_folder_is_refused_with_the_ways_on(tmp_path: Path) -> None:
    create(tmp_path / "run")
    with pytest.raises(SettingsError) as error:
        create(tmp_path / "run")
    assert f"envfleet resume {tmp_path / 'run'}" in str(error.value)
    assert "--overwrite" in str(error.value)


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert create(tmp_path).manifest.is_file()


def test_overwriting_replaces_what_runs_write_and_nothing_else(tmp_path: Path) -> None:
    run = create(tmp_path / "run")
    run.metrics.write_text("old")
    (run.checkpoints / "step-3").mkdir()
    (run.path / "notes.txt").write_text("mine")
    again = create(tmp_path / "run", overwrite=True)
    assert not again.metrics.exists()
    assert list(again.checkpoints.iterdir()) == []
    assert (again.path / "notes.txt").read_text() == "mine"


def test_overwriting_leaves_a_folder_alone_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(SettingsError, match="is not a run, so --overwrite leaves it alone"):
        create(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "dear"


def test_checkpoints_can_live_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = create(tmp_path / "run", checkpoint_dir="elsewhere")
    assert not (run.path / "checkpoints").exists()
    assert RunFolder.open(run.path).checkpoints == run.checkpoints == tmp_path / "elsewhere"
    (run.checkpoints / "step-3").mkdir()
    (run.checkpoints / "mine").mkdir()
    create(tmp_path / "run", checkpoint_dir="elsewhere", overwrite=True).forget_replaced()
    assert {entry.name for entry in run.checkpoints.iterdir()} == {".run", "mine"}


def refused(path: Path | None, **options: object) -> str:
    with pytest.raises(SettingsError) as error:
        create(path, **options)
    return str(error.value)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_checkpoint_folder_belongs_to_one_run(tmp_path: Path, saved: bool, overwrite: bool) -> None:
    ours, states = tmp_path / "ours", tmp_path / "states"
    run = create(ours, checkpoint_dir=states)
    if saved:
        (states / "step-3").mkdir()
    before = sorted(tmp_path.rglob("*"))
    expected = f"the checkpoint folder {states} belongs to the run {ours}\nhint: give another --checkpoint-dir"
    for path in (tmp_path / "other", None):
        assert refused(path, root=tmp_path / "runs", checkpoint_dir=states, overwrite=overwrite) == expected
    assert sorted(tmp_path.rglob("*")) == before
    assert RunFolder.open(ours).checkpoints == run.checkpoints


def test_a_checkpoint_folder_without_checkpoints_is_free_once_its_run_is_gone(tmp_path: Path) -> None:
    create(tmp_path / "a", checkpoint_dir=tmp_path / "states")
    (tmp_path / "a").rename(tmp_path / "renamed")
    create(tmp_path / "b", checkpoint_dir=tmp_path / "states").remove_if_untrained()
    assert not (tmp_path / "states").exists()
    create(tmp_path / "c", checkpoint_dir=tmp_path / "states")


def test_checkpoints_of_a_run_that_is_gone_are_kept_for_it(tmp_path: Path) -> None:
    states = tmp_path / "states"
    create(tmp_path / "a", checkpoint_dir=states)
    (states / "step-3").mkdir()
    (tmp_path / "a").rename(tmp_path / "b")
    assert "belongs to the run" in refused(tmp_path / "c", checkpoint_dir=states, overwrite=True)
    assert f"{states} exists and is not empty\nhint: replace its" in refused(tmp_path / "a", checkpoint_dir=states)
    create(tmp_path / "b", checkpoint_dir=states, overwrite=True).forget_replaced()  # its manifest names them
    assert not (states / "step-3").exists()
    assert "belongs to the run" in refused(tmp_path / "a", checkpoint_dir=states, overwrite=True)


def test_checkpoints_of_an_older_version_name_no_run(tmp_path: Path) -> None:
    states = tmp_path / "states"
    create(tmp_path / "a", checkpoint_dir=states)
    (states / "step-3").mkdir()
    (states / ".run").unlink()
    assert "states belongs to another run" in refused(tmp_path / "b", checkpoint_dir=states, overwrite=True)
    create(tmp_path / "a", checkpoint_dir=states, overwrite=True).forget_replaced()
    assert not (states / "step-3").exists()


def test_of_two_runs_that_claim_a_checkpoint_folder_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = folder_module.claim

    def claimed_before(checkpoints: Path, run: Path) -> None:
        monkeypatch.setattr(folder_module, "claim", claim)
        create(tmp_path / "first", checkpoint_dir=checkpoints)
        claim(checkpoints, run)

    monkeypatch.setattr(folder_module, "claim", claimed_before)
    assert f"belongs to the run {tmp_path / 'first'}" in refused(tmp_path / "b", checkpoint_dir=tmp_path / "states")


def test_a_place_that_cannot_hold_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="which is a file, expected a folder"):
        create(tmp_path / "file")
    with pytest.raises(SettingsError, match="cannot be made: Not a directory"):
        create(tmp_path / "file" / "run")
    with pytest.raises(SettingsError, match=r"--checkpoint-dir .*file, which is a file, expected a folder"):
        create(tmp_path / "run", checkpoint_dir=tmp_path / "file")


def test_opening_what_is_no_run_names_those_near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"does not exist\nhint: `envfleet runs` lists"):
        RunFolder.open(tmp_path / "runs" / "x")
    create(tmp_path / "runs" / "cartpole-1")
    with pytest.raises(SettingsError, match=r"does not exist\nhint: there are .*cartpole-1"):
        RunFolder.open("runs/cartpol-1")
    with pytest.raises(SettingsError, match=r"is not a run: it has no manifest.json\nhint: there are .*cartpole-1"):
        RunFolder.open(tmp_path / "runs")


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of another user. The error is raised by hand, because root, who runs tests in containers, may do all."""
    folder, stat = tmp_path / "private", Path.stat
    folder.mkdir()

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if folder in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    return folder


def test_a_folder_of_another_user_is_named(private: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"the run folder .*private/deep/run cannot be made: Permission denied\nhint: "
    ):
        create(private / "deep" / "run")
    with pytest.raises(SettingsError, match=r"the run folder .*private cannot be read: Permission denied"):
        RunFolder.open(private)


def test_a_folder_of_another_user_does_not_hide_the_other_runs(private: Path) -> None:
    run = create(private.parent / "mine")
    assert [summary.path for summary in runs_in(private.parent)] == [run.path]


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    run = create(tmp_path / "run")
    run.manifest.write_text("{")
    with pytest.raises(SettingsError, match=r"manifest\.json cannot be read"):
        RunFolder.open(run.path)


@pytest.mark.parametrize("found", [2, 0, None])
def test_another_format_is_refused_with_the_version(tmp_path: Path, found: object) -> None:
    run = create(tmp_path / "run")
    run.manifest.write_text(json.dumps({**run.read_manifest(), "format": found, "envfleet": "9.8.7"}))
    with pytest.raises(SettingsError, match=rf"has format {found} \(it was made by Envfleet 9.8.7\).* reads format 1"):
        RunFolder.open(run.path)


def test_config_and_manifest_can_be_written_and_read(tmp_path: Path) -> None:
    run = create(tmp_path / "run", settings={"steps": 50})
    run.write_config({"steps": 100, "learning_rate": 1e-05, "hidden": [64, 64], "name": "Zürich"})
    assert list(run.read_config().items()) == [
        ("steps", 100), ("learning_rate", 1e-05), ("hidden", [64, 64]), ("name", "Zürich"),
    ]  # fmt: skip
    assert run.read_manifest()["settings"] == {"steps": 50}  # the settings it started with
    assert (run.logs.name, run.videos.name, run.report.name) == ("logs", "videos", "report")


# ---- the lock ----

HOLD = """
import sys
from pathlib import Path
from envfleet.runs import lock
if "{how}" == "by name":
    lock._fcntl = None
held = lock.RunLock(Path(sys.argv[1]) / ".lock")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["fcntl", "by name"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "by name":
        monkeypatch.setattr(lock_module, "_fcntl", None)
    return str(request.param)


@pytest.fixture
def other_process(tmp_path: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lock of tmp_path."""
    command = [sys.executable, "-c", HOLD.format(how=how), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_run_in_use_names_the_process_until_it_is_killed(
    tmp_path: Path, other_process: subprocess.Popen[str]
) -> None:
    run = RunFolder(tmp_path, tmp_path)
    assert holder(tmp_path / ".lock") == other_process.pid
    with pytest.raises(SettingsError, match=f"is in use by process {other_process.pid}\nhint: "):
        run.lock()
    other_process.kill()
    other_process.wait()
    assert holder(tmp_path / ".lock") is None
    with run.lock():
        assert holder(tmp_path / ".lock") == os.getpid()


def test_a_process_holds_a_run_once_and_looking_does_not_drop_it(tmp_path: Path, how: str) -> None:
    run = RunFolder(tmp_path, tmp_path)
    lock = run.lock()
    with pytest.raises(SettingsError, match=f"in use by process {os.getpid()}"):
        run.lock()
    assert holder(tmp_path / ".lock") == os.getpid()
    look = (
        "import sys, pathlib; from envfleet.runs import lock\n"
        f"if {how!r} == 'by name': lock._fcntl = None\n"
        "print(lock.holder(pathlib.Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", look, str(tmp_path / ".lock")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(os.getpid())
    lock.release()
    lock.release()
    assert holder(tmp_path / ".lock") is None
    run.lock().release()


def test_overwriting_a_run_in_use_is_refused(tmp_path: Path) -> None:
    run = create(tmp_path / "run")
    run.metrics.write_text("precious")
    with run.lock(), pytest.raises(SettingsError, match="in use by process"):
        create(tmp_path / "run", overwrite=True)
    assert run.metrics.read_text() == "precious"


# ---- the list ----


def test_the_list_says_how_far_and_how_good(tmp_path: Path) -> None:
    run = create(tmp_path / "a")
    run.write_config({"steps": 1000})
    with closing(MetricsWriter(run.metrics)) as writer:
        writer.write(100, {"rollout/ep_rew_mean": 1.5, "eval/mean_reward": 9.0})
        writer.write(200, {"rollout/ep_rew_mean": 2.5, "eval/mean_reward": 8.0})
        writer.write(300, {"rollout/ep_rew_mean": float("nan"), "time/fps": 3})
    with open(run.metrics, "ab") as file:
        file.write(b'{"step": 4')
    (tmp_path / "not a run").mkdir()
    os.utime(run.metrics, (1000, 1000))
    with run.lock():
        (summary,) = runs_in(tmp_path, now=lambda: 1042.5)
    assert (summary.path, summary.env, summary.algorithm, summary.seed) == (run.path, "ALE/Pong-v5", "ppo", 7)
    assert (summary.steps, summary.budget, summary.last_return, summary.best_evaluation) == (300, 1000, 2.5, 9.0)
    assert summary.state == "running"
    assert summary.age == 42.5
    assert runs_in(tmp_path, now=lambda: 900.0)[0].age == 0.0  # a clock that was set back


def test_a_run_is_finished_when_its_last_checkpoint_is_final(tmp_path: Path) -> None:
    run = create(tmp_path / "a")
    for name, target in (("last", "step-200"), ("final", "step-100")):
        (run.checkpoints / name).symlink_to(target)
    assert runs_in(tmp_path)[0].state == "stopped"
    (run.checkpoints / "last").unlink()
    (run.checkpoints / "last").symlink_to("step-100")
    assert runs_in(tmp_path)[0].state == "finished"


def test_the_list_begins_with_the_latest_and_passes_over_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, age in (("a", 500), ("b", 100), ("c", 300)):
        run = create(tmp_path / name)
        os.utime(run.manifest, (0, run.manifest.stat().st_mtime - age))
    (tmp_path / "c" / "manifest.json").write_text("[]")
    assert [summary.path.name for summary in runs_in(tmp_path)] == ["b", "a"]
    assert "c is left out" in caplog.text
    assert runs_in(tmp_path / "nowhere") == []


def test_the_command_is_recorded_without_the_address_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["envfleet", "train", "ppo", "--address", "10.0.0.1:6379", "--seed", "1", "--runtime_env=secret.yaml"]
    monkeypatch.setattr("sys.argv", command)
    folder = RunFolder.create(str(tmp_path / "run"), env="CartPole-v1", algorithm="ppo", seed=1)
    expected = ["envfleet", "train", "ppo", "--address", "...", "--seed", "1", "--runtime_env=..."]
    assert folder.read_manifest()["command"] == expected
