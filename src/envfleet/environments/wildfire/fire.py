"""Fires on a landscape: the protocol of a fire model, and our own model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.fuels import fuel_table
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.weather import Weather

__all__ = ["Fire", "FireModel", "SurfaceFire", "draw_fires"]


@dataclass(frozen=True)
class Fire:
    """The ignition cell (row * columns + column) and the weather of a fire."""

    ignition: int
    weather: Weather


class FireModel(Protocol):
    """A fire model: a function of a landscape, fires and breaks."""

    def __call__(
        self, landscape: Landscape, fires: Sequence[Fire], breaks: NDArray[np.bool_], minutes: float
    ) -> NDArray[np.float64]:
        """Minutes until each fire reaches each cell, infinite if it never does: [fire, row, column].

        Breaks are [row, column]. A cell with a break does not burn. The same arguments must give the same result.
        """
        ...


class SurfaceFire:
    """Rothermel's surface fire, spread by minimum travel time.

    Breaks do not change the spread rates. So the rates of a landscape under each fire's weather are computed once and
    cached until the next call with other fires.
    """

    def __init__(self) -> None:
        from envfleet.environments.wildfire import rothermel, spread

        self._travel_metric, self._arrival_minutes = rothermel.travel_metric, spread.arrival_minutes
        self._prepared_for: tuple[Landscape, tuple[Fire, ...]] | None = None
        self._prepared: _Prepared | None = None

    def __call__(
        self, landscape: Landscape, fires: Sequence[Fire], breaks: NDArray[np.bool_], minutes: float
    ) -> NDArray[np.float64]:
        """Minutes until each fire reaches each cell: [fire, row, column]."""
        return self.spread_some(landscape, fires, breaks, minutes, np.arange(len(fires)))

    def spread_some(
        self,
        landscape: Landscape,
        fires: Sequence[Fire],
        breaks: NDArray[np.bool_],
        minutes: float,
        numbers: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Minutes until the fires with these numbers reach each cell: [number, row, column]."""
        prepared = self._prepare(landscape, tuple(fires))  # tuple() returns the same object for a tuple
        weathers, ignitions = prepared.weathers[numbers], prepared.ignitions[numbers]
        return self._arrival_minutes(prepared.metrics, weathers, ignitions, breaks, float(minutes))

    def saved_cells(
        self,
        landscape: Landscape,
        fires: Sequence[Fire],
        breaks: NDArray[np.bool_],
        minutes: float,
        arrival: NDArray[np.float64],
        burned: NDArray[np.int64],
        candidates: NDArray[np.int64],
        known: tuple[NDArray[np.int32], NDArray[np.int64]],
    ) -> NDArray[np.int64]:
        """Number of cells that each candidate saves if it becomes breaks, over all fires: [candidate].

        A candidate is a row of cells: [candidate, cell]. Without it, the fires have these times `arrival` [fire, row,
        column] and numbers of `burned` cells [fire]. `known` are the results so far [row, fire], which this fills, and
        the row of each candidate (see `spread.saved_cells`).
        """
        from envfleet.environments.wildfire.spread import saved_cells

        prepared = self._prepare(landscape, tuple(fires))
        return saved_cells(
            prepared.metrics,
            prepared.weathers,
            prepared.ignitions,
            breaks,
            float(minutes),
            arrival,
            burned,
            np.ascontiguousarray(candidates, np.int64),
            *known,
        )

    def metric(self, landscape: Landscape, weather: Weather) -> NDArray[np.float64]:
        """Travel times through each cell under one weather (see `rothermel.travel_metric`)."""
        moistures = np.array(weather.moistures)
        return self._travel_metric(
            landscape.layers, fuel_table(), moistures, weather.wind_kmh, weather.wind_from, landscape.cell_size
        )

    def _prepare(self, landscape: Landscape, fires: tuple[Fire, ...]) -> _Prepared:
        known = self._prepared_for
        if self._prepared is None or known is None or known[0] is not landscape or known[1] is not fires:
            numbers = {weather: n for n, weather in enumerate(dict.fromkeys(fire.weather for fire in fires))}
            self._prepared = _Prepared(
                np.stack([self.metric(landscape, weather) for weather in numbers]),
                np.array([numbers[fire.weather] for fire in fires], np.int64),
                np.array([fire.ignition for fire in fires], np.int64),
            )
            self._prepared_for = landscape, fires
        return self._prepared


@dataclass(frozen=True)
class _Prepared:
    """Inputs of the kernel for a set of fires."""

    metrics: NDArray[np.float64]  # [weather, row, column, 5]
    weathers: NDArray[np.int64]  # [fire]
    ignitions: NDArray[np.int64]  # [fire]


def draw_fires(landscape: Landscape, generator: np.random.Generator, count: int) -> tuple[Fire, ...]:
    """Draw fires from the landscape's ignition map and climate, each with its own weather."""
    ignitions = landscape.draw_ignitions(generator, count)
    return tuple(Fire(int(cell), landscape.climate.draw(generator)) for cell in ignitions)
