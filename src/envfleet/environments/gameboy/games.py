"""What the environment knows of a game: its memory map, features, rewards and ends. `game_files` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envfleet.environments.gameboy.memory import Value

__all__ = ["BUTTONS", "REWARD_KINDS", "Ending", "Feature", "Game", "RewardTerm", "Start", "Tiles", "Window"]

BUTTONS = ("up", "down", "left", "right", "a", "b", "start", "select")

REWARD_KINDS = {
    "new": "1 where the value, or the list of values, was not there before in this episode",
    "increase": "by how much the value grew in this step",
    "decrease": "by how much the value shrank in this step",
    "change": "how the value changed in this step, down as well as up",
    "once": "1 in the first step of the episode in which it is true",
    "when": "1 (or the value itself) in every step in which it is true",
}


@dataclass(frozen=True)
class Start:
    """How an episode begins, from the start state or from switching on."""

    frames: int = 0  # frames to wait after switching on, before the state is kept for every episode
    needs_state: bool = False  # the game cannot be played from switching on alone
    write: Mapping[str, int | str] = field(default_factory=dict)  # values to set; "seed" for drawn numbers
    press: tuple[tuple[tuple[str, ...], int], ...] = ()  # buttons and for how many frames
    random_frames: int = 0  # up to so many frames without a button, drawn by the seed
    until: str = "1"  # an expression that tells when the player can act
    at_most: int = 600  # frames to wait for it


@dataclass(frozen=True)
class Window:
    """A square of the cells around a place, as numbers."""

    cells: str  # the list in memory
    width: int
    x: str  # expressions: the cell in the middle
    y: str
    radius: int
    values: tuple[float, ...]  # what each kind of cell counts; the last one for all above
    outside: float

    @property
    def size(self) -> int:
        return (2 * self.radius + 1) ** 2


@dataclass(frozen=True)
class Feature:
    """One entry of the feature vector: a number, a category, bits, or a window."""

    name: str
    kind: str  # "number", "one_hot", "bits" or "window"
    expression: str = "0"
    size: int = 1
    window: Window | None = None


@dataclass(frozen=True)
class RewardTerm:
    name: str
    kind: str  # a key of REWARD_KINDS
    expressions: tuple[str, ...]
    weight: float
    condition: str = "1"  # the term counts only in steps in which this is true


@dataclass(frozen=True)
class Ending:
    """A condition that ends the episode."""

    name: str
    when: str
    success: bool


@dataclass(frozen=True)
class Tiles:
    """Where the cells of the screen are, for games that keep them in memory; `kinds` is how many there are."""

    cells: str
    width: int
    height: int
    kinds: int


@dataclass(frozen=True)
class Game:
    """One game."""

    name: str
    source: str  # the file it was read from
    title: str
    rom: Path | None  # that it ships with
    cartridges: tuple[str, ...]  # titles in the header of ROMs that it fits; none: any
    actions: tuple[str, ...]
    memory: Mapping[str, Value]
    start: Start
    features: tuple[Feature, ...]
    rewards: tuple[RewardTerm, ...]
    endings: tuple[Ending, ...]
    info: Mapping[str, str]
    tiles: Tiles | None

    @property
    def lengths(self) -> dict[str, int]:
        """For expressions: every name, and how many numbers it is."""
        return {name: value.length for name, value in self.memory.items()}
