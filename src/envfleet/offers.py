"""What an environment may offer beside `reset` and `step`: demonstrations to learn from, a comparison of an agent.

Training and evaluation look for these methods on the unwrapped environment, and know nothing else of it. Settings of
its own are another such offer (`envfleet.settings.declared`), and those may translate what files of others say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

__all__ = [
    "Agent",
    "Compares",
    "Comparison",
    "Demonstrates",
    "Demonstration",
    "HeldOut",
    "HoldsOut",
    "StacksFrames",
    "Translates",
]


@dataclass(frozen=True)
class Demonstration:
    """An episode to be played: the actions, and the options of the reset that it begins with."""

    actions: Sequence[Any]
    options: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Demonstrates(Protocol):
    """An environment that shows how it can be played."""

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """Episodes in the order in which they are to be shown, possibly without end; whoever asks stops in time."""
        ...


class Agent(Protocol):
    """What chooses actions; `reset` comes before every episode."""

    def reset(self) -> None: ...
    def __call__(self, observation: Any, info: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Comparison:
    """How an agent does beside others."""

    text: str  # for people
    figures: dict[str, Any]  # the same as plain data
    folder: Path  # where the report lies


@runtime_checkable
class Compares(Protocol):
    """An environment that can say how good an agent is, beside ways to act that need no learning."""

    def compare(self, agent: Agent, folder: Path, *, episodes: int, seed: int) -> Comparison:
        """Plays `episodes` that no training had, and writes its report and pictures into `folder`."""
        ...


@dataclass(frozen=True)
class HeldOut:
    """What an evaluation plays beside what training plays: it shows what was understood, not learned by heart."""

    trained: str  # what training plays, e.g. "levels of the training"
    all: str  # and what is played here, e.g. "all levels"
    env_kwargs: dict[str, Any]  # the arguments of the environment that are different for it


@runtime_checkable
class HoldsOut(Protocol):
    """An environment that can train on a part of what there is."""

    def generalisation(self) -> HeldOut | None:
        """None where training has everything."""
        ...


@runtime_checkable
class StacksFrames(Protocol):
    """An environment whose observations, or pictures among them, are stacks of the last frames, the newest last."""

    @property
    def frame_stack(self) -> int:
        """How many; 1 where an observation is what was seen last. A replay then stores each frame once."""
        ...


@runtime_checkable
class Translates(Protocol):
    """Settings of an environment that know how another system writes down a training with it."""

    @classmethod
    def translated(cls, values: dict[str, Any], env_kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The settings of a training by key, in our words; and what to tell the user, one line each."""
        ...
