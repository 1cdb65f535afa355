"""`envfleet plot`: a chart of metrics.jsonl. Also random play and episode counts in a run's output."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet import cli
from envfleet.runs import plot
from envfleet.runs.folder import RunFolder
from envfleet.runs.metrics import read_metrics
from tests.cli.conftest import SMALL, train
from tests.runs.making import make_run


def _picture(path: Path) -> Any:
    from matplotlib.image import imread

    return imread(path)


def test_one_run_is_drawn_into_its_report(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curve.png"
    assert cli.main(["plot", str(trained), "--output", str(picture)]) == 0
    assert capsys.readouterr().out == f"plot: {picture}\n"
    drawn = _picture(picture)
    blue = np.all(np.abs(drawn[:, :, :3] - np.array([0x1F, 0x6F, 0xEB]) / 255) < 0.02, axis=2)
    assert drawn.shape[:2] == (504, 900) and blue.sum() > 200  # the curve itself


def test_several_runs_are_drawn_together(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plot", str(trained), str(trained)]) == 2
    assert "received 2 runs and no --output" in capsys.readouterr().err
    assert cli.main(["plot", str(trained), str(trained), "--output", str(tmp_path / "two.svg")]) == 0
    drawn = (tmp_path / "two.svg").read_text()
    assert "#1f6feb" in drawn and "#d1782a" in drawn  # one colour per run


def test_a_folder_of_runs_stands_for_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for seed in (1, 2):
        make_run(tmp_path / f"seed-{seed}", seed=seed)
    make_run(tmp_path / "empty", returns=())
    assert cli.main(["plot", str(tmp_path), "--output", str(tmp_path / "all.svg")]) == 0
    assert "ppo, mean of seeds 1, 2 (band: lowest to highest)" in _texts(tmp_path / "all.svg")
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{tmp_path / 'empty'} is left out: no episode of ")
    capsys.readouterr()
    assert cli.main(["plot", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"plot: {tmp_path / 'learning.png'}\n"
    assert (tmp_path / "learning.png").read_bytes()[1:4] == b"PNG"


def test_a_folder_without_a_run_that_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "runs" / "empty", returns=())
    assert cli.main(["plot", str(tmp_path / "runs")]) == 2
    assert "none of the 1 runs in" in capsys.readouterr().err
    (tmp_path / "nothing").mkdir()
    assert cli.main(["plot", str(tmp_path / "nothing")]) == 2
    assert "is not a run: it has no manifest.json" in capsys.readouterr().err


def _copy(trained: Path, folder: Path, *, times: float = 1.0, **changes: Any) -> Path:
    """Copy the run with changed settings, and with its returns multiplied by `times`."""
    shutil.copytree(trained, folder, symlinks=True)
    run = RunFolder.open(folder)
    run.write_config({**run.read_config(), **changes})
    rows = [{**row, "time": 0} for row in read_metrics(run.metrics)]
    for row in rows:
        row |= {name: times * row[name] for name in row if name.endswith(("ep_rew_mean", "mean_reward"))}
    run.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def _texts(picture: Path) -> list[str]:
    """Return the texts of an SVG, which stores each text in a comment beside its glyphs."""
    return re.findall(r"<!-- (.*?) -->", picture.read_text())


@pytest.fixture
def seeds(trained: Path, tmp_path: Path) -> list[str]:
    """Three runs that differ in seed and backend."""
    others = [_copy(trained, tmp_path / f"seed-{seed}", times=seed, seed=seed, backend="threads") for seed in (2, 3)]
    return [str(path) for path in (trained, *others)]


def test_seeds_become_a_mean_in_a_band(seeds: list[str], tmp_path: Path) -> None:
    assert cli.main(["plot", *seeds, "--output", str(tmp_path / "seeds.svg")]) == 0
    drawn = tmp_path / "seeds.svg"
    assert "ppo, mean of seeds 1, 2, 3 (band: lowest to highest)" in _texts(drawn)
    assert "evaluation (lowest to highest)" in _texts(drawn)
    assert "#d1782a" not in drawn.read_text()  # one colour
    assert "FillBetweenPolyCollection" in drawn.read_text() or "PolyCollection" in drawn.read_text()
    assert cli.main(["plot", *seeds, "--output", str(tmp_path / "apart.svg"), "--apart"]) == 0
    assert {"cartpole", "seed-2", "seed-3", "evaluation"} <= set(_texts(tmp_path / "apart.svg"))


def test_the_mean_of_seeds_is_their_mean(seeds: list[str]) -> None:
    curves = [plot._Curve.of(path) for path in seeds]
    (group,) = plot._by_seed(curves)
    common = plot._common(group)
    assert common is not None
    steps, own = curves[0].points("rollout/ep_rew_mean")
    assert common[0].tolist() == steps.tolist()
    np.testing.assert_allclose(common[1].mean(axis=0), 2 * own)
    np.testing.assert_allclose(common[1].max(axis=0), 3 * own)


def test_other_settings_and_environments_are_drawn_apart(trained: Path, seeds: list[str], tmp_path: Path) -> None:
    slow = str(_copy(trained, tmp_path / "slow", learning_rate=1e-9, seed=7))
    other = _copy(trained, tmp_path / "other", env="Acrobot-v1", seed=8)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "env": "Acrobot-v1"}))
    assert cli.main(["plot", *seeds, slow, str(other), "--output", str(tmp_path / "all.svg")]) == 0
    texts = _texts(tmp_path / "all.svg")
    assert "CartPole-v1, Acrobot-v1" in texts  # the title
    assert {"CartPole-v1: slow", "Acrobot-v1: other"} <= set(texts)


def test_own_environments_with_the_same_name_are_told_apart(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / f"{module}-{seed}", seed=seed, env=f"{module}:make", manifest={"env": "make"})
        for module in ("one", "two")
        for seed in (1, 2)
    ]
    assert cli.main(["plot", *map(str, runs), "--output", str(tmp_path / "both.svg")]) == 0
    mean = "ppo, mean of seeds 1, 2 (band: lowest to highest)"
    assert {"make", f"one:make: {mean}", f"two:make: {mean}"} <= set(_texts(tmp_path / "both.svg"))


def test_a_folder_whose_name_begins_with_an_underscore_is_in_the_legend(tmp_path: Path) -> None:
    run = make_run(tmp_path / "_run")  # without evaluations, so nothing else is in the legend
    assert cli.main(["plot", str(run), "--output", str(tmp_path / "curve.svg")]) == 0
    assert "_run" in _texts(tmp_path / "curve.svg")


def test_steps_at_the_axis_are_exact(trained: Path, tmp_path: Path) -> None:
    values = [0, 250, 2500, 5000, 7500, 12_500, 999_999, 1_250_000, 2e9]
    assert [plot.steps_text(value) for value in values] == [
        "0", "250", "2.5k", "5k", "7.5k", "12.5k", "999.999k", "1.25M", "2G",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("output", "message"), [("curve.txt", "expected a name that ends in .png"), ("x.png", "there is nothing to draw")]
)
def test_what_cannot_be_drawn_is_said(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, message: str
) -> None:
    run = trained
    if output == "x.png":  # a run in which no episode has ended
        run = tmp_path / "short"
        assert train(run, "--env", "Pendulum-v1", "--steps", "64", "--rollout-steps", "8", "--eval-every", "0") == 0
    assert cli.main(["plot", str(run), "--output", str(tmp_path / output)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / output).exists()


def test_a_run_says_its_episodes_and_compares_with_random_play(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--output-dir", str(tmp_path / "run"), "--verbose", "--random-steps", "300", "--eval-every", "0"]
    assert cli.main(["train", "ppo", *SMALL, *flags]) == 0
    output = capsys.readouterr().err
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert rows[0]["step"] == 0 and 10 < rows[0]["random/ep_rew_mean"] < 40
    assert (
        f"random play  {rows[0]['random/ep_rew_mean']:.1f} (mean of {rows[0]['random/episodes']:.0f} episodes)"
        in output
    )
    episodes = [line for line in output.splitlines() if line.startswith("episode ")]
    assert len(episodes) == rows[-1]["rollout/episodes"]
    assert f"last 10 {rows[-1]['rollout/ep_rew_mean_10']:.2f}" in episodes[-1]
    assert "in 4 environments (" in output and "closed 4 environments" in output


def test_groups_of_seeds_are_told_apart_by_their_settings(trained: Path, seeds: list[str], tmp_path: Path) -> None:
    slow = [str(_copy(trained, tmp_path / f"slow-{seed}", learning_rate=0.5, seed=seed)) for seed in (1, 2)]
    assert cli.main(["plot", *seeds, *slow, "--output", str(tmp_path / "both.svg")]) == 0
    texts = _texts(tmp_path / "both.svg")
    assert "learning_rate 0.001, mean of seeds 1, 2, 3 (band: lowest to highest)" in texts
    assert "learning_rate 0.5, mean of seeds 1, 2 (band: lowest to highest)" in texts
