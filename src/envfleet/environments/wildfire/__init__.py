"""Wildfire: a verified fire model, landscapes, and an environment in which an agent places fuel breaks.

`fuels`, `rothermel` and `spread` model the fire. `weather`, `landscape`, `generation` and `rasters` describe where it
burns. `environment` defines observations and actions. `baselines` are what an agent has to beat.
"""

from __future__ import annotations

from envfleet.environments.wildfire.environment import WildfireEnv
from envfleet.environments.wildfire.fire import Fire, FireModel, SurfaceFire, draw_fires
from envfleet.environments.wildfire.generation import generate_landscape
from envfleet.environments.wildfire.landscape import LAYERS, Landscape
from envfleet.environments.wildfire.rasters import Rasters, write_geotiff
from envfleet.environments.wildfire.settings import WildfireSettings
from envfleet.environments.wildfire.weather import CLIMATES, Climate, Weather

__all__ = [
    "CLIMATES",
    "LAYERS",
    "Climate",
    "Fire",
    "FireModel",
    "Landscape",
    "Rasters",
    "SurfaceFire",
    "Weather",
    "WildfireEnv",
    "WildfireSettings",
    "draw_fires",
    "generate_landscape",
    "write_geotiff",
]
