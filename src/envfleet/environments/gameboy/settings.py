"""The settings of `envfleet/GameBoy-v0`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from envfleet.settings import Settings, setting

__all__ = ["OBSERVATIONS", "GameBoySettings"]

OBSERVATIONS = ("features", "pixels", "tiles")


@dataclass(frozen=True, kw_only=True)
class GameBoySettings(Settings):
    """The game to play, and what the agent observes."""

    rom: str | None = setting(None, "Path of a ROM (.gb or .gbc). Default: the adventure that ships with Envfleet.")
    game: str = setting("homebrew", "Memory map and rewards: the name of a shipped game, or the path of a game file.")
    state: str | None = setting(
        None, "State file that episodes start from, made with python -m envfleet.environments.gameboy.start_state."
    )
    observation: str = setting(
        "features", "features (from memory), pixels or tiles. Join several with + for a Dict, e.g. pixels+features."
    )
    episode_length: int = setting(750, "Steps after which an episode is truncated.", minimum=1)
    frame_skip: int = setting(4, "Frames per step. The buttons stay held.", minimum=1, maximum=60)
    sticky: float = setting(
        0.0, "Probability of repeating the last action instead of the chosen one.", minimum=0, below=1
    )
    stack: int = setting(3, "Number of frames stacked in a pixels observation.", minimum=1)
    shrink: int = setting(2, "Factor by which frames are downscaled in each direction.", minimum=1, maximum=8)
    actions: tuple[str, ...] | None = setting(
        None, "Actions that replace the game's: none, or buttons joined by +, e.g. none up up+a."
    )

    def problems(self) -> list[str]:
        found = super().problems()
        parts = self.observation.split("+")
        for part in parts:
            if part not in OBSERVATIONS:
                near = difflib.get_close_matches(part, OBSERVATIONS, n=1)
                advice = f"; did you mean {near[0]!r}?" if near else ""
                found.append(f"observation: got {part!r}, expected some of {', '.join(OBSERVATIONS)}{advice}")
        if len(set(parts)) < len(parts):
            found.append(f"observation: got {self.observation!r}, expected each part once")
        if self.actions is not None and not self.actions:
            found.append("actions: got none at all, expected at least one")
        if 144 % self.shrink or 160 % self.shrink:
            found.append(f"shrink: got {self.shrink}, expected a divisor of 144 and 160: 1, 2, 4 or 8")
        return found
