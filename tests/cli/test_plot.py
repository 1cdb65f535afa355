"""`envfleet plot`: a picture of what metrics.jsonl has; and random play and episodes in what a run says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet import cli
from envfleet.runs.metrics import read_metrics
from tests.cli.conftest import SMALL, train


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
    assert "#1f6feb" in drawn and "#d1782a" in drawn  # a colour each


@pytest.mark.parametrize(
    ("output", "told"), [("curve.txt", "expected a name that ends in .png"), ("x.png", "there is nothing to draw")]
)
def test_what_cannot_be_drawn_is_said(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, told: str
) -> None:
    run = trained
    if output == "x.png":  # a run of which no episode has ended
        run = tmp_path / "short"
        assert train(run, "--env", "Pendulum-v1", "--steps", "64", "--rollout-steps", "8", "--eval-every", "0") == 0
    assert cli.main(["plot", str(run), "--output", str(tmp_path / output)]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / output).exists()


def test_a_run_says_its_episodes_and_compares_with_random_play(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--output-dir", str(tmp_path / "run"), "--verbose", "--random-steps", "300", "--eval-every", "0"]
    assert cli.main(["train", "ppo", *SMALL, *flags]) == 0
    told = capsys.readouterr().err
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert rows[0]["step"] == 0 and 10 < rows[0]["random/ep_rew_mean"] < 40
    assert (
        f"random play  {rows[0]['random/ep_rew_mean']:.1f} (mean of {rows[0]['random/episodes']:.0f} episodes)" in told
    )
    episodes = [line for line in told.splitlines() if line.startswith("episode ")]
    assert len(episodes) == rows[-1]["rollout/episodes"]
    assert f"last 10 {rows[-1]['rollout/ep_rew_mean_10']:.2f}" in episodes[-1]
    assert "in 4 environments (" in told and "closed 4 environments" in told
