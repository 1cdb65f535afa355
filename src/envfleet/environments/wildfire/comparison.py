"""Compares an agent with the baselines, on landscapes and fires that none of them planned for."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from envfleet.capabilities import Agent, Comparison
from envfleet.confidence import confidence_interval
from envfleet.environments.wildfire.baselines import (
    breaks_from,
    burned_hectares,
    centrality_breaks,
    greedy_breaks,
    no_breaks,
    random_breaks,
    search_breaks,
)
from envfleet.environments.wildfire.fire import Fire, FireModel, SurfaceFire, draw_fires
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.search import SearchingAgent
from envfleet.seeding import derive_seed, stream

if TYPE_CHECKING:
    from envfleet.environments.wildfire.environment import WildfireEnv

__all__ = ["AGENT", "GREEDY", "INCREMENTAL", "Measured", "Plan", "compare", "difference", "figures_of", "measure"]

Cells = NDArray[np.int64]

AGENT = "agent"
GREEDY = "greedy"  # simulates every cell after each break
INCREMENTAL = "greedy, incremental"  # the same breaks; remembers what a break does not change
_STREAM = 0xC0A9
_TEST_FIRES = 200  # for measuring all of them, the agent included
_MAPS = 4  # landscapes drawn in the report; one if they are large
_PLANS_IN_A_MAP = 5  # made with different fires, to see where they agree
_MOST_CELLS_FOR_GREEDY = 2_500  # it takes seconds on 625 cells, and many minutes on 10,000


@dataclass(frozen=True)
class Plan:
    """Breaks in the order they were chosen, and their result."""

    cells: Cells
    seconds: float  # of one thread, spent choosing them
    hectares: float  # mean area that the test fires burn


@dataclass(frozen=True)
class _Case:
    """A landscape, with the fires to plan with and the fires to test on."""

    landscape: Landscape
    planned: tuple[Fire, ...]
    test: tuple[Fire, ...]
    agents: dict[str, tuple[Cells, float]]  # of each: its breaks, and the seconds it took to choose them
    chance: np.random.Generator


@dataclass(frozen=True)
class Measured:
    """What the methods did on each landscape."""

    stage: WildfireEnv
    agents: dict[str, Agent]  # the agent, and if asked for the same with a search
    landscapes: list[Landscape]
    plans: list[dict[str, Plan]]  # of each landscape, by method


def compare(
    env: WildfireEnv, agent: Any, folder: Path, *, episodes: int, seed: int, search: int | None = None
) -> Comparison:
    """Play the agent and the baselines on `episodes` landscapes, and write the report into `folder`.

    With `search`, the agent also plays as a `SearchingAgent` with this many candidates.
    """
    from envfleet.environments.wildfire.maps import Mapped
    from envfleet.environments.wildfire.report import write_report

    measured = measure(env, agent, episodes=episodes, seed=seed, search=search)
    figures = figures_of(measured) | {"search": search}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    shown, maps = list(measured.agents)[-1], _MAPS if GREEDY in measured.plans[0] else 1
    mapped = []
    for number, (landscape, plans) in enumerate(zip(measured.landscapes[:maps], measured.plans[:maps], strict=True)):
        agreement = _agreement(measured.stage, measured.agents[shown], plans[shown].cells, number, seed)
        mapped.append(Mapped(landscape, plans, shown, agreement, _PLANS_IN_A_MAP))
    return Comparison(write_report(folder, figures, mapped, measured.stage), figures, folder)


def measure(
    env: WildfireEnv,
    agent: Any,
    *,
    episodes: int,
    seed: int,
    search: int | None = None,
    baselines: Sequence[str] | None = None,
) -> Measured:
    """Plan and measure breaks on `episodes` landscapes, by the agent and by the baselines.

    `baselines` are their names; by default all, but on large landscapes no greedy search, which would take too long.
    All methods that plan with fires plan with the same ones. The test fires are others. The same seed gives the same
    landscapes and fires for any agent.
    """
    stage = env.held_out(memory_simulations=1)  # rewards are not needed here
    agents: dict[str, Agent] = {AGENT: agent}
    if search is not None:
        agents[f"{AGENT}, search {search}"] = SearchingAgent(agent, stage.simulated_gains, search)
    cases = [_played(stage, agents, number, seed) for number in range(episodes)]
    minutes, model = env.settings.spread_minutes, env.fire_model
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the fire kernels release the GIL
        plans = list(pool.map(lambda case: _planned(case, model, minutes, search, baselines), cases))
    return Measured(stage, agents, [case.landscape for case in cases], plans)


def _played(stage: WildfireEnv, agents: dict[str, Agent], number: int, seed: int) -> _Case:
    """Play one episode of each agent, and draw fires that they have not seen."""
    options = {"landscape": stage.landscape_number(number)}
    chosen = {}
    for name, agent in agents.items():
        stage.reset(seed=derive_seed(seed, _STREAM, number), options=options)  # builds the landscape: not planning
        started = time.thread_time()
        cells = _breaks_of(stage, agent, options, derive_seed(seed, _STREAM, number))
        chosen[name] = cells, time.thread_time() - started
    generator = stream(seed, _STREAM, number)
    landscape = stage.landscape
    return _Case(landscape, stage.planning_fires, draw_fires(landscape, generator, _TEST_FIRES), chosen, generator)


def _agreement(stage: WildfireEnv, agent: Agent, cells: Cells, number: int, seed: int) -> NDArray[np.float32]:
    """Share of plans, each made with other fires, that have a break in a cell: [row, column]. `cells` are the first."""
    options = {"landscape": stage.landscape_number(number)}
    plans = [cells]
    for again in range(1, _PLANS_IN_A_MAP):
        plans.append(_breaks_of(stage, agent, options, derive_seed(seed, _STREAM, number, again)))
    share: NDArray[np.float32] = np.mean([breaks_from(stage.landscape, plan) for plan in plans], 0, np.float32)
    return share


def _breaks_of(stage: WildfireEnv, agent: Agent, options: dict[str, Any], seed: int) -> Cells:
    """Breaks of one episode, in the order in which the agent places them."""
    observation, info = stage.reset(seed=seed, options=options)
    agent.reset()
    chosen: dict[int, None] = {}  # an ordered set
    ended = False
    while not ended:
        observation, _, terminated, truncated, info = stage.step(agent(observation, info))
        chosen |= dict.fromkeys(np.flatnonzero(stage.breaks).tolist())
        ended = terminated or truncated
    return np.array([*chosen], np.int64)


def _planned(
    case: _Case, shared_model: FireModel, minutes: float, search: int | None, baselines: Sequence[str] | None
) -> dict[str, Plan]:
    """Plan every baseline with as many cells as the agent used, and measure all."""
    # SurfaceFire caches rates between calls, so every thread needs a separate one.
    model = SurfaceFire() if isinstance(shared_model, SurfaceFire) else shared_model
    plans, ways = {}, _baselines(case, model, minutes, search)
    if baselines is None:
        large = case.landscape.burnable.size > _MOST_CELLS_FOR_GREEDY
        baselines = [name for name in ways if not (large and name in (GREEDY, INCREMENTAL))]
    for name in baselines:
        started = time.thread_time()
        cells = ways[name]()
        plans[name] = cells, time.thread_time() - started
    found = {}
    for name, (cells, seconds) in (plans | case.agents).items():
        burned = burned_hectares(case.landscape, cells, case.test, model, minutes)
        found[name] = Plan(cells, seconds, float(burned.mean()))
    return found


def _baselines(case: _Case, model: FireModel, minutes: float, search: int | None) -> dict[str, Callable[[], Cells]]:
    landscape, budget = case.landscape, len(case.agents[AGENT][0])
    given = landscape, budget, case.planned, model, minutes
    ways: dict[str, Callable[[], Cells]] = {
        "no breaks": no_breaks,
        "random": lambda: random_breaks(landscape, budget, case.chance),
        "centrality": lambda: centrality_breaks(*given),
    }
    if search is not None:
        ways[f"centrality, search {search}"] = lambda: search_breaks(*given, candidates=search)
    ways[GREEDY] = lambda: greedy_breaks(*given, remember=False)
    ways[INCREMENTAL] = lambda: greedy_breaks(*given)
    return ways


def figures_of(measured: Measured) -> dict[str, Any]:
    """Means over the landscapes with confidence intervals, and paired differences to the agent and to greedy search."""
    env, results = measured.stage, measured.plans
    hectares = {name: [plans[name].hectares for plans in results] for name in results[0]}
    ways: dict[str, Any] = {}
    for name, burned in hectares.items():
        ways[name] = {
            "burned_hectares": float(np.mean(burned)),
            "confidence_interval": confidence_interval(burned),
            **difference("more_than_agent", burned, hectares[AGENT]),
            **(difference("more_than_greedy", burned, hectares[GREEDY]) if GREEDY in hectares else {}),
            "seconds_per_landscape": float(np.mean([plans[name].seconds for plans in results])),
            "burned_hectares_per_landscape": [round(value, 4) for value in burned],
        }
    return {
        "landscapes": len(results),
        "held_out": not (env.landscapes_are_given or env.landscapes_are_crops or env.settings.whole_rasters),
        "whole_rasters": env.settings.whole_rasters,
        "other_crops": env.landscapes_are_crops,
        "cells": list(measured.landscapes[0].shape),
        "breaks": float(np.mean([len(plans[AGENT].cells) for plans in results])),
        "planned_fires": env.settings.planning_simulations,
        "test_fires": _TEST_FIRES,
        "spread_minutes": env.settings.spread_minutes,
        "ways": ways,
    }


def difference(name: str, burned: list[float], other: list[float]) -> dict[str, Any]:
    """Mean of the differences per landscape, and its confidence interval."""
    more = [one - two for one, two in zip(burned, other, strict=True)]
    return {name: float(np.mean(more)), f"{name}_interval": confidence_interval(more)}
