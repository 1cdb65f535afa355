"""`envfleet bench demo`: measures every backend and number of environments, recommends one, draws a chart."""

from __future__ import annotations

import io
import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from envfleet import cli
from envfleet.cli import scaling
from envfleet.cli.bench import Measured, recommended
from envfleet.runs.metrics import SHARES
from envfleet.training import measuring
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


def speed_of(n_envs: int, workers: int, *, collecting: float = 1.0, learning: float = 1.0) -> Speed:
    shares = dict.fromkeys(SHARES, 0.25)
    return Speed(n_envs, workers, collecting, learning, 1.0, shares, rollout_steps=100 * n_envs)


def test_scaling_measures_collecting_learning_and_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four environments are one group, so one worker steps them, whatever number is given."""
    monkeypatch.setattr(scaling, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr(Speed, "least_seconds", 0.0)
    output = tmp_path / "scaling-1.5"
    flags = ["--env", "CartPole-v1", "--n-envs", "1", "4", "8", "--workers", "1", "2", "--seconds", "0.3"]
    assert cli.main(["bench", "scaling", *flags, "--output", str(output)]) == 0
    shown = capsys.readouterr().out
    assert "fastest:" in shown and "where the time of training goes" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scaling-1.5.json", "scaling-1.5.png"]
    data = json.loads((tmp_path / "scaling-1.5.json").read_text())
    points = data["points"]
    assert [(point["n_envs"], point["workers"]) for point in points] == [(1, 1), (4, 1), (8, 1), (8, 2)]
    assert data["left_out"] == ["left out: 4 environments on 2 workers; training uses 1 worker for them"]
    assert data["left_out"][0] in shown
    assert re.findall(r"^ +(\d) +(\d) .*× ", shown, re.MULTILINE) == [("1", "1"), ("4", "1"), ("8", "1"), ("8", "2")]
    for point in points:
        assert min(point["collecting"], point["learning"], point["training"]) > 0
        assert sum(point["shares"].values()) == pytest.approx(1.0, abs=0.05)
    alone, two = points[2:]
    gain = two["training"] / alone["training"]
    assert two["gains"]["training"] == {"speedup": pytest.approx(gain), "efficiency": pytest.approx(gain / 2)}
    assert (tmp_path / "scaling-1.5.png").read_bytes()[1:4] == b"PNG"


def test_the_table_of_scaling_has_every_gain() -> None:
    results = [speed_of(256, 1), speed_of(256, 2, collecting=1.5, learning=1.0)]
    console = Console(width=scaling.WIDTH, file=io.StringIO(), highlight=False)
    console.print(next(scaling._report(results)))
    heading, _, row = map(str.rstrip, console.file.getvalue().splitlines())  # type: ignore[attr-defined]
    assert heading.split() == [
        "envs", "workers", "collecting", "speed-up", "learning", "speed-up", "training", "speed-up"
    ]  # fmt: skip
    assert row.split() == ["256", "2", "2", "1.50×", "75%", "1", "1.00×", "50%", "1", "1.00×", "50%"]
    assert len(row) <= len(heading) <= 81  # hardly more than a terminal; a pipe gets scaling.WIDTH


def test_a_point_that_would_exceed_the_time_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, measured = SimpleNamespace(seconds=0.0), []

    def measure(parts: Any, seconds: float) -> Speed:
        found = speed_of(*parts, collecting=400.0, learning=20.0)  # 4 s and 60 s for 400 steps, 4 environments
        measured.append(seconds)
        clock.seconds += found.least_seconds
        return found

    monkeypatch.setattr(scaling, "time", SimpleNamespace(perf_counter=lambda: clock.seconds))
    monkeypatch.setattr(measuring, "assembled", lambda settings: nullcontext(settings))
    monkeypatch.setattr(measuring, "measure_speed", measure)
    points = scaling._Points(4, 100.0)
    for n_envs, workers in ((1, 1), (4, 1), (4, 2), (16, 1)):
        points.measure(Fleets(n_envs, workers), n_envs, workers)  # type: ignore[arg-type]
    assert [each.n_envs for each in points.results] == [1, 4]
    assert points.left_out == [
        "left out: 4 environments on 2 workers; they would take about 64.0 s, and 20.0 of 100 s are left (--seconds)",
        "left out: 16 environments on 1 worker; they would take about 256.0 s, and 20.0 of 100 s are left (--seconds)",
    ]
    assert measured == [pytest.approx(60 / 4), pytest.approx((60 - 16) / 3)]


class Fleets(tuple[int, int]):
    """Parts of a training run, as far as they are looked at."""

    __slots__ = ()

    def __new__(cls, n_envs: int, workers: int) -> Fleets:
        return super().__new__(cls, (n_envs, workers))

    @property
    def fleet(self) -> SimpleNamespace:
        return SimpleNamespace(workers=self[1])


def test_files_and_words_of_scaling() -> None:
    for output in ("bench.json", "bench.png", "bench"):
        assert scaling._files(Path(output)) == (Path("bench.json"), Path("bench.png"))
    speed = speed_of(1, 1)
    assert str([*scaling._report([speed])][-1]).startswith("\nfastest: 1 environment on 1 worker, 1 steps/s")


def test_scaling_needs_an_environment_for_each_worker(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "scaling", "--env", "CartPole-v1", "--n-envs", "1", "--workers", "2"]) == 2
    assert "each worker needs one" in capsys.readouterr().err
