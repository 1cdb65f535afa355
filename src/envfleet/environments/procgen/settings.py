"""The settings of `procgen/<game>`: which levels are played, and how they look.

The library aborts the process on an unknown option, so everything is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from envfleet.settings import Settings, setting

__all__ = ["EXPLORATION_LEVELS", "MODES", "ProcgenSettings", "mode_problem"]

# Modes that only some games have. All have easy and hard.
MODES = {
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
    "exploration": ("caveflyer", "climber", "coinrun", "heist", "jumper", "leaper", "maze", "ninja"),
}
# The one level that exploration mode plays, by game (openai/procgen, env.py).
EXPLORATION_LEVELS = {
    "caveflyer": 1259048185,
    "climber": 1561126160,
    "coinrun": 1949448038,
    "heist": 876640971,
    "jumper": 1434825276,
    "leaper": 1318677581,
    "maze": 158988835,
    "ninja": 1123500215,
}
_LARGEST = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class ProcgenSettings(Settings):
    """Which levels of a Procgen game are played, and how they look."""

    num_levels: int = setting(0, "Number of levels to play; 0 for all.", minimum=0, maximum=_LARGEST)
    start_level: int = setting(0, "Number of the first level.", minimum=0, maximum=_LARGEST)
    distribution_mode: Literal["easy", "hard", "extreme", "memory", "exploration"] = setting(
        "hard",
        "Difficulty of the levels. Only some games have extreme, memory and exploration. exploration plays one "
        "hard level and ignores num_levels and start_level.",
    )
    use_sequential_levels: bool = setting(False, "Continue the episode with another level after one is solved.")
    use_backgrounds: bool = setting(True, "Draw background images; otherwise the background is black.")
    restrict_themes: bool = setting(False, "Use the same theme in all levels.")
    use_monochrome_assets: bool = setting(False, "Draw objects as rectangles of one colour instead of images.")
    use_generated_assets: bool = setting(False, "Use randomly generated images instead of hand-drawn ones.")
    center_agent: bool = setting(True, "Keep the agent in the centre, in games where that is optional.")
    paint_vel_info: bool = setting(False, "Show the agent's velocity in the image (CoinRun, Ninja, Jumper).")

    def problems(self) -> list[str]:
        found = super().problems()
        if isinstance(self.num_levels, int) and isinstance(self.start_level, int):
            last = self.start_level + self.num_levels
            if self.num_levels and last > _LARGEST:
                found.append(
                    f"start_level and num_levels: got {self.start_level} and {self.num_levels}, expected their sum to "
                    f"be at most {_LARGEST}"
                )
            if self.start_level and not self.num_levels:
                found.append(
                    f"start_level: got {self.start_level} without a num_levels above 0; give both: 0 is all levels, "
                    "from 0 on, and the num_levels of a preset does not count"
                )
        return found


def mode_problem(game: str, mode: str) -> str | None:
    """Why a game cannot be played in a mode; None if it can."""
    games = MODES.get(mode)
    if games is None or game in games:
        return None
    return f"the game {game} has no mode {mode!r}; games that have it: {', '.join(games)}"
