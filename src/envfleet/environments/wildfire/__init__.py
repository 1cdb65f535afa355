"""Wildfire: a fire model one can trust, landscapes, and an environment in which breaks are placed against fires.

`fuels`, `rothermel` and `spread` are the fire; `weather`, `landscape`, `generation` and `rasters` where it burns;
`environment` what an agent sees and does; `baselines` what it has to beat.
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
