"""The settings of `envfleet/GameBoy-v0`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from envfleet.settings import Settings, setting

__all__ = ["OBSERVATIONS", "GameBoySettings"]

OBSERVATIONS = ("features", "pixels", "tiles")


@dataclass(frozen=True, kw_only=True)
class GameBoySettings(Settings):
    """What is played on the Game Boy, and what the agent sees of it."""

    rom: str | None = setting(None, "The ROM (.gb or .gbc); without one, the adventure that ships with Envfleet.")
    game: str = setting("homebrew", "The game's memory map and rewards: one that ships, or the path of a game file.")
    state: str | None = setting(
        None, "Where every episode starts: a state file, made with python -m envfleet.environments.gameboy.start_state."
    )
    observation: str = setting(
        "features", "features (from memory), pixels or tiles; several joined by + give a Dict, e.g. pixels+features."
    )
    episode_length: int = setting(750, "Steps after which an episode is cut off.", minimum=1)
    frame_skip: int = setting(4, "Frames per step, with the same buttons held.", minimum=1, maximum=60)
    sticky: float = setting(
        0.0, "Probability that the last action is repeated in place of the one chosen.", minimum=0, below=1
    )
    stack: int = setting(3, "How many of the last pictures an observation of pixels has.", minimum=1)
    shrink: int = setting(2, "By how much pictures are made smaller in each direction.", minimum=1, maximum=8)
    actions: tuple[str, ...] | None = setting(
        None, "Actions in place of the game's: none, or buttons joined by +, e.g. none up up+a."
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
