"""Train DQN on wildfires with the preset and compare the agents: `python -m benchmarks.wildfire_agent FOLDER`.

It trains one run per seed into FOLDER/seed-N. Runs that are already there are used as they are. Each part of the
measurement writes its share of docs/benchmarks/wildfire_agent.json, so that parts can be measured one by one:

- first: the agent of the first seed on held-out landscapes, beside the baselines; also its map
- seeds: the agents of all seeds on the same landscapes, and their learning curves
- candidates: the agent of the first seed with searches of different size, on some of those landscapes
- large: the same agent on landscapes of 100 × 100 cells, as it is
- elsewhere: the same agent under other weather, in other vegetation and on landscapes read from rasters
- greedy: how far greedy search gets in ten minutes on a large landscape

`python -m benchmarks.wildfire --tables` puts the tables into the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import ROOT
from benchmarks.wildfire_page import AGENT_RESULTS

IMAGES = ROOT / "docs" / "images"
ENV = "envfleet/Wildfire-v0"
SEEDS = (1, 2, 3)
LANDSCAPES = 50  # held out, as many as the page shows
SEARCH = 64  # candidates per step
PLAY_SEED = 1000  # of the fires; the same for all agents
HELD_OUT = {"landscape_seed": 1000}  # other landscapes than those on which the search was chosen
CANDIDATES = (4, 8, 16, 32, 64)  # sizes of the search to compare
LARGE = {"grid_size": 100, "planning_simulations": 1024}  # as many planning fires per hectare as with 25 × 25
CANDIDATES_LANDSCAPES, LARGE_LANDSCAPES, ELSEWHERE_LANDSCAPES = 20, 2, 4
GREEDY_SECONDS = 600.0


def trained(folder: Path, seed: int) -> Any:
    """Load the run in `folder` as it is, or train it if there is none."""
    import envfleet

    if (folder / "config.yaml").exists():
        return envfleet.Run.load(folder)
    return envfleet.train(envfleet.DQN(env=ENV, seed=seed, output_dir=str(folder)))


def measured_in(
    run: Any,
    env: Any = None,
    *,
    landscapes: int,
    baselines: Sequence[str] | None = None,
    search: int = SEARCH,
    **env_kwargs: Any,
) -> Any:
    """Play the agent of a run in `env`, or in its own environment with other arguments."""
    from envfleet.environments.wildfire import WildfireEnv
    from envfleet.environments.wildfire.comparison import measure
    from envfleet.policies.learner_threads import torch_threads
    from envfleet.runs.trained_policy import TrainedAgent
    from envfleet.training.opened_run import OpenedRun

    opened = OpenedRun.open(run.path, checkpoint=None, trust=False, env_kwargs=env_kwargs)
    env = env or WildfireEnv(**opened.settings.env_kwargs)
    with torch_threads(1):
        return measure(
            env,
            TrainedAgent(opened.policy, deterministic=True),
            episodes=landscapes,
            seed=PLAY_SEED,
            search=search,
            baselines=baselines,
        )


# ---- the agents of all seeds


def of_first(run: Any, landscapes: int) -> dict[str, Any]:
    """The comparison of one run with the baselines, with its report and pictures."""
    from envfleet.training.comparing import compare_run

    comparison = compare_run(run.path, episodes=landscapes, seed=PLAY_SEED, search=SEARCH, env_kwargs=HELD_OUT)
    assert comparison is not None
    shutil.copy(Path(run.path) / "report" / "landscape-0.png", IMAGES / "wildfire-agent.png")
    return comparison.figures


def of_seeds(runs: Sequence[Any], comparison: dict[str, Any]) -> dict[str, Any]:
    """The agents of all runs on the landscapes and fires of the comparison, each and together."""
    from envfleet.environments.wildfire.comparison import difference

    greedy = comparison["ways"]["greedy"]["burned_hectares_per_landscape"]
    each: dict[str, list[dict[str, Any]]] = {}
    burned: dict[str, list[list[float]]] = {}
    for run in runs:
        plans = measured_in(run, landscapes=len(greedy), baselines=(), **HELD_OUT).plans
        for name in plans[0]:
            burned.setdefault(name, []).append([row[name].hectares for row in plans])
            found = {
                "seed": run.settings["seed"],
                "burned_hectares": float(np.mean(burned[name][-1])),
                **difference("more_than_greedy", burned[name][-1], greedy),
                "seconds_per_landscape": float(np.mean([row[name].seconds for row in plans])),
            }
            each.setdefault(name, []).append(found)
    # The mean over seeds of each landscape: the landscapes are the sample, not the seeds.
    together = {
        name: difference("more_than_greedy", np.mean(areas, axis=0).tolist(), greedy) for name, areas in burned.items()
    }
    return {"each": each, "together": together}


def of_candidates(run: Any, landscapes: int, greedy: list[float]) -> list[dict[str, Any]]:
    """Burned area and seconds of each size of the search, with candidates from the agent and from centrality."""
    from envfleet.environments.wildfire.comparison import difference

    rows: list[dict[str, Any]] = []
    for search in CANDIDATES:
        without_agent = f"centrality, search {search}"
        plans = measured_in(run, landscapes=landscapes, baselines=(without_agent,), search=search, **HELD_OUT).plans
        for name in (without_agent, f"agent, search {search}"):
            burned = [each[name].hectares for each in plans]
            rows.append(
                {
                    "way": name,
                    "landscapes": landscapes,
                    "burned_hectares": float(np.mean(burned)),
                    **difference("more_than_greedy", burned, greedy[:landscapes]),
                    "seconds_per_landscape": float(np.mean([each[name].seconds for each in plans])),
                }
            )
    return rows


def curve_of(run: Any) -> dict[str, Any]:
    """Steps, seconds and learning curve of a run."""
    metrics = run.metrics
    returns = [
        (row["step"], row["rollout/ep_rew_mean"])
        for row in metrics
        if row.get("rollout/ep_rew_mean") is not None and np.isfinite(row["rollout/ep_rew_mean"])
    ]
    return {
        "seed": run.settings["seed"],
        "steps": metrics[-1]["step"],
        "seconds": metrics[-1]["time/seconds"],
        "curve": [(step, round(value, 3)) for step, value in returns[:: max(1, len(returns) // 100)]],
    }


def draw_curves(curves: list[dict[str, Any]], path: Path) -> None:
    """Plot the mean return of training episodes over the steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axis = figure.subplots()
    for each in curves:
        axis.plot(*zip(*each["curve"], strict=True), label=f"seed {each['seed']}")
    axis.set_title("training episodes (with exploration), mean of 100")
    axis.set_xlabel("steps")
    axis.set_ylabel("burned area avoided, % of the landscape")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(path, dpi=110)


