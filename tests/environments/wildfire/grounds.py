"""Uniform landscapes, on which the answer is known."""

from __future__ import annotations

import numpy as np

from envfleet.environments.wildfire import LAYERS, Landscape

__all__ = ["even_ground"]


def even_ground(size: int, fuel: int) -> Landscape:
    """Return flat, open ground with one fuel."""
    layers = {name: np.zeros((size, size)) for name in LAYERS}
    return Landscape(layers | {"fuel_model": np.full((size, size), fuel)}, name="even ground")
