"""Draws a landscape: terrain, fuels and burn probability side by side, each with the breaks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.observation import fuel_hazard

__all__ = ["picture"]

Colours = NDArray[np.float64]

_SIDE = 320  # minimum pixels of the longer side of a panel
_GAP = 8  # pixels between panels
_BREAK = (0.05, 0.05, 0.05)
_UNBURNABLE = {91: (0.6, 0.6, 0.6), 92: (1, 1, 1), 93: (0.85, 0.8, 0.6), 98: (0.35, 0.55, 0.85), 99: (0.65, 0.6, 0.55)}
# Colour ramps from 0 to 1.
_HEIGHTS = ((0.30, 0.50, 0.30), (0.65, 0.70, 0.45), (0.70, 0.55, 0.40), (0.97, 0.96, 0.95))
_HAZARDS = ((0.10, 0.35, 0.20), (0.45, 0.65, 0.25), (0.95, 0.85, 0.35), (0.85, 0.35, 0.15))
_PROBABILITIES = ((0.98, 0.97, 0.93), (0.99, 0.80, 0.40), (0.90, 0.30, 0.15), (0.35, 0.0, 0.10))


def picture(
    landscape: Landscape, breaks: NDArray[np.bool_], burn_probability: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Return three panels: [height, width, 3]. Probabilities are coloured from 0 to the largest one."""
    light = _hillshade(landscape)
    elevation = landscape.layer("elevation").astype(np.float64)
    terrain = _ramp(_HEIGHTS, (elevation - elevation.min()) / max(1.0, float(np.ptp(elevation)))) * light
    numbers = landscape.layer("fuel_model").astype(np.int64)
    fuels = _ramp(_HAZARDS, fuel_hazard()[numbers].astype(np.float64)) * (0.5 + 0.5 * light)
    for number, colour in _UNBURNABLE.items():
        fuels[numbers == number] = colour
    largest = max(float(burn_probability.max()), 1e-9)
    burned = _ramp(_PROBABILITIES, burn_probability / largest)
    burned[~landscape.burnable] = (0.8, 0.8, 0.8)
    pixels = max(1, -(-_SIDE // max(landscape.shape)))
    panels = [_panel(colours, breaks, pixels) for colours in (terrain, fuels, burned)]
    gap = np.full((panels[0].shape[0], _GAP, 3), 255, np.uint8)
    return np.concatenate([panels[0], gap, panels[1], gap, panels[2]], axis=1)


def _ramp(stops: tuple[tuple[float, float, float], ...], values: NDArray[np.float64]) -> Colours:
    at = np.linspace(0.0, 1.0, len(stops))
    return np.stack([np.interp(values, at, channel) for channel in np.array(stops).T], axis=-1)


def _hillshade(landscape: Landscape) -> NDArray[np.float64]:
    """Light from the north-west, as usual on maps: [row, column, 1]."""
    slope = np.radians(landscape.layer("slope").astype(np.float64))
    aspect = np.radians(landscape.layer("aspect").astype(np.float64))
    light = np.cos(slope) * np.sin(np.pi / 4) + np.sin(slope) * np.cos(np.pi / 4) * np.cos(aspect - np.radians(315.0))
    shade: NDArray[np.float64] = np.clip(0.35 + 0.85 * light, 0.3, 1.0)[..., None]
    return shade


def _panel(colours: Colours, breaks: NDArray[np.bool_], pixels: int) -> NDArray[np.uint8]:
    large = np.repeat(np.repeat(colours, pixels, axis=0), pixels, axis=1)
    marks = np.repeat(np.repeat(breaks, pixels, axis=0), pixels, axis=1)
    large[marks] = _BREAK
    return np.clip(np.round(255 * large), 0, 255).astype(np.uint8)
