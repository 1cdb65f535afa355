"""The observation: the eight layers and the breaks so far, each scaled to 0..1."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.fuels import TABLE_SIZE, fuel_table
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.weather import Weather

__all__ = ["CHANNELS", "SCALES", "layers_as_seen"]

# Layer -> value that maps to 1; larger values are clipped. Elevation is relative to the lowest cell.
SCALES = {
    "slope": 60.0,  # degrees
    "aspect": 360.0,  # degrees
    "elevation": 500.0,  # m
    "canopy_cover": 100.0,  # %
    "canopy_bulk_density": 0.4,  # kg/m³
    "canopy_base_height": 15.0,  # m
    "canopy_height": 40.0,  # m
    "fuel_model": 1.0,  # see fuel_hazard
}
CHANNELS = (*SCALES, "breaks")
_REFERENCE = Weather(wind_kmh=15.0, dead_1h=0.06, dead_10h=0.07, dead_100h=0.09, live_herbs=0.6, live_wood=0.9)


@functools.cache
def fuel_hazard() -> NDArray[np.float32]:
    """Map each fuel model to 0..1: the square root of its rate of spread relative to the fastest model.

    Model numbers are only labels, so a network could not use them directly. The rate is that of a head fire on flat
    open ground in a fixed weather. Unburnable models get 0.
    """
    from envfleet.environments.wildfire.rothermel import (
        FEET_PER_MINUTE_OF_KMH,
        fuel_bed,
        midflame_factor,
        spread_ellipse,
    )

    table, moistures = fuel_table(), np.array(_REFERENCE.moistures)
    rates = np.zeros(TABLE_SIZE)
    for number in np.flatnonzero(table[:, 0]):
        wind = _REFERENCE.wind_kmh * FEET_PER_MINUTE_OF_KMH * midflame_factor(table[number, 0], 0.0, 0.0)
        rates[number] = spread_ellipse(fuel_bed(table[number], moistures), 0.0, wind, 0.0, 0.0)[0]
    hazard: NDArray[np.float32] = np.round(np.sqrt(rates / rates.max()), 3).astype(np.float32)
    hazard.setflags(write=False)
    return hazard


def layers_as_seen(landscape: Landscape) -> NDArray[np.float32]:
    """The observation of a landscape without breaks: [channel, row, column]."""
    seen = np.zeros((len(CHANNELS), *landscape.shape), np.float32)
    for channel, (name, scale) in enumerate(SCALES.items()):
        layer = landscape.layer(name)
        if name == "elevation":
            layer = layer - layer.min()
        elif name == "fuel_model":
            layer = fuel_hazard()[layer.astype(np.int64)]
        seen[channel] = np.minimum(layer / np.float32(scale), np.float32(1.0))
    return seen
