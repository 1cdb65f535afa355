"""The settings of the wildfire environment: its keyword arguments, its options in files, its documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from envfleet.environments.wildfire.generation import LANDSCAPE_TYPES, RISKS
from envfleet.environments.wildfire.landscape import LAYERS
from envfleet.settings import Settings, setting

__all__ = ["WildfireSettings"]

MEMORIES = ("centrality", "ridge", "random")


@dataclass(frozen=True, kw_only=True)
class WildfireSettings(Settings):
    """What `envfleet/Wildfire-v0` can be asked for."""

    groups: ClassVar = {
        "grid_size": ("landscapes", "where the fires burn"),
        "budget_percent": ("episodes", "what an episode is, and what it rewards"),
        "memories": ("demonstrations", "what is shown before the training, with `demonstrations: environment`"),
    }

    grid_size: int = setting(25, "rows and columns of a landscape", minimum=4, maximum=2000)
    landscape_type: str = setting(
        "mixed", "terrain and fuels of generated landscapes; any: each in turn", choices=(*LANDSCAPE_TYPES, "any")
    )
    fire_risk: str = setting("medium", "wind and dryness: the climate from which weather is drawn", choices=RISKS)
    num_landscapes: int = setting(0, "how many landscapes there are; 0: a new one for each episode", minimum=0)
    landscape_seed: int = setting(0, "other seeds give other landscapes: keep one for evaluation", minimum=0)
    raster_dir: str | None = setting(None, "a folder of rasters to cut landscapes from, instead of generating them")
    raster_units: str = setting(
        "landfire",
        "units of canopy rasters: landfire (kg/m³ × 100 and m × 10) or plain (kg/m³ and m)",
        choices=("landfire", "plain"),
    )
    budget_percent: float = setting(5.0, "cells that may become breaks, in percent of all", above=0, maximum=100)
    block_size: int = setting(1, "rows and columns of cells that become breaks in one step", minimum=1)
    steps_per_episode: int | None = setting(None, "truncate an episode after so many steps", minimum=1)
    memory_simulations: int = setting(2, "fires over which a reward is the mean", minimum=1, maximum=10_000)
    spread_minutes: float = setting(
        120.0, "how long a fire burns; if it burns long, everything burns and no break matters", above=0
    )

    memories: tuple[str, ...] = setting(
        MEMORIES,
        "by what demonstrated breaks are placed: centrality of fire paths, ridge lines, chance",
        choices=MEMORIES,
    )
    percentage_increment: float = setting(
        2.0,
        "demonstrated are breaks on so many percent of the cells, on twice as many and so on up to 20",
        above=0,
        maximum=20,
    )
    input_channels: int = setting(
        len(LAYERS), "raster layers in the observation, which are always all of them", choices=(len(LAYERS),)
    )

    @classmethod
    def translated(cls, values: dict[str, Any], env_kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """A training as the system before this one has it in its files: rounds, memories."""
        found, notices = dict(values), []
        words = {_word(key): value for key, value in found.items()}
        rounds = env_kwargs.get("steps_per_episode")
        if rounds is not None and "round_steps" not in words:
            found["round_steps"] = rounds
            if "num_episodes" in words:
                notices.append(f"num_episodes and frequencies count rounds of {rounds} steps on every environment")
        if "pretrain_steps" in words and "demonstrations" not in words:
            found["demonstrations"] = "environment"
        return found, notices

    def problems(self) -> list[str]:
        """What does not fit together."""
        found = super().problems()
        if self.grid_size % self.block_size:
            found.append(f"block_size: got {self.block_size}, expected a divisor of grid_size {self.grid_size}")
        return found


def _word(key: str) -> str:
    """A key of a file or a flag as the name it means."""
    return key.rpartition(".")[2].removeprefix("--").replace("-", "_")
