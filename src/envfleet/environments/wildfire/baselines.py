"""Baselines that place breaks without learning.

Each returns cells (row * columns + column) in the order in which it would make them breaks. Some plan against given
fires; evaluate those with `burned_hectares` on other fires.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.fire import Fire, FireModel, SurfaceFire
from envfleet.environments.wildfire.landscape import Landscape

__all__ = [
    "breaks_from",
    "burned_hectares",
    "centrality_breaks",
    "greedy_breaks",
    "no_breaks",
    "random_breaks",
    "ridge_breaks",
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
    from envfleet.environments.wildfire.spread import path_centrality

    fires, chosen = tuple(fires), np.empty(0, np.int64)
    for share in np.array_split(np.arange(budget), rounds):
        arrival = model(landscape, fires, breaks_from(landscape, chosen), minutes)
        centrality = path_centrality(arrival)
        centrality.ravel()[chosen] = -1.0
        chosen = np.concatenate([chosen, _best(landscape, centrality, len(share))])
    return chosen


def greedy_breaks(landscape: Landscape, budget: int, fires: Sequence[Fire], model: FireModel, minutes: float) -> Cells:
    """Add breaks one at a time, each the cell that lowers the burned area most. Tries every cell that burns.

    A fire does not count for a break in its own ignition cell: that cell would always be the best one against the given
    fires, but is worth little against others.
    """
    fires, chosen = tuple(fires), np.empty(0, np.int64)
    ignitions = np.array([fire.ignition for fire in fires])
    breaks = np.zeros(landscape.shape, np.bool_)
    for _ in range(budget):
        burned = model(landscape, fires, breaks, minutes) < np.inf
        cells_per_fire = np.count_nonzero(burned, axis=(1, 2))
        candidates = np.flatnonzero(burned.any(axis=0))
        if not candidates.size:
            break
        cells = _with_one_more(landscape, fires, breaks, model, minutes, candidates)
        left = np.where(ignitions == candidates[:, None], cells_per_fire, cells).sum(axis=1)
        best = candidates[np.argmin(left)]
        breaks.ravel()[best] = True
        chosen = np.append(chosen, best)
    return chosen


def _with_one_more(
    landscape: Landscape,
    fires: tuple[Fire, ...],
    breaks: NDArray[np.bool_],
    model: FireModel,
    minutes: float,
    candidates: Cells,
) -> NDArray[np.int64]:
    """Number of cells that each fire burns with one more break, for each candidate: [candidate, fire]."""
    if isinstance(model, SurfaceFire):  # it reuses results instead of spreading every fire again
        return model.cells_with_one_more_break(landscape, fires, breaks, minutes, candidates)
    cells = np.empty((candidates.size, len(fires)), np.int64)
    for i, cell in enumerate(candidates):
        with_one_more = breaks.copy()
        with_one_more.ravel()[cell] = True
        cells[i] = np.count_nonzero(model(landscape, fires, with_one_more, minutes) < np.inf, axis=(1, 2))
    return cells


def _best(landscape: Landscape, values: NDArray[np.float64], count: int) -> Cells:
    """Burnable cells with the largest values. The first wins a tie."""
    ranked = np.argsort(np.where(landscape.burnable, -values, np.inf), axis=None, kind="stable")
    return ranked[: min(count, np.count_nonzero(landscape.burnable))].astype(np.int64)
