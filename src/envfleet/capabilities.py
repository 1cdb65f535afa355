"""Env capabilities: optional protocols of an environment, such as demonstrations and comparisons.

Training and evaluation look for these methods on the unwrapped environment and know nothing else about it. An
environment can also declare its own settings (`envfleet.settings.declared`), which may translate other systems' files.
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
    "HasHistory",
    "HasTasks",
    "HeldOut",
    "HoldsOut",
    "KnownReturn",
    "KnowsReturns",
    "StacksFrames",
    "Translates",
]


@dataclass(frozen=True)
class Demonstration:
    """An episode to replay: its actions, and the options of its reset."""

    actions: Sequence[Any]
    options: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Demonstrates(Protocol):
    """An environment that provides demonstrations."""

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """Yield episodes in the order to replay them; may be endless, so the consumer decides when to stop."""
        ...


class Agent(Protocol):
    """Chooses actions; `reset` is called before every episode and clears its memory."""

    def reset(self) -> None: ...
    def __call__(self, observation: Any, info: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Comparison:
    """Result of comparing an agent with baselines."""

    text: str  # for people
    figures: dict[str, Any]  # the same as plain data
    folder: Path  # where the report is


@runtime_checkable
class Compares(Protocol):
    """An environment that can compare an agent with baselines that need no learning."""

    def compare(self, agent: Any, folder: Path, *, episodes: int, seed: int) -> Comparison:
        """Play `episodes` that training never sees, and write a report with pictures into `folder`.

        `agent` is an `Agent`. An environment that also implements `envfleet.search.Simulates` must accept another
        argument, `search`: the number of candidates for a search, with an `envfleet.search.RankingAgent`.
        """
        ...


@runtime_checkable
class HasHistory(Protocol):
    """An environment or wrapper whose observations have the previous action and the previous reward, for a memory."""

    def history_parts(self) -> Mapping[str, tuple[str, int, int]]:
        """Return the place of `action` and `reward`: leaf of the observation space, start and stop within it.

        The leaf of an observation that is one vector is "", that of a Dict its key. An empty result says that the
        memory is not to see them.
        """
        ...


@runtime_checkable
class HasTasks(Protocol):
    """An environment with tasks: `reset(options={"task": value})` begins an episode of one of them."""

    def sample_tasks(self, n: int, generator: Any) -> Sequence[Any]:
        """Draw n tasks with a NumPy generator, as plain values: numbers, text, lists, dictionaries."""
        ...


@dataclass(frozen=True)
class HeldOut:
    """The held-out part of an environment that an evaluation also plays, to measure generalisation."""

    trained: str  # name of the part that training plays, e.g. "levels of the training"
    all: str  # name of the part that the evaluation plays, e.g. "all levels"
    env_kwargs: dict[str, Any]  # environment arguments that differ from training


@runtime_checkable
class HoldsOut(Protocol):
    """An environment that can hold out part of its levels or tasks from training."""

    def generalisation(self) -> HeldOut | None:
        """Return the held-out part, or None if training uses everything."""
        ...


@dataclass(frozen=True)
class KnownReturn:
    """A return that is known without learning, to compare with that of an agent."""

    name: str  # e.g. "optimum"
    how: str  # how it was computed, in a few words
    episode_returns: tuple[float, ...]  # the mean of each episode of a trial

    @property
    def trial_return(self) -> float:
        """The return of the whole trial."""
        return sum(self.episode_returns)


@runtime_checkable
class KnowsReturns(Protocol):
    """An environment with tasks that can compute the returns of some agents, such as the best one."""

    def known_returns(self) -> Sequence[KnownReturn]:
        """Return the known returns for the settings of this environment; may take seconds."""
        ...


@runtime_checkable
class StacksFrames(Protocol):
    """An environment whose observations, or the images in them, are stacks of the last frames, newest last."""

    @property
    def frame_stack(self) -> int:
        """Number of stacked frames; 1 means no stacking. With a stack, the replay buffer stores each frame once."""
        ...


@runtime_checkable
class Translates(Protocol):
    """Settings of an environment that can translate another system's training configuration."""

    @classmethod
    def translated(cls, values: dict[str, Any], env_kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return the training settings by our keys, and messages for the user, one line each."""
        ...
