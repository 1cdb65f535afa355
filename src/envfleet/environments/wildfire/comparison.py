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
)
from envfleet.environments.wildfire.fire import Fire, FireModel, SurfaceFire, draw_fires
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.seeding import derive_seed, stream

if TYPE_CHECKING:
    from envfleet.environments.wildfire.environment import WildfireEnv

__all__ = ["AGENT", "Plan", "compare"]

Cells = NDArray[np.int64]

AGENT = "agent"
_STREAM = 0xC0A9
_PLANNED_FIRES = 64  # for centrality and greedy search to plan with
_TEST_FIRES = 200  # for measuring all of them, the agent included
_MAPS = 4  # landscapes drawn in the report


@dataclass(frozen=True)
class Plan:
    """Breaks in the order they were chosen, and their result."""

    cells: Cells
    seconds: float  # spent choosing them
    hectares: float  # mean area that the test fires burn


@dataclass(frozen=True)
class _Case:
    """A landscape, with the fires to plan against and the fires to test on."""

    landscape: Landscape
    planned: tuple[Fire, ...]
    test: tuple[Fire, ...]
    agent: tuple[Cells, float]  # its breaks, and the seconds it took to choose them
    chance: np.random.Generator


def compare(env: WildfireEnv, agent: Agent, folder: Path, *, episodes: int, seed: int) -> Comparison:
    """Play the agent and the baselines on `episodes` landscapes, and write the report into `folder`."""
    from envfleet.environments.wildfire.report import write_report

    stage = env.held_out()
    cases = [_played(stage, agent, number, seed) for number in range(episodes)]
    minutes = env.settings.spread_minutes
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the fire kernels release the GIL
        model = env.fire_model
        results = list(pool.map(lambda case: _planned(case, model, minutes), cases))
    figures = _figures(results, env, cases[0].landscape)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    landscapes = [case.landscape for case in cases[:_MAPS]]
    text = write_report(folder, figures, landscapes, results[:_MAPS], stage)
    return Comparison(text, figures, folder)


def _played(stage: WildfireEnv, agent: Agent, number: int, seed: int) -> _Case:
    """Play one episode of the agent, and draw fires that it has not seen."""
    options = {"landscape": stage.landscape_number(number)}
    observation, info = stage.reset(seed=derive_seed(seed, _STREAM, number), options=options)
    agent.reset()
    chosen: dict[int, None] = {}  # an ordered set
    seconds, ended = 0.0, False
    while not ended:
        started = time.perf_counter()
        action = agent(observation, info)
        seconds += time.perf_counter() - started
        observation, _, terminated, truncated, info = stage.step(action)
        chosen |= dict.fromkeys(np.flatnonzero(stage.breaks).tolist())
        ended = terminated or truncated
    generator = stream(seed, _STREAM, number)
    landscape = stage.landscape
    planned, test = (draw_fires(landscape, generator, count) for count in (_PLANNED_FIRES, _TEST_FIRES))
    return _Case(landscape, planned, test, (np.array([*chosen], np.int64), seconds), generator)


def _planned(case: _Case, shared_model: FireModel, minutes: float) -> dict[str, Plan]:
    """Plan and measure every baseline with as many cells as the agent used."""
    # SurfaceFire caches rates between calls, so every thread needs a separate one.
    model = SurfaceFire() if isinstance(shared_model, SurfaceFire) else shared_model
    landscape, budget = case.landscape, len(case.agent[0])
    ways: dict[str, Callable[[], Cells]] = {
        "no breaks": no_breaks,
        "random": lambda: random_breaks(landscape, budget, case.chance),
        "centrality": lambda: centrality_breaks(landscape, budget, case.planned, model, minutes),
        "greedy": lambda: greedy_breaks(landscape, budget, case.planned, model, minutes),
    }
    plans = {}
    for name, choose in ways.items():
        started = time.perf_counter()
        cells = choose()
        plans[name] = cells, time.perf_counter() - started
    plans[AGENT] = case.agent
    found = {}
    for name, (cells, seconds) in plans.items():
        burned = burned_hectares(landscape, cells, case.test, model, minutes)
        found[name] = Plan(cells, seconds, float(burned.mean()))
    return found


def _figures(results: list[dict[str, Plan]], env: WildfireEnv, landscape: Landscape) -> dict[str, Any]:
    """Means over the landscapes with confidence intervals, and paired differences to the agent."""
    hectares = {name: [plans[name].hectares for plans in results] for name in results[0]}
    ways: dict[str, Any] = {}
    for name, burned in hectares.items():
        saved = [other - own for other, own in zip(burned, hectares[AGENT], strict=True)]
        ways[name] = {
            "burned_hectares": float(np.mean(burned)),
            "confidence_interval": confidence_interval(burned),
            "more_than_agent": float(np.mean(saved)),
            "more_than_agent_interval": confidence_interval(saved),
            "seconds_per_landscape": float(np.mean([plans[name].seconds for plans in results])),
            "burned_hectares_per_landscape": [round(value, 4) for value in burned],
        }
    return {
        "landscapes": len(results),
        "held_out": not (env.landscapes_are_given or env.landscapes_are_crops),
        "other_crops": env.landscapes_are_crops,
        "cells": list(landscape.shape),
        "breaks": float(np.mean([len(plans[AGENT].cells) for plans in results])),
        "planned_fires": _PLANNED_FIRES,
        "test_fires": _TEST_FIRES,
        "spread_minutes": env.settings.spread_minutes,
        "ways": ways,
    }
