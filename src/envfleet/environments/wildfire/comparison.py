"""An agent beside ways to place breaks that need no learning, on landscapes and fires that nobody has planned for."""

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
from envfleet.offers import Agent, Comparison
from envfleet.seeding import derive_seed, stream

if TYPE_CHECKING:
    from envfleet.environments.wildfire.environment import WildfireEnv

__all__ = ["AGENT", "Plan", "compare"]

Cells = NDArray[np.int64]

AGENT = "agent"
_STREAM = 0xC0A9
_PLANNED_FIRES = 64  # centrality and greedy search look at them
_TEST_FIRES = 200  # and are measured on these, as is the agent
_MAPS = 4  # landscapes that are drawn


@dataclass(frozen=True)
class Plan:
    """Breaks in their order, by one of the ways, and what came of them."""

    cells: Cells
    seconds: float  # that it took to choose them
    hectares: float  # that the test fires burn in the mean


@dataclass(frozen=True)
class _Case:
    """A landscape with the fires to plan for and those that count."""

    landscape: Landscape
    planned: tuple[Fire, ...]
    test: tuple[Fire, ...]
    agent: tuple[Cells, float]  # its breaks and the seconds they took
    chance: np.random.Generator


def compare(env: WildfireEnv, agent: Agent, folder: Path, *, episodes: int, seed: int) -> Comparison:
    """Plays the agent on `episodes` landscapes, the others beside it, and writes the report into `folder`."""
    from envfleet.environments.wildfire.report import write_report

    stage = env.held_out()
    cases = [_played(stage, agent, number, seed) for number in range(episodes)]
    minutes = env.settings.spread_minutes
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # fires are computed without the GIL
        model = env.fire_model
        results = list(pool.map(lambda case: _planned(case, model, minutes), cases))
    figures = _figures(results, env, cases[0].landscape)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    landscapes = [case.landscape for case in cases[:_MAPS]]
    text = write_report(folder, figures, landscapes, results[:_MAPS], stage)
    return Comparison(text, figures, folder)


def _played(stage: WildfireEnv, agent: Agent, number: int, seed: int) -> _Case:
    """An episode of the agent, and fires that it has not seen."""
    options = {"landscape": stage.landscape_number(number)}
    observation, info = stage.reset(seed=derive_seed(seed, _STREAM, number), options=options)
    agent.reset()
    chosen: dict[int, None] = {}  # in their order
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
    """What each of the ways does with as many cells as the agent took."""
    # A model of its own where it keeps rates between calls, because threads take turns.
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
    """Means over the landscapes with their confidence, and the differences landscape by landscape."""
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
