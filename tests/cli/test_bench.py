"""`envfleet bench demo`: measures every backend and number of environments, recommends one, draws a chart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from envfleet import cli
from envfleet.cli import scaling
from envfleet.cli.bench import Measured, recommended
from envfleet.runs.metrics import SHARES
from envfleet.training.measuring import Speed


def test_it_measures_recommends_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "bench.png"
    flags = ["--env-kwargs", "grid_size=8", "--n-envs", "1", "2", "--seconds", "1", "--picture", str(picture)]
    assert cli.main(["bench", "demo", *flags]) == 0
    shown = capsys.readouterr().out
    rows = re.findall(r"^(sequential|threads|processes) +(\d) +\d +[\d,]+ +[\d.]+ +[\d.]+", shown, re.MULTILINE)
    assert rows == [(backend, count) for backend in ("sequential", "threads", "processes") for count in "12"]
    assert re.search(r"recommended here: --n-envs [12] --backend (sequential|threads|processes)", shown)
    assert picture.read_bytes()[1:4] == b"PNG"


def test_an_environment_without_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env", "CartPole-v1", "--n-envs", "2", "--seconds", "0.5", "--picture", str(tmp_path / "p.png")]
    assert cli.main(["bench", "demo", *flags]) == 0
    assert "CartPole-v1 on" in capsys.readouterr().out


def test_fewer_environments_are_recommended_where_they_are_as_fast() -> None:
    slow, enough, best = (
        Measured("sequential", 1, 1, 500.0),
        Measured("threads", 4, 2, 960.0),
        Measured("processes", 16, 2, 1000.0),
    )
    assert recommended([slow, enough, best]) is enough
    assert recommended([slow, best]) is best
    assert best.seconds_per_step == pytest.approx(0.016)


def test_no_time_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "demo", "--seconds", "0"]) == 2
    assert "expected numbers above 0" in capsys.readouterr().err


def test_scaling_measures_collecting_learning_and_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "scaling-1.5"
    flags = ["--env", "CartPole-v1", "--n-envs", "1", "8", "--workers", "1", "2", "--seconds", "0.3"]
    assert cli.main(["bench", "scaling", *flags, "--output", str(output)]) == 0
    shown = capsys.readouterr().out
    assert "fastest:" in shown and "where the time of training goes" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scaling-1.5.json", "scaling-1.5.png"]
    data = json.loads((tmp_path / "scaling-1.5.json").read_text())
    points = data["points"]
    assert [(point["n_envs"], point["workers"]) for point in points] == [(1, 1), (8, 1), (8, 2)]
    for point in points:
        assert min(point["collecting"], point["learning"], point["training"]) > 0
        assert sum(point["shares"].values()) == pytest.approx(1.0, abs=0.05)
    alone, two = points[1:]
    gain = two["training"] / alone["training"]
    assert two["gains"]["training"] == {"speedup": pytest.approx(gain), "efficiency": pytest.approx(gain / 2)}
    assert (tmp_path / "scaling-1.5.png").read_bytes()[1:4] == b"PNG"


def test_files_and_words_of_scaling() -> None:
    for output in ("bench.json", "bench.png", "bench"):
        assert scaling._files(Path(output)) == (Path("bench.json"), Path("bench.png"))
    speed = Speed(1, 1, 1.0, 1.0, 1.0, dict.fromkeys(SHARES, 0.25))
    assert str([*scaling._report([speed])][-1]).startswith("\nfastest: 1 environment on 1 worker, 1 steps/s")


def test_scaling_needs_an_environment_for_each_worker(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "scaling", "--env", "CartPole-v1", "--n-envs", "1", "--workers", "2"]) == 2
    assert "each worker needs one" in capsys.readouterr().err
