"""Demonstrations by rules of thumb. An earlier system called them memories."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from envfleet.capabilities import Demonstration
from envfleet.environments.wildfire.baselines import centrality_breaks, random_breaks, ridge_breaks
from envfleet.environments.wildfire.fire import FireModel, draw_fires
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.settings import WildfireSettings
from envfleet.environments.wildfire.sources import ANY_LANDSCAPE, LandscapeSource
from envfleet.seeding import stream

__all__ = ["LARGEST_PERCENT", "memories"]

LARGEST_PERCENT = 20.0
_FIRES = 64  # for computing centrality
_STREAM = 0x3E30


def memories(
    settings: WildfireSettings, source: LandscapeSource, model: FireModel, blocks: tuple[int, int], seed: int
) -> Iterator[Demonstration]:
    """Yield breaks of each kind on `percentage_increment` of the blocks, on twice as many, and so on up to 20 %.

    With a fixed number of landscapes, each landscape gets all combinations. Otherwise the demonstrations never end, and
    each new landscape gets one combination.
    """
    step = settings.percentage_increment
    percents = [step * number for number in range(1, int(LARGEST_PERCENT / step) + 1)]
    episodes = list(itertools.product(percents, settings.memories))
    plan: Iterable[tuple[int, tuple[float, str]]]
    if source.count:
        plan = itertools.product(range(source.count), episodes)
    else:
        drawn = stream(seed, _STREAM)
        numbers = (int(drawn.integers(ANY_LANDSCAPE)) for _ in itertools.count())
        plan = zip(numbers, itertools.cycle(episodes))
    for episode, (number, (percent, kind)) in enumerate(plan):
        landscape, generator = source.landscape(number), stream(seed, _STREAM, episode)
        count = max(1, int(blocks[0] * blocks[1] * percent / 100))
        cells = _cells(landscape, kind, model, settings.spread_minutes, generator)
        actions = _as_blocks(cells, landscape.shape[1], settings.block_size)[:count]
        yield Demonstration(actions.tolist(), {"landscape": number, "budget_percent": percent})


def _cells(
    landscape: Landscape, kind: str, model: FireModel, minutes: float, generator: np.random.Generator
) -> NDArray[np.int64]:
    """All burnable cells, in the order in which they would become breaks."""
    everything = int(np.count_nonzero(landscape.burnable))
    if kind == "centrality":
        return centrality_breaks(landscape, everything, draw_fires(landscape, generator, _FIRES), model, minutes)
    return ridge_breaks(landscape, everything) if kind == "ridge" else random_breaks(landscape, everything, generator)


def _as_blocks(cells: NDArray[np.int64], columns: int, block: int) -> NDArray[np.int64]:
    """The blocks of the cells, in the order in which each first appears."""
    blocks = cells // columns // block * (columns // block) + cells % columns // block
    _, first = np.unique(blocks, return_index=True)
    return np.asarray(blocks[np.sort(first)], np.int64)
