"""Landscapes generated from a seed: hills, a mosaic of fuels, and unburnable water, rock or fields.

Hills use only sums, products and comparisons, and layers are rounded like LANDFIRE's. So a seed gives the same
landscape on every machine.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.weather import CLIMATES
from envfleet.errors import SettingsError
from envfleet.seeding import stream

__all__ = ["LANDSCAPE_TYPES", "RISKS", "generate_landscape"]

Floats = NDArray[np.float64]

RISKS = tuple(CLIMATES)
# Fuel models and their share of the burnable land, from the dampest ground to the driest.
_MOSAICS: dict[str, tuple[tuple[int, float], ...]] = {
    "forest": ((181, 0.10), (183, 0.15), (161, 0.15), (165, 0.25), (188, 0.10), (122, 0.15), (102, 0.10)),
    "grassland": ((101, 0.35), (121, 0.25), (102, 0.25), (104, 0.05), (141, 0.10)),
    "mixed": ((183, 0.10), (161, 0.15), (101, 0.15), (102, 0.20), (122, 0.20), (165, 0.10), (145, 0.10)),
}
LANDSCAPE_TYPES = tuple(_MOSAICS)
_UNBURNABLE_SHARE = {"forest": 0.06, "grassland": 0.08, "mixed": 0.10}
_WATER, _ROCK, _FIELD = 98, 99, 93
_CELL_SIZE = 30.0  # m
_RELIEF = {"forest": 220.0, "grassland": 60.0, "mixed": 140.0}  # m between the lowest and the highest cell
_TREES = {161, 165, 181, 183, 188}
_VALLEY_IGNITIONS = 3.0  # fires begin more often in valleys, where people are


def generate_landscape(kind: str = "mixed", risk: str = "medium", size: int = 25, seed: int = 0) -> Landscape:
    """Generate a landscape of `size` × `size` cells. `kind` sets terrain and fuels, `risk` the climate."""
    for name, value, valid in (("landscape_type", kind, LANDSCAPE_TYPES), ("fire_risk", risk, RISKS)):
        if value not in valid:
            raise SettingsError(f"{name} is {value!r}, expected one of {', '.join(valid)}")
    generator = stream(seed, 0x57F1)
    height = _stretched(_noise(generator, size, 1.0, octaves=2))
    elevation = np.round(400.0 + height * _RELIEF[kind] * min(1.0, size / 25))
    slope, aspect = _terrain(elevation)
    fuel = _fuels(generator, kind, size, height)
    trees = np.isin(fuel, list(_TREES))
    density = _stretched(_noise(generator, size, 4.0))
    cover = np.where(trees, np.round(30.0 + 50.0 * density), 0.0)
    canopy_height = np.where(trees, np.round(8.0 + 14.0 * density, 1), 0.0)
    layers = {
        "slope": slope,
        "aspect": aspect,
        "elevation": elevation,
        "canopy_cover": cover,
        "canopy_bulk_density": np.where(trees, np.round(0.05 + 0.15 * density, 2), 0.0),
        "canopy_base_height": np.round(canopy_height * 0.3, 1),
        "canopy_height": canopy_height,
        "fuel_model": fuel,
    }
    weights = 1.0 + (_VALLEY_IGNITIONS - 1.0) * (1.0 - height) ** 2
    name = f"{kind} of {risk} risk, seed {seed}"
    return Landscape(layers, cell_size=_CELL_SIZE, name=name, climate=CLIMATES[risk], ignition_weights=weights)


def _fuels(generator: np.random.Generator, kind: str, size: int, height: Floats) -> Floats:
    """Patches of fuel models, drier uphill, with unburnable patches on top."""
    dryness = _ranked(0.35 * height + 0.65 * _stretched(_noise(generator, size, 5.0)))
    numbers, shares = zip(*_MOSAICS[kind], strict=True)
    ends = np.cumsum(shares)
    fuel = np.array(numbers, np.float64)[np.minimum(np.searchsorted(ends, dryness, side="right"), len(ends) - 1)]
    barren = _ranked(_noise(generator, size, 6.0)) >= 1.0 - _UNBURNABLE_SHARE[kind]
    low, high = height < 0.3, height > 0.7
    fuel[barren] = np.where(low, _WATER, np.where(high, _ROCK, _FIELD))[barren]
    return fuel


@functools.cache
def _lattice(size: int, nodes: int) -> tuple[NDArray[np.int64], Floats]:
    """For each cell, the lattice node before it and the smoothed fraction of the way to the next node."""
    position = (np.arange(size) + 0.5) / size * (nodes - 1)
    first = np.minimum(position.astype(np.int64), nodes - 2)
    share = position - first
    return first, share * share * (3.0 - 2.0 * share)


def _noise(generator: np.random.Generator, size: int, waves: float, octaves: int = 3) -> Floats:
    """Smooth noise: a sum of random lattices, each twice as fine and half as high as the one before."""
    total = np.zeros((size, size))
    scale = max(1.0, size / 25)
    for octave in range(octaves):
        nodes = int(waves * scale * 2**octave) + 2
        first, share = _lattice(size, nodes)
        values = generator.random((nodes, nodes))
        rows = values[first] * (1.0 - share[:, None]) + values[first + 1] * share[:, None]
        total += (rows[:, first] * (1.0 - share) + rows[:, first + 1] * share) / 2**octave
    return total


def _stretched(field: Floats) -> Floats:
    """Rescale the field to 0..1."""
    stretched: Floats = (field - field.min()) / (field.max() - field.min())
    return stretched


def _ranked(field: Floats) -> Floats:
    """Share of cells below each cell."""
    ranks = np.empty(field.size)
    ranks[np.argsort(field, axis=None, kind="stable")] = np.arange(field.size) / field.size
    return ranks.reshape(field.shape)


def _terrain(elevation: Floats) -> tuple[Floats, Floats]:
    """Slope and aspect in whole degrees."""
    to_south, to_east = np.gradient(elevation, _CELL_SIZE)
    slope: Floats = np.degrees(np.arctan(np.hypot(to_south, to_east)))
    downhill: Floats = np.degrees(np.arctan2(-to_east, to_south))  # clockwise from north
    return np.round(slope), np.round(downhill) % 360
