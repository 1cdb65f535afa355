"""`envfleet runs`: a table for people, a list for programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from envfleet import cli
from envfleet.runs.folder import RunFolder


def test_the_table_fits_and_says_how_far(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.parent)
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["runs", "."]) == 0
    heading, row = capsys.readouterr().out.rstrip().splitlines()
    assert heading.split() == ["run", "env", "algo", "state", "seed", "steps", "done", "return", "best", "age"]
    assert row.split()[:7] == ["cartpole", "CartPole-v1", "ppo", "finished", "1", "512", "100%"]
    assert max(len(heading), len(row)) <= 80


@pytest.fixture
def long_name(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "envfleet-GameBoy-v0__ppo__1234567890__2026-11-17_00-51-09"
    shutil.copytree(trained, tmp_path / name, symlinks=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return name


def test_a_pipe_gets_whole_names_on_one_line_each(long_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", "."]) == 0
    _, row = capsys.readouterr().out.rstrip("\n").split("\n")
    assert row.split()[0] == long_name
    assert row.split()[-2:] == ["0", "s"] or row.split()[-1] in ("s", "min", "h", "d")


def test_a_terminal_gets_lines_that_fit(
    long_name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    assert cli.main(["runs", "."]) == 0
    heading, row = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).rstrip("\n").split("\n")
    shown = row.split()[0]
    beginning, end = shown.split("…")
    assert long_name.startswith(beginning) and long_name.endswith(end) and len(end) >= 4
    assert max(len(heading.rstrip()), len(row.rstrip())) <= 80


def table(columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that `envfleet runs` shows in a terminal of this width."""
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["runs"]) == 0
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).rstrip("\n").split("\n")
    assert max(len(line.rstrip()) for line in lines) <= columns
    return lines


@pytest.fixture
def default_names(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Two runs that differ in the seed only, in the folder `runs` of the current one."""
    names = {f"CartPole-v1__ppo__{seed}__20261118-110100" for seed in (1, 2)}
    for name in names:
        shutil.copytree(trained, tmp_path / "runs" / name, symlinks=True)
        manifest = tmp_path / "runs" / name / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "seed": int(name.split("__")[2])}))
        long_ago = time.time() - 40.5 * 86400  # "40 d" or "41 d", however slow the test is
        os.utime(RunFolder.open(tmp_path / "runs" / name).metrics, (long_ago, long_ago))
    monkeypatch.chdir(tmp_path)
    return names


def test_80_columns_have_room_for_default_names(
    default_names: set[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, heading, *rows = table(80, capsys, monkeypatch)
    assert folder == "in runs/"
    assert heading.split() == ["run", "state", "steps", "done", "return", "best", "age"]  # names have the others
    assert {row.split()[0] for row in rows} == default_names


def test_a_wide_terminal_shows_everything(
    default_names: set[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heading, *rows = table(120, capsys, monkeypatch)
    assert heading.split() == ["run", "env", "algo", "state", "seed", "steps", "done", "return", "best", "age"]
    assert {row.split()[0] for row in rows} == {f"runs/{name}" for name in default_names}


def test_a_name_that_says_nothing_keeps_the_other_columns(
    default_names: set[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path("runs") / min(default_names), Path("runs") / "third", symlinks=True)
    _, heading, *rows = table(80, capsys, monkeypatch)
    assert heading.split() == ["run", "env", "state", "steps", "return", "best"]
    assert {row.split()[1] for row in rows} == {"CartPole-v1"}
    shown = {row.split()[0] for row in rows}
    assert len(shown) == 3  # the ends of names tell them apart
    assert all("…" in name for name in shown - {"third"})


def test_a_run_that_goes_on_and_one_that_stopped(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("going", "stopped"):
        shutil.copytree(trained, tmp_path / name, symlinks=True)
        (tmp_path / name / "checkpoints" / "final").unlink()
    with RunFolder.open(tmp_path / "going").lock():
        assert cli.main(["runs", str(tmp_path), "--json"]) == 0
    listed = {Path(run["path"]).name: run for run in json.loads(capsys.readouterr().out)}
    assert {name: run["state"] for name, run in listed.items()} == {"going": "running", "stopped": "stopped"}
    assert listed["going"]["steps"] == listed["going"]["budget"] == 512
    assert listed["going"]["best_evaluation"] > 0


def test_one_run(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["runs", str(trained), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert Path(run["path"]) == trained


def test_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["runs"]) == 0
    assert capsys.readouterr().out == "there are no runs in runs\nhint: envfleet train ppo --env CartPole-v1\n"
    assert cli.main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert cli.main(["runs", "elsewhere"]) == 2
    assert "there is no folder elsewhere" in capsys.readouterr().err
