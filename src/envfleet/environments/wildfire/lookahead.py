"""Lookahead: what simulated fires burn with the breaks so far, and what more breaks would save.

A planner may simulate fires of its own. They come from the same ignition map and climate as the fires that measure it,
but they are other fires. The same fires serve three purposes: the observation shows where they burn, a search picks the
best of some candidates, and the greedy baseline tries all cells.

Only fires that come near a new break are spread again. What a candidate saves of the other fires is remembered, so it
costs little to try the same candidates after every break. A break changes about every sixth fire on 25 × 25 cells, and
fewer on larger landscapes. The results are those of spreading all fires again, and do not depend on the order in which
breaks were placed or candidates tried: all sums are whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.fire import Fire, FireModel, SurfaceFire
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.errors import SettingsError

__all__ = ["Lookahead"]


class Lookahead:
    """Simulated fires on a landscape, with the breaks of the last `place`."""

    def __init__(self, landscape: Landscape, fires: Sequence[Fire], model: FireModel, minutes: float) -> None:
        self.landscape, self.fires, self.minutes = landscape, tuple(fires), minutes
        # A separate model: SurfaceFire caches the rates of one set of fires.
        self._model: FireModel = SurfaceFire() if isinstance(model, SurfaceFire) else model
        self._ignitions = np.array([fire.ignition for fire in self.fires], np.int64)
        self._breaks = np.zeros(landscape.shape, np.bool_)
        self.arrival = self._spread_all()  # [fire, row, column]
        self.burned_cells = np.count_nonzero(self.arrival < np.inf, axis=(1, 2))  # [fire]
        self._rows_of_known: dict[bytes, int] = {}  # of each candidate tried so far
        self._known = np.empty((0, len(self.fires)), np.int32)  # cells saved, -1 if not known: [row, fire]
        self._burns: NDArray[np.float64] | None = None
        self._paths: NDArray[np.float64] | None = None

    def place(self, breaks: NDArray[np.bool_]) -> None:
        """Spread the fires around these breaks, which include those so far."""
        new = np.flatnonzero(breaks & ~self._breaks)
        if not new.size:
            return
        changed = self._fires_near(new)
        self._breaks = breaks.copy()
        if not changed.size:
            return
        self._known[:, changed] = -1
        counted = self._paths is not None
        if counted:
            self._count(changed, -1)
        if isinstance(self._model, SurfaceFire):
            again = self._model.spread_some(self.landscape, self.fires, self._breaks, self.minutes, changed)
            self.arrival[changed] = again
            self.burned_cells[changed] = np.count_nonzero(again < np.inf, axis=(1, 2))
        else:
            self.arrival = self._spread_all()
            self.burned_cells = np.count_nonzero(self.arrival < np.inf, axis=(1, 2))
        if counted:
            self._count(changed, 1)

    def saved(self, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of cells that each candidate would save, over all fires: [candidate].

        A candidate is a row of cells that become breaks together: [candidate, cell]. A fire does not count for a break
        in its own ignition cell: that cell would always be the best one against these fires, but is worth little
        against others.
        """
        if isinstance(self._model, SurfaceFire):  # it spreads only fires that come near
            rows = self._rows(candidates)
            without = self.arrival, self.burned_cells
            return self._model.saved_cells(
                self.landscape, self.fires, self._breaks, self.minutes, *without, candidates, (self._known, rows)
            )
        starts_here = (candidates[:, :, None] == self._ignitions).any(axis=1)  # [candidate, fire]
        after = self._cells_with_more_breaks(candidates)
        saved: NDArray[np.int64] = np.where(starts_here, 0, self.burned_cells - after).sum(axis=1)
        return saved

    def forget(self) -> None:
        """Forget what candidates save, so that the next `saved` simulates all of them."""
        self._known[:] = -1

    def burned(self) -> NDArray[np.bool_]:
        """Cells that at least one fire burns: [row, column]."""
        return np.asarray((self.arrival < np.inf).any(axis=0))

    def counts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fires that burn each cell, and cells that burn by way of each cell, over all fires: [row, column] each."""
        if self._burns is None or self._paths is None:
            self._burns, self._paths = np.zeros(self.landscape.shape), np.zeros(self.landscape.shape)
            self._count(np.arange(len(self.fires)), 1)
        return self._burns, self._paths

    def _count(self, numbers: NDArray[np.int64], sign: int) -> None:
        """Add or remove the share of these fires in the counts."""
        from envfleet.environments.wildfire.centrality import path_centrality

        assert self._burns is not None and self._paths is not None
        arrival = self.arrival[numbers]
        self._burns += sign * np.count_nonzero(arrival < np.inf, axis=0)
        # All of a fire burns by way of its ignition, but a break there does not count (see `saved`).
        self._paths += sign * path_centrality(arrival, self._ignitions[numbers])

    def _spread_all(self) -> NDArray[np.float64]:
        arrival = self._model(self.landscape, self.fires, self._breaks, self.minutes)
        if arrival.shape != (expected := (len(self.fires), *self.landscape.shape)):
            raise SettingsError(f"the fire model returned an array of shape {arrival.shape}, expected {expected}")
        return arrival

    def _fires_near(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        if not isinstance(self._model, SurfaceFire):
            return np.arange(len(self.fires))
        from envfleet.environments.wildfire.spread import fires_near

        return fires_near(self.arrival, cells)

    def _cells_with_more_breaks(self, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of cells that each fire burns with more breaks, for each candidate: [candidate, fire]."""
        cells = np.empty((len(candidates), len(self.fires)), np.int64)
        for i, candidate in enumerate(candidates):
            more = self._breaks.copy()
            more.ravel()[candidate] = True
            arrival = self._model(self.landscape, self.fires, more, self.minutes)
            cells[i] = np.count_nonzero(arrival < np.inf, axis=(1, 2))
        return cells

    def _rows(self, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each candidate in what is known: [candidate]. New candidates get new rows."""
        numbers = self._rows_of_known
        rows = [numbers.setdefault(cells.tobytes(), len(numbers)) for cells in candidates]
        if len(numbers) > len(self._known):
            more = np.full((len(numbers), len(self.fires)), -1, np.int32)  # twice as many: rarely copied
            self._known = np.concatenate([self._known, more])
        return np.array(rows, np.int64)