# ---- elsewhere than in training


def of_large(run: Any, landscapes: int) -> dict[str, Any]:
    """The comparison on large landscapes, and the burned area divided by what centrality leaves."""
    from envfleet.environments.wildfire.comparison import INCREMENTAL, figures_of

    baselines = ("no breaks", "random", "centrality", f"centrality, search {SEARCH}", INCREMENTAL)
    figures = figures_of(measured_in(run, landscapes=landscapes, baselines=baselines, **LARGE))
    central = figures["ways"]["centrality"]["burned_hectares"]
    for way in figures["ways"].values():
        way["share_of_centrality"] = way["burned_hectares"] / central
    return figures


def other_places(folder: Path, landscapes: int) -> Iterator[tuple[str, Callable[[], Any], dict[str, Any]]]:
    """Yield the name of a place, its environment (None: that of the run) and the arguments that differ."""
    from envfleet.environments.wildfire import CLIMATES, Landscape, WildfireEnv, generate_landscape

    yield "as in training", lambda: None, {}
    for risk in ("low", "high"):
        yield f"{risk} risk (wind and dryness)", lambda: None, {"fire_risk": risk}
    for kind in ("forest", "grassland"):
        yield kind, lambda: None, {"landscape_type": kind}

    def north_wind() -> Any:
        climate = dataclasses.replace(CLIMATES["medium"], wind_from=0.0)
        made = [generate_landscape("mixed", "medium", 25, 90_000 + number) for number in range(landscapes)]
        turned = [
            Landscape(each.layers, climate=climate, ignition_weights=each.ignition_weights, name=each.name)
            for each in made
        ]
        return WildfireEnv(landscapes=turned, fire_channels=True)

    yield "wind from the north", north_wind, {}
    write_rasters(folder, generate_landscape("mixed", "medium", 200, 91_000))
    yield "crops of rasters", lambda: None, {"raster_dir": str(folder), "raster_units": "plain"}


