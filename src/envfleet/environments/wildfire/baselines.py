"""Baselines that place breaks without learning.

Each returns cells (row * columns + column) in the order in which it would make them breaks. Some plan against given
fires; evaluate those with `burned_hectares` on other fires.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.fire import Fire, FireModel
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.lookahead import Lookahead
from envfleet.search import SearchingAgent

__all__ = [
    "breaks_from",
    "burned_hectares",
    "centrality_breaks",
    "greedy_breaks",
    "no_breaks",
    "random_breaks",
    "ridge_breaks",
    "search_breaks",
]

Cells = NDArray[np.int64]


def breaks_from(landscape: Landscape, cells: Cells | Sequence[int]) -> NDArray[np.bool_]:
    """Return the cells as a mask of breaks: [row, column]."""
    breaks = np.zeros(landscape.shape, np.bool_)
    breaks.ravel()[np.asarray(cells, np.int64)] = True
    return breaks


def burned_hectares(
    landscape: Landscape, cells: Cells | Sequence[int], fires: Sequence[Fire], model: FireModel, minutes: float
) -> NDArray[np.float64]:
    """Area that each fire burns with breaks in these cells: [fire]."""
    arrival = model(landscape, tuple(fires), breaks_from(landscape, cells), minutes)
    area: NDArray[np.float64] = np.count_nonzero(arrival < np.inf, axis=(1, 2)) * landscape.hectares_per_cell
    return area


def no_breaks() -> Cells:
    """Place no breaks."""
    return np.empty(0, np.int64)


def random_breaks(landscape: Landscape, budget: int, generator: np.random.Generator) -> Cells:
    """Burnable cells in random order."""
    return generator.permutation(np.flatnonzero(landscape.burnable))[:budget].astype(np.int64)


def ridge_breaks(landscape: Landscape, budget: int) -> Cells:
    """Cells that rise most above the mean of their 5 × 5 neighbourhood, like ridge lines."""
    elevation = landscape.layer("elevation").astype(np.float64)
    padded = np.pad(elevation, 2, mode="edge")
    rows, columns = landscape.shape
    around = sum(padded[i : i + rows, j : j + columns] for i in range(5) for j in range(5)) / 25
    return _best(landscape, elevation - around, budget)


def centrality_breaks(
    landscape: Landscape, budget: int, fires: Sequence[Fire], model: FireModel, minutes: float, rounds: int = 1
) -> Cells:
    """Cells through which fires reach the most other cells.

    With `rounds` above 1, the budget is split into that many shares. After each share the fires are spread again,
    around the breaks so far.
    """
    from envfleet.environments.wildfire.centrality import path_centrality

    fires, chosen = tuple(fires), np.empty(0, np.int64)
    for share in np.array_split(np.arange(budget), rounds):
        arrival = model(landscape, fires, breaks_from(landscape, chosen), minutes)
        centrality = path_centrality(arrival, np.full(len(fires), -1))
        centrality.ravel()[chosen] = -1.0
        chosen = np.concatenate([chosen, _best(landscape, centrality, len(share))])
    return chosen


def search_breaks(
    landscape: Landscape, budget: int, fires: Sequence[Fire], model: FireModel, minutes: float, candidates: int
) -> Cells:
    """Like `greedy_breaks`, but tries only the cells through which fires now reach the most others.

    This is the search of an agent with centrality in its place: what the search gives without learning.
    """
    ahead, chosen = Lookahead(landscape, fires, model, minutes), np.empty(0, np.int64)
    search = SearchingAgent(_ByCentrality(ahead), lambda cells: ahead.saved(np.array(cells)[:, None]), candidates)
    for _ in range(budget):
        if not ahead.burned().any():
            break
        chosen = np.append(chosen, search(None, {}))
        ahead.place(breaks_from(landscape, chosen))
    return chosen


class _ByCentrality:
    """Ranks burning cells by the number of cells that fires reach by way of them."""

    def __init__(self, ahead: Lookahead) -> None:
        self._ahead = ahead

    def reset(self) -> None:
        """Nothing to forget."""

    def ranked(self, observation: Any, info: dict[str, Any], count: int) -> list[int]:
        paths = np.where(self._ahead.burned(), self._ahead.counts()[1], -1.0).ravel()
        tried = np.argsort(-paths, kind="stable")[:count]
        found: list[int] = tried[paths[tried] >= 0].tolist()
        return found


def greedy_breaks(
    landscape: Landscape,
    budget: int,
    fires: Sequence[Fire],
    model: FireModel,
    minutes: float,
    remember: bool = True,
) -> Cells:
    """Add breaks one at a time, each the cell that lowers the burned area most. Tries every cell that burns.

    A fire does not count for a break in its own ignition cell (see `Lookahead.saved`). `remember=False` simulates every
    fire again for every cell after each break: the same breaks, several times slower.
    """
    ahead, chosen = Lookahead(landscape, fires, model, minutes), np.empty(0, np.int64)
    for _ in range(budget):
        candidates = np.flatnonzero(ahead.burned())
        if not candidates.size:
            break
        if not remember:
            ahead.forget()
        best = candidates[np.argmax(ahead.saved(candidates[:, None]))]
        chosen = np.append(chosen, best)
        ahead.place(breaks_from(landscape, chosen))
    return chosen


def _best(landscape: Landscape, values: NDArray[np.float64], count: int) -> Cells:
    """Burnable cells with the largest values. The first wins a tie."""
    ranked = np.argsort(np.where(landscape.burnable, -values, np.inf), axis=None, kind="stable")
    return ranked[: min(count, np.count_nonzero(landscape.burnable))].astype(np.int64)
