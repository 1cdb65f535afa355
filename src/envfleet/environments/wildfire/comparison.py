"""Compares an agent with the baselines, on landscapes and fires that none of them planned for."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from envfleet.capabilities import Agent, Comparison
from envfleet.confidence import confidence_interval
from envfleet.environments.wildfire.baselines import (
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

__all__ = ["AGENT", "GREEDY", "Plan", "compare"]

Cells = NDArray[np.int64]

AGENT = "agent"
GREEDY = "greedy"
_STREAM = 0xC0A9
_TEST_FIRES = 200  # for measuring all of them, the agent included
_MAPS = 4  # landscapes drawn in the report
_MOST_CELLS_FOR_GREEDY = 2_500  # it takes seconds on 625 cells and hours on 10,000


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


def compare(
    env: WildfireEnv, agent: Any, folder: Path, *, episodes: int, seed: int, search: int | None = None
) -> Comparison:
    """Play the agent and the baselines on `episodes` landscapes, and write the report into `folder`.

    With `search`, the agent also plays as a `SearchingAgent` with so many candidates. All methods that plan with fires
    plan with the same ones. The test fires are others.
    """
    from envfleet.environments.wildfire.report import write_report

    stage = env.held_out(memory_simulations=1)  # rewards are not needed here
    agents: dict[str, Agent] = {AGENT: agent}
    if search is not None:
        agents[f"{AGENT}, search {search}"] = SearchingAgent(agent, stage.simulated_gains, search)
    cases = [_played(stage, agents, number, seed) for number in range(episodes)]
    minutes = env.settings.spread_minutes
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the fire kernels release the GIL
        model = env.fire_model
        results = list(pool.map(lambda case: _planned(case, model, minutes, search), cases))
    figures = _figures(results, env, cases[0].landscape) | {"search": search}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    landscapes = [case.landscape for case in cases[:_MAPS]]
    text = write_report(folder, figures, landscapes, results[:_MAPS], stage)
    return Comparison(text, figures, folder)


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


def _planned(case: _Case, shared_model: FireModel, minutes: float, search: int | None) -> dict[str, Plan]:
    """Plan and measure every baseline with as many cells as the agent used."""
    # SurfaceFire caches rates between calls, so every thread needs a separate one.
    model = SurfaceFire() if isinstance(shared_model, SurfaceFire) else shared_model
    landscape, budget = case.landscape, len(case.agents[AGENT][0])
    given = landscape, budget, case.planned, model, minutes
    ways: dict[str, Callable[[], Cells]] = {
        "no breaks": no_breaks,
        "random": lambda: random_breaks(landscape, budget, case.chance),
        "centrality": lambda: centrality_breaks(*given),
    }
    if search is not None:
        ways[f"centrality, search {search}"] = lambda: search_breaks(*given, candidates=search)
    if landscape.burnable.size <= _MOST_CELLS_FOR_GREEDY:
        ways[GREEDY] = lambda: greedy_breaks(*given)
    plans = {}
    for name, choose in ways.items():
        started = time.thread_time()
        cells = choose()
        plans[name] = cells, time.thread_time() - started
    found = {}
    for name, (cells, seconds) in (plans | case.agents).items():
        burned = burned_hectares(landscape, cells, case.test, model, minutes)
        found[name] = Plan(cells, seconds, float(burned.mean()))
    return found


def _figures(results: list[dict[str, Plan]], env: WildfireEnv, landscape: Landscape) -> dict[str, Any]:
    """Means over the landscapes with confidence intervals, and paired differences to the agent and to greedy search."""
    hectares = {name: [plans[name].hectares for plans in results] for name in results[0]}
    ways: dict[str, Any] = {}
    for name, burned in hectares.items():
        ways[name] = {
            "burned_hectares": float(np.mean(burned)),
            "confidence_interval": confidence_interval(burned),
            **_difference("more_than_agent", burned, hectares[AGENT]),
            **(_difference("more_than_greedy", burned, hectares[GREEDY]) if GREEDY in hectares else {}),
            "seconds_per_landscape": float(np.mean([plans[name].seconds for plans in results])),
            "burned_hectares_per_landscape": [round(value, 4) for value in burned],
        }
    return {
        "landscapes": len(results),
        "held_out": not (env.landscapes_are_given or env.landscapes_are_crops),
        "other_crops": env.landscapes_are_crops,
        "cells": list(landscape.shape),
        "breaks": float(np.mean([len(plans[AGENT].cells) for plans in results])),
        "planned_fires": env.settings.planning_simulations,
        "test_fires": _TEST_FIRES,
        "spread_minutes": env.settings.spread_minutes,
        "ways": ways,
    }


def _difference(name: str, burned: list[float], other: list[float]) -> dict[str, Any]:
    """Mean of the differences per landscape, and its confidence interval."""
    more = [one - two for one, two in zip(burned, other, strict=True)]
    return {name: float(np.mean(more)), f"{name}_interval": confidence_interval(more)}