def write_rasters(folder: Path, landscape: Any) -> None:
    """Write the layers of a landscape as a folder of GeoTIFFs."""
    from envfleet.environments.wildfire import LAYERS, write_geotiff

    for name in LAYERS:
        write_geotiff(folder / f"{name}.tif", landscape.layer(name), landscape)


def of_elsewhere(run: Any, landscapes: int) -> list[dict[str, Any]]:
    """In each place, the burned area of each method and the share of greedy's savings that the agent reaches."""
    from envfleet.environments.wildfire.comparison import figures_of

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, env, changes in other_places(Path(folder), landscapes):
            ways = figures_of(measured_in(run, env(), landscapes=landscapes, **changes))["ways"]
            burned = {way: figures["burned_hectares"] for way, figures in ways.items()}
            saved = {way: burned["no breaks"] - hectares for way, hectares in burned.items()}
            rows.append(
                {
                    "place": name,
                    "landscapes": landscapes,
                    "burned_hectares": burned,
                    "more_than_greedy": {way: figures["more_than_greedy"] for way, figures in ways.items()},
                    "more_than_greedy_interval": {
                        way: figures["more_than_greedy_interval"] for way, figures in ways.items()
                    },
                    "share_of_greedys_savings": {way: saved[way] / saved["greedy"] for way in ways},
                }
            )
            print(json.dumps(rows[-1]["share_of_greedys_savings"]), file=sys.stderr, flush=True)
    return rows


def of_greedy(seconds: float) -> dict[str, Any]:
    """The number of breaks that greedy search places on a large landscape in `seconds` of one thread.

    It simulates every cell after each break, like the row `greedy` of the small landscapes.
    """
    from envfleet.environments.wildfire import WildfireEnv
    from envfleet.environments.wildfire.baselines import breaks_from
    from envfleet.environments.wildfire.lookahead import Lookahead

    stage = WildfireEnv(**LARGE).held_out()
    stage.reset(seed=PLAY_SEED, options={"landscape": 0})
    landscape, started, chosen = stage.landscape, time.thread_time(), []
    budget = stage.steps_of(stage.settings.budget_percent)
    ahead = Lookahead(landscape, stage.planning_fires, stage.fire_model, stage.settings.spread_minutes)
    while time.thread_time() - started < seconds and len(chosen) < budget:
        candidates = np.flatnonzero(ahead.burned())
        ahead.forget()
        chosen.append(int(candidates[np.argmax(ahead.saved(candidates[:, None]))]))
        ahead.place(breaks_from(landscape, chosen))
    return {"breaks": len(chosen), "budget": budget, "seconds": time.thread_time() - started}


PARTS = ("first", "seeds", "candidates", "large", "elsewhere", "greedy")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="seeds of the runs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    parser.add_argument("--landscapes", type=int, default=LANDSCAPES, help="held-out landscapes of the part first")
    options = parser.parse_args(arguments)
    runs = [trained(options.folder / f"seed-{seed}", seed) for seed in options.seeds]
    results: dict[str, Any] = json.loads(AGENT_RESULTS.read_text()) if AGENT_RESULTS.exists() else {}
    for part in options.parts:
        if part == "first":
            results["first"] = of_first(runs[0], options.landscapes)
        elif part == "seeds":
            results["seeds"] = of_seeds(runs, results["first"])
            results["curves"] = [curve_of(run) for run in runs]
            draw_curves(results["curves"], IMAGES / "wildfire-learning.png")
        elif part == "candidates":
            greedy = results["first"]["ways"]["greedy"]["burned_hectares_per_landscape"]
            results["candidates"] = of_candidates(runs[0], CANDIDATES_LANDSCAPES, greedy)
        elif part == "large":
            results["large"] = of_large(runs[0], LARGE_LANDSCAPES)
        elif part == "elsewhere":
            results["elsewhere"] = of_elsewhere(runs[0], ELSEWHERE_LANDSCAPES)
        else:
            results["greedy"] = of_greedy(GREEDY_SECONDS)
        AGENT_RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
