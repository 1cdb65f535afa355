"""Sources of an environment's landscapes: a list, rasters or the generator. Landscapes are numbered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from envfleet.environments.wildfire.generation import LANDSCAPE_TYPES, generate_landscape
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.settings import WildfireSettings
from envfleet.environments.wildfire.sharing import one_copy
from envfleet.errors import SettingsError
from envfleet.seeding import derive_seed

__all__ = ["ANY_LANDSCAPE", "LandscapeSource", "landscape_source"]

ANY_LANDSCAPE = 2**31  # range to draw from if every number is a landscape


class LandscapeSource(Protocol):
    """Landscapes by number. The same number gives the same landscape in every process."""

    count: int  # 0: every number is a landscape

    def landscape(self, number: int) -> Landscape:
        """Return the landscape with this number."""
        ...


def landscape_source(settings: WildfireSettings, landscapes: Sequence[Landscape] | None) -> LandscapeSource:
    """Return the source for the settings. Given landscapes take precedence."""
    if landscapes is not None:
        return _Given(tuple(landscapes))
    if settings.raster_dir is not None:
        from envfleet.environments.wildfire.rasters import RasterCrops, WholeRasters

        return WholeRasters(settings) if settings.whole_rasters else RasterCrops(settings)
    return _Generated(settings)


class _Given:
    def __init__(self, landscapes: tuple[Landscape, ...]) -> None:
        if not landscapes:
            raise SettingsError("landscapes is empty, expected at least one")
        if len(shapes := {landscape.shape for landscape in landscapes}) > 1:
            raise SettingsError(
                f"the landscapes have the shapes {sorted(shapes)}, expected one: an observation space has one shape",
                hint="cut them to the same size, or give each environment its own landscapes (env_kwargs as a list)",
            )
        self.count, self._landscapes = len(landscapes), landscapes

    def landscape(self, number: int) -> Landscape:
        return self._landscapes[number]


class _Generated:
    def __init__(self, settings: WildfireSettings) -> None:
        self.count, self._settings = settings.num_landscapes, settings

    def landscape(self, number: int) -> Landscape:
        settings = self._settings
        kind = settings.landscape_type
        if kind == "any":
            kind = LANDSCAPE_TYPES[number % len(LANDSCAPE_TYPES)]
        return _generated(kind, settings.fire_risk, settings.grid_size, derive_seed(settings.landscape_seed, number))


# Environments in the threads of one process share landscapes.
_generated = one_copy(generate_landscape)
