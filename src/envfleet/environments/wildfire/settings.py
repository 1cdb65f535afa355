"""The settings of the wildfire environment: keyword arguments, config keys and documentation in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from envfleet.environments.wildfire.generation import LANDSCAPE_TYPES, RISKS
from envfleet.environments.wildfire.landscape import LAYERS
from envfleet.settings import Settings, setting
from envfleet.settings.spelling import last_name

__all__ = ["WildfireSettings"]

MEMORIES = ("centrality", "ridge", "random")


@dataclass(frozen=True, kw_only=True)
class WildfireSettings(Settings):
    """The settings of `envfleet/Wildfire-v0`."""

    groups: ClassVar = {
        "grid_size": ("landscapes", "where the fires burn"),
        "budget_percent": ("episodes", "budget, length and rewards of an episode"),
        "memories": ("demonstrations", "shown before training, with `demonstrations: environment`"),
    }

    grid_size: int = setting(25, "rows and columns of a landscape", minimum=4, maximum=2000)
    landscape_type: str = setting(
        "mixed", "terrain and fuels of generated landscapes; any: all in turn", choices=(*LANDSCAPE_TYPES, "any")
    )
    fire_risk: str = setting("medium", "climate (wind and dryness) from which weather is drawn", choices=RISKS)
    num_landscapes: int = setting(0, "number of landscapes; 0: a new one for each episode", minimum=0)
    landscape_seed: int = setting(0, "seed of the landscapes; keep a separate one for evaluation", minimum=0)
    raster_dir: str | None = setting(None, "folder of rasters to cut landscapes from, instead of generating them")
    whole_rasters: bool = setting(False, "one landscape: the whole rasters, instead of crops of grid_size")
    raster_units: str = setting(
        "landfire",
        "units of canopy rasters: landfire (kg/m³ × 100 and m × 10) or plain (kg/m³ and m)",
        choices=("landfire", "plain"),
    )
    budget_percent: float = setting(5.0, "percentage of cells that may become breaks", above=0, maximum=100)
    block_size: int = setting(1, "rows and columns of the block that becomes breaks in one step", minimum=1)
    steps_per_episode: int | None = setting(None, "steps after which an episode is truncated", minimum=1)
    memory_simulations: int = setting(2, "number of fires over which a reward is averaged", minimum=1, maximum=10_000)
    fire_channels: bool = setting(
        False,
        "add burn probability and centrality of fire paths to the observation, from planning_simulations fires around "
        "the breaks so far",
    )
    planning_simulations: int = setting(
        64, "number of fires to plan with: for fire_channels and for evaluate --search", minimum=1, maximum=10_000
    )
    spread_minutes: float = setting(
        120.0, "duration of a fire; if too long, everything burns and breaks do not matter", above=0
    )

    memories: tuple[str, ...] = setting(
        MEMORIES,
        "how demonstrated breaks are placed: by fire-path centrality, on ridges, at random",
        choices=MEMORIES,
    )
    percentage_increment: float = setting(
        2.0,
        "step of the percentage of cells with demonstrated breaks: this, twice this and so on up to 20",
        above=0,
        maximum=20,
    )
    input_channels: int = setting(
        len(LAYERS), "raster layers in the observation; always all of them", choices=(len(LAYERS),)
    )

    @classmethod
    def translated(cls, values: dict[str, Any], env_kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Translate a config written for an earlier system, with its rounds and memories."""
        found, notices = dict(values), []
        words = {last_name(key): value for key, value in found.items()}
        rounds = env_kwargs.get("steps_per_episode")
        if rounds is not None and "round_steps" not in words:
            found["round_steps"] = rounds
            if "num_episodes" in words:
                notices.append(f"num_episodes and frequencies count rounds of {rounds} steps on every environment")
        if "pretrain_steps" in words and "demonstrations" not in words:
            found["demonstrations"] = "environment"
        return found, notices

    def problems(self) -> list[str]:
        """Return the inconsistencies between settings."""
        found = super().problems()
        if self.whole_rasters and self.raster_dir is None:
            found.append("whole_rasters is set without raster_dir, expected a folder of rasters")
        if self.grid_size % self.block_size and not self.whole_rasters:
            found.append(f"block_size: got {self.block_size}, expected a divisor of grid_size {self.grid_size}")
        return found
