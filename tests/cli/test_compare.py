"""`envfleet compare`: its figures match an independent reading of metrics.jsonl."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet import cli
from tests.cli.conftest import train

FILES = ("comparison.png", "comparison_report.txt", "comparison.html", "comparison.json")


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run as `trained`, on two workers."""
    folder = tmp_path_factory.mktemp("threads") / "cartpole"
    assert train(folder, "--backend", "threads", "--workers", "2", "--acting", "central") == 0
    return folder


@pytest.fixture(scope="module")
def compared(trained: Path, threads: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    given = ["--sequential", str(trained), "--parallel", str(threads), "--output-dir", str(folder)]
    assert cli.main(["compare", *given, "--score", "21"]) == 0
    return folder


def figures_of(run: Path, score: float = 21) -> dict[str, Any]:
    """Return the expected figures of compare, computed independently of it."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [row for row in rows if "time/fps" in row]
    steps = [row["step"] for row in updates]
    seconds = np.cumsum([taken / row["time/fps"] for taken, row in zip(np.diff([0, *steps]), updates, strict=True)])
    ended = [(row, at) for row, at in zip(updates, seconds, strict=True) if row["rollout/ep_rew_mean"] is not None]
    settled = [
        (row, at) for row, at in ended if row["rollout/episodes"] >= min(100, updates[-1]["rollout/episodes"] / 2)
    ]
    reached = [(row["step"], at) for row, at in settled if row["rollout/ep_rew_mean"] >= score]
    memory = [row["system/memory_mb"] for row in updates if "system/memory_mb" in row]
    return {
        "steps": steps[-1],
        "seconds": seconds[-1],
        "steps_per_second": steps[-1] / seconds[-1],
        "episodes": updates[-1]["rollout/episodes"],
        "episodes_per_second": updates[-1]["rollout/episodes"] / seconds[-1],
        "updates": updates[-1]["train/n_updates"],
        "final_return": ended[-1][0]["rollout/ep_rew_mean"],
        "best_return": max(row["rollout/ep_rew_mean"] for row, _ in settled),
        "final_evaluation": next((row["eval/mean_reward"] for row in rows[::-1] if "eval/mean_reward" in row), None),
        "steps_to_score": reached[0][0] if reached else None,
        "seconds_to_score": reached[0][1] if reached else None,
        "peak_memory_mb": max(memory),
    }


def test_a_tilde_is_the_home_folder(
    trained: Path, threads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, run in (("one", trained), ("two", threads)):
        (tmp_path / name).symlink_to(run)
    assert cli.main(["compare", "~/one", "~/two", "--output-dir", "~/compared"]) == 0
    assert (tmp_path / "compared" / "comparison.json").is_file()


def test_the_figures_are_those_of_the_metrics(trained: Path, threads: Path, compared: Path) -> None:
    written = json.loads((compared / "comparison.json").read_text())
    assert [group["label"] for group in written["groups"]] == ["sequential", "parallel"]
    for group, run in zip(written["groups"], (trained, threads), strict=True):
        for name, value in figures_of(run).items():
            assert group[name] == (None if value is None else pytest.approx(value)), name
        assert group["score"] == 21 and group["memory_covers"] == "all processes" and group["cpu_percent"] is not None
    first, second = written["groups"]
    speeds = [figures_of(run)["steps_per_second"] for run in (trained, threads)]
    assert second["speedup"] == pytest.approx(speeds[1] / speeds[0])
    assert second["efficiency"] == pytest.approx(speeds[1] / speeds[0] / 2) and second["workers"] == 2
    assert first["speedup"] == first["efficiency"] == 1.0
    placement = json.loads((threads / "manifest.json").read_text())["placement"]
    assert placement == {"backend": "threads", "workers": 2, "acting": "central"}
    assert written["differences"].keys() == {"acting", "backend", "workers"}
    answers = {check["question"]: check["answer"] for check in written["checks"]}
    assert answers["Are the weights of runs of the same seed bit-identical?"] == "yes"
    assert answers["Did they make the same number of updates?"] == "yes"


@pytest.mark.proof  # the runs take real time, and a busy machine may not finish an update within it
def test_two_timed_runs_and_what_is_said_of_them(tmp_path: Path) -> None:
    """The whole example of the docs page: ten seconds on one core, ten on all cores, and a comparison."""
    runs = {name: tmp_path / "timed" / name for name in ("sequential", "parallel")}
    ten_seconds = ["--duration", str(10 / 3600), "--eval-every", "0", "--seed", "1", "--n-envs", "16"]
    for name, backend in (("sequential", "sequential"), ("parallel", "processes")):
        output = envfleet(
            "train", "ppo", "--env", "CartPole-v1", *ten_seconds, "--backend", backend, "--output-dir", runs[name]
        )
        assert "10 s" in output or "hours" in output, output
    out = tmp_path / "compared"
    report = envfleet(
        "compare", "--sequential", runs["sequential"], "--parallel", runs["parallel"], "--output-dir", out
    )
    assert "One seed proves nothing" in report and "Speed-up is against sequential." in report
    written = json.loads((out / "comparison.json").read_text())
    rows = {row[0]: row[1:] for row in Page((out / "comparison.html").read_text()).cells}
    for place, (group, run) in enumerate(zip(written["groups"], runs.values(), strict=True)):
        for name, value in figures_of(run, group["score"]).items():
            assert group[name] == (None if value is None else pytest.approx(value)), name
        assert group["cpu_percent"] > 0 and group["peak_memory_mb"] > 50 and group["workers"] == (1, 2)[place]
        assert rows["steps"][place] == f"{group['steps']:,.0f}"
        assert rows["steps/s"][place] == f"{group['steps_per_second']:,.0f}"
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "comparison_report.txt").read_text() in report
    first, second = (figures_of(run)["steps_per_second"] for run in runs.values())
    assert written["groups"][1]["speedup"] == pytest.approx(second / first)
    assert written["groups"][1]["efficiency"] == pytest.approx(second / first / 2)


def envfleet(*arguments: object) -> str:
    """Return the output of a command that runs in its own process."""
    command = [sys.executable, "-m", "envfleet", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_picture_has_both_groups(compared: Path) -> None:
    from matplotlib.image import imread

    drawn = imread(compared / "comparison.png")[:, :, :3]
    for colour in ((0x1F, 0x6F, 0xEB), (0xD1, 0x78, 0x2A)):
        assert np.all(np.abs(drawn - np.array(colour) / 255) < 0.02, axis=2).sum() > 200


class Page(HTMLParser):
    """The table, the embedded data and everything that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[list[str]] = []
        self.data, self.fetched, self.ids, self._inside = "", [], set(), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.fetched += [given[name] for name in ("src", "href", "data") if given.get(name)]
        self.ids |= {given["id"]} if given.get("id") else set()
        self._inside = tag if given.get("id") != "figures" else "figures"
        if tag == "tr":
            self.cells.append([])
        if tag in {"td", "th"}:
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "figures":
            self.data += data
        elif self._inside in {"td", "th"}:
            self.cells[-1][-1] += data


def test_the_page_is_whole_and_has_the_same_figures(compared: Path) -> None:
    text = (compared / "comparison.html").read_text()
    page = Page(text)
    assert page.fetched == [] and "@import" not in text and "url(http" not in text
    assert {"legend", "panels", "checks", "figures"} <= page.ids and "{{" not in text
    rows = {row[0]: row[1:] for row in page.cells}
    groups = json.loads((compared / "comparison.json").read_text())["groups"]
    assert rows[""] == ["sequential", "parallel"]
    assert rows["steps"] == [f"{group['steps']:,.0f}" for group in groups]
    assert rows["steps/s"] == [f"{group['steps_per_second']:,.0f}" for group in groups]
    assert rows["final return"] == [f"{group['final_return']:,.2f}" for group in groups]
    data = json.loads(page.data)
    assert [panel["title"] for panel in data["panels"]] == [
        "Return over steps",
        "Return over time",
        "Throughput",
        "Memory and CPU",
    ]
    for panel in data["panels"][:3]:
        assert [line["group"] for line in panel["lines"]] == [0, 1]
    for line, group in zip(data["panels"][0]["lines"], groups, strict=True):
        assert (line["x"][-1], line["y"][-1]) == (group["steps"], pytest.approx(group["final_return"], rel=1e-5))
        assert len(line["x"]) == len(line["y"])


def test_a_name_cannot_break_the_page(trained: Path, tmp_path: Path) -> None:
    for name in ("a", "<b>"):
        shutil.copytree(trained, tmp_path / name, symlinks=True)
    (tmp_path / "a" / "config.yaml").write_text(
        (tmp_path / "a" / "config.yaml").read_text().replace("network: auto", "network: </script><b>")
    )
    assert cli.main(["compare", str(tmp_path), "--output-dir", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "comparison.html").read_text()
    assert "</script><b>" not in text and text.count("</script>") == 2
    labels = [group["label"] for group in json.loads(Page(text).data)["groups"]]
    assert "network </script><b>" in labels


def test_the_files_go_beside_the_first_run(
    trained: Path, threads: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, run in (("one", trained), ("two", threads)):
        shutil.copytree(run, tmp_path / "first" / name if name == "one" else tmp_path / name, symlinks=True)
    assert cli.main(["compare", str(tmp_path / "first" / "one"), str(tmp_path / "two")]) == 0
    for name in FILES:
        assert (tmp_path / "first" / name).stat().st_size > 500
    out = capsys.readouterr().out
    assert out.startswith((tmp_path / "first" / "comparison_report.txt").read_text())
    assert "One seed proves nothing about returns" in out
    assert "A sceptic's questions" in out and "Speed-up is against sequential." in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "received no run, expected at least two"),
        (["RUN"], "received one run, expected at least two"),
        (["--sequential", "RUN"], "received --sequential without --parallel"),
        (["RUN", "--parallel", "RUN"], "expected one of the two ways"),
        (["RUN", "nowhere"], "the run folder nowhere does not exist"),
        (["RUN", "RUN", "--score", "nan"], "--score is nan, expected a number"),
    ],
)
def test_wrong_use_is_said(
    trained: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert cli.main(["compare", *(str(trained) if each == "RUN" else each for each in arguments)]) == 2
    assert message in capsys.readouterr().err
