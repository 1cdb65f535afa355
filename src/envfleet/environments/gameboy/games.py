"""The description of a game: memory map, features, rewards and endings. `game_files` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envfleet.environments.gameboy.memory import Value

__all__ = ["BUTTONS", "REWARD_KINDS", "Ending", "Feature", "Game", "RewardTerm", "Start", "Tiles", "Window"]

BUTTONS = ("up", "down", "left", "right", "a", "b", "start", "select")

REWARD_KINDS = {
    "new": "1 if the value, or the list of values, is new in this episode",
    "increase": "the amount by which the value grew in this step",
    "decrease": "the amount by which the value shrank in this step",
    "change": "the change of the value in this step, positive or negative",
    "once": "1 in the first step of the episode in which it is true",
    "when": "1 (or the value itself) in every step in which it is true",
}


@dataclass(frozen=True)
class Start:
    """How an episode begins, from the start state or from power-on."""

    frames: int = 0  # frames to wait after power-on, before the state is saved for every episode
    needs_state: bool = False  # the game cannot be played directly from power-on
    write: Mapping[str, int | str] = field(default_factory=dict)  # values to set; "seed" for a random number
    press: tuple[tuple[tuple[str, ...], int], ...] = ()  # buttons, and the number of frames to hold them
    random_frames: int = 0  # wait up to this many frames without a button, drawn from the seed
    until: str = "1"  # an expression that is true once the player can act
    at_most: int = 600  # frames to wait for `until`


@dataclass(frozen=True)
class Window:
    """A square window of the cells around a position, as numbers."""

    cells: str  # name of the list in memory
    width: int
    x: str  # expressions: the cell at the centre
    y: str
    radius: int
    values: tuple[float, ...]  # the number for each kind of cell; the last one covers all higher kinds
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
    condition: str = "1"  # the term counts only in steps where this is true


@dataclass(frozen=True)
class Ending:
    """A condition that ends the episode."""

    name: str
    when: str
    success: bool


@dataclass(frozen=True)
class Tiles:
    """Location of the screen's cells, for games that keep them in memory. `kinds` is the number of cell kinds."""

    cells: str
    width: int
    height: int
    kinds: int


@dataclass(frozen=True)
class Game:
    """A game as described by its game file."""

    name: str
    source: str  # the file it was read from
    title: str
    rom: Path | None  # the ROM it ships with, if any
    cartridges: tuple[str, ...]  # header titles of the ROMs it fits; empty: any
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
        """For expressions: maps every name to the length of its list (0 for a single number)."""
        return {name: value.length for name, value in self.memory.items()}
