"""The observation: the eight layers, the breaks so far and, if asked for, two fire channels, each scaled to 0..1."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.fuels import TABLE_SIZE, fuel_table
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.lookahead import Lookahead
from envfleet.environments.wildfire.weather import Weather

__all__ = ["BREAKS", "CHANNELS", "FIRE_CHANNELS", "SCALES", "fires_as_seen", "layers_as_seen"]

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
BREAKS = CHANNELS.index("breaks")
FIRE_CHANNELS = ("burn_probability", "fire_paths")
_BURNS_FOR_1 = 512.0  # cells; see fires_as_seen
_PATHS_FOR_1 = 10_000.0  # cells; see fires_as_seen
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


def layers_as_seen(landscape: Landscape, channels: int = len(CHANNELS)) -> NDArray[np.float32]:
    """The observation of a landscape without breaks; channels after the layers are 0: [channel, row, column]."""
    seen = np.zeros((channels, *landscape.shape), np.float32)
    for channel, (name, scale) in enumerate(SCALES.items()):
        layer = landscape.layer(name)
        if name == "elevation":
            layer = layer - layer.min()
        elif name == "fuel_model":
            layer = fuel_hazard()[layer.astype(np.int64)]
        seen[channel] = np.minimum(layer / np.float32(scale), np.float32(1.0))
    return seen


def fires_as_seen(ahead: Lookahead) -> NDArray[np.float32]:
    """The fire channels, burn probability and fire paths: [channel, row, column].

    The first is the share of fires that burn a cell. The second is the square root of the mean number of cells that
    burn by way of it. Before scaling, both are multiplied by the number of cells of the landscape: a fire of a given
    size burns a smaller share of a larger landscape, and an agent should see the same values there.
    """
    burns, paths = ahead.counts()
    per_fire = burns.size / len(ahead.fires)
    seen = np.stack([burns * (per_fire / _BURNS_FOR_1), np.sqrt(paths * (per_fire / _PATHS_FOR_1))])
    clipped: NDArray[np.float32] = np.minimum(seen, 1.0).astype(np.float32)
    return clipped
