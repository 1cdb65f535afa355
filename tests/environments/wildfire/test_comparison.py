"""An agent compared with baselines: figures that fit the plans, readable maps, the hook of `evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet import cli
from envfleet.capabilities import Compares, Comparison
from envfleet.environments.wildfire import SurfaceFire, WildfireEnv, draw_fires, generate_landscape
from envfleet.environments.wildfire.baselines import burned_hectares
from envfleet.environments.wildfire.maps import area_after_breaks
from tests.environments.wildfire.test_landscapes import write_rasters


class FirstAllowed:
    """Places breaks in the upper left corner, where they help little. Proposes cells of the whole landscape."""

    def reset(self) -> None:
        pass

    def __call__(self, observation: Any, info: dict[str, Any]) -> int:
        return int(np.flatnonzero(info["action_mask"])[0])

    def ranked(self, observation: Any, info: dict[str, Any], count: int) -> list[int]:
        allowed = np.flatnonzero(info["action_mask"])
        return [int(cell) for cell in allowed[:: max(1, len(allowed) // count)][:count]]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    env = WildfireEnv(grid_size=12)
    assert isinstance(env, Compares)
    return env.compare(FirstAllowed(), tmp_path_factory.mktemp("run") / "report", episodes=5, seed=1, search=12)


def test_figures(compared: Comparison) -> None:
    figures = compared.figures
    assert json.loads(json.dumps(figures)) == json.loads((compared.folder / "comparison.json").read_text())
    assert figures["landscapes"] == 5 and figures["held_out"] and figures["breaks"] == 7  # 5 % of 144
    ways = figures["ways"]
    greedy, without_agent = ["greedy", "greedy, incremental"], ["no breaks", "random", "centrality"]
    names = [*without_agent, "centrality, search 12", *greedy, "agent", "agent, search 12"]
    assert list(ways) == names and figures["search"] == 12
    areas = [ways[name]["burned_hectares_per_landscape"] for name in greedy]
    assert areas[0] == areas[1]  # the same breaks
    burned = {name: way["burned_hectares"] for name, way in ways.items()}
    assert burned["greedy"] < burned["centrality"] < burned["random"] < burned["no breaks"]
    assert burned["centrality"] < burned["agent"] < burned["no breaks"]
    assert burned["agent, search 12"] < 0.95 * burned["agent"]
    assert burned["centrality, search 12"] < burned["centrality"]
    for way in ways.values():
        each, agents = way["burned_hectares_per_landscape"], ways["agent"]["burned_hectares_per_landscape"]
        assert way["burned_hectares"] == pytest.approx(np.mean(each), abs=1e-4)
        assert way["more_than_agent"] == pytest.approx(np.mean(np.subtract(each, agents)), abs=1e-4)
        assert way["more_than_greedy"] == pytest.approx(way["burned_hectares"] - burned["greedy"])
        low, high = way["confidence_interval"]
        assert low < way["burned_hectares"] < high


def test_the_report_says_it_all(compared: Comparison) -> None:
    report = (compared.folder / "report.md").read_text()
    for name, way in compared.figures["ways"].items():
        assert f"| {name} | {way['burned_hectares']:.2f} (" in report
        assert f"{name} " in compared.text
    for number in range(4):
        assert f"landscape-{number}.png" in report
        assert (compared.folder / f"landscape-{number}.png").stat().st_size > 10_000
    assert not (compared.folder / "landscape-4.png").exists()


def test_maps_can_be_read_again(compared: Comparison) -> None:
    import rasterio

    with rasterio.open(compared.folder / "landscape-0-breaks.tif") as raster:
        order = raster.read(1)
    assert sorted(order[order > 0].tolist()) == list(range(1, 8))
    assert (np.diff(np.flatnonzero(order)[np.argsort(order[order > 0])]) < 0).any()  # the search's, not in index order
    with rasterio.open(compared.folder / "landscape-0-burn-probability.tif") as raster:
        burned = raster.read(1)
    assert burned.shape == order.shape and 0 < burned.max() <= 1
    assert not burned[order > 0].any()
    with rasterio.open(compared.folder / "landscape-0-agreement.tif") as raster:
        agreement = raster.read(1)
    assert agreement.sum() == pytest.approx(7)  # each of the plans has 7 breaks
    np.testing.assert_allclose(5 * agreement, np.round(5 * agreement), atol=1e-5)
    assert agreement[order > 0].min() >= 0.2 - 1e-6 and (agreement > 0).sum() > 7


def test_the_area_that_burns_after_each_break(compared: Comparison) -> None:
    lines = (compared.folder / "landscape-0-burned-area.csv").read_text().splitlines()
    assert lines[0] == "breaks,burned_hectares,low,high"
    counts, hectares, lows, highs = np.loadtxt(lines[1:], delimiter=",").T
    assert counts.tolist() == list(range(8))
    assert (lows < hectares).all() and (hectares < highs).all()
    landscape = generate_landscape("grassland", "medium", 10, 3)
    fires, model, cells = draw_fires(landscape, np.random.default_rng(0), 20), SurfaceFire(), np.array([33, 44, 55])
    for area in area_after_breaks(landscape, cells, fires, model, 120):
        expected = burned_hectares(landscape, cells[: area.breaks], fires, model, 120)
        assert area.hectares == pytest.approx(expected.mean())
        margin = 2.093 * expected.std(ddof=1) / np.sqrt(20)  # Student's t with 19 degrees of freedom
        assert area.interval == pytest.approx((expected.mean() - margin, expected.mean() + margin), rel=1e-3)


@pytest.mark.proof
def test_the_same_seed_compares_the_same(compared: Comparison, tmp_path: Path) -> None:
    again = WildfireEnv(grid_size=12).compare(FirstAllowed(), tmp_path, episodes=5, seed=1, search=12)
    other = WildfireEnv(grid_size=12).compare(FirstAllowed(), tmp_path, episodes=5, seed=2, search=12)
    key = "burned_hectares_per_landscape"
    for name, way in compared.figures["ways"].items():
        assert again.figures["ways"][name][key] == way[key]
        assert other.figures["ways"][name][key] != way[key]  # other fires


def test_landscapes_are_held_out_unless_they_were_given() -> None:
    env = WildfireEnv(grid_size=15, num_landscapes=3)
    held_out = env.held_out()
    assert not env.landscapes_are_given and held_out.landscape_number(7) == 7
    seen = set()
    for stage, numbers in ((env, range(3)), (held_out, range(20))):
        for number in numbers:
            stage.reset(options={"landscape": number})
            seen.add(stage.landscape.name)
    assert len(seen) == 23
    given = WildfireEnv(landscapes=[generate_landscape(size=15, seed=1), generate_landscape(size=15, seed=2)])
    assert given.landscapes_are_given and given.held_out().landscape_number(7) == 1


@pytest.mark.parametrize("kind", ["generated", "given", "rasters", "whole"])
def test_the_report_claims_no_more_than_there_is(tmp_path: Path, kind: str) -> None:
    landscape = generate_landscape(size=12, seed=1)
    write_rasters(tmp_path, landscape)
    given: dict[str, dict[str, Any]] = {
        "generated": {"grid_size": 8},
        "given": {"landscapes": [landscape]},
        "rasters": {"grid_size": 8, "raster_dir": str(tmp_path)},
        "whole": {"whole_rasters": True, "raster_dir": str(tmp_path)},
    }
    said = {
        "generated": "1 landscapes not used in training,",
        "given": "1 landscapes of the training, with other fires,",
        "rasters": "1 other crops of the same rasters, which may overlap those of training,",
        "whole": "1 landscape, the whole rasters, parts of which training may have seen, 12 × 12 cells",
    }
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "landscape-3.png").touch()  # of an earlier report
    compared = WildfireEnv(**given[kind]).compare(FirstAllowed(), tmp_path / "report", episodes=1, seed=1)
    assert not (tmp_path / "report" / "landscape-3.png").exists()
    report = (compared.folder / "report.md").read_text()
    for name, words in said.items():
        assert (words in report) == (words in compared.text) == (name == kind)
    assert compared.figures["held_out"] == (kind == "generated")


def test_evaluate_compares_without_knowing_wildfire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    flags = ["--grid-size", "8", "--n-envs", "2", "--steps", "16", "--seed", "1", "--backend", "sequential", "--quiet"]
    small = ["--rollout-steps", "4", "--learning-starts", "8", "--hidden", "4", "--network", "cells"]
    command = ["train", "dqn", "--env", "envfleet/Wildfire-v0", *flags, *small, "--output-dir", str(run)]
    assert cli.main(command) == 0
    capsys.readouterr()
    assert cli.main(["evaluate", str(run), "--episodes", "1"]) == 0
    shown = capsys.readouterr().out
    assert "greedy" in shown and "more than the agent" in shown and str(run / "report") in shown
    assert cli.main(["evaluate", str(run), "--episodes", "2", "--no-comparison", "--json"]) == 0
    without = json.loads(capsys.readouterr().out)
    assert "comparison" not in without
    assert cli.main(["evaluate", str(run), "--episodes", "2", "--search", "64", "--json"]) == 0
    with_search = json.loads(capsys.readouterr().out)
    assert with_search["mean_reward"] > without["mean_reward"]  # all cells are candidates: greedy search
    assert "agent, search 64" in with_search["comparison"]["ways"] and with_search["comparison"]["landscapes"] == 2
    elsewhere = ["evaluate", str(run), "--episodes", "1", "--no-comparison", "--json", "--env-kwargs"]
    assert cli.main([*elsewhere, "grid_size=12", "budget_percent=2"]) == 0
    assert json.loads(capsys.readouterr().out)["lengths"] == [2]  # 2 % of 144 cells
    assert cli.main([*elsewhere, "fire_channels=false"]) == 2
    assert "was trained on Box(0.0, 1.0, (11, 8, 8), float32) and its weights do not fit" in capsys.readouterr().err
