"""A program: work that workers do on their own groups, many steps for one command.

The fleet knows programs by this protocol only. The one that lets workers act by themselves is in
`envfleet.rollout`; a place that hosts it knows nothing of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gymnasium import spaces

if TYPE_CHECKING:
    from envfleet.fleet.arrays import FleetArrays
    from envfleet.fleet.group import Group

__all__ = ["ExtraArray", "GroupProgram", "Program"]

GroupProgram = Callable[[Any], None]  # carries out one order on one group


@dataclass(frozen=True)
class ExtraArray:
    """An array that a program wants in the fleet's block."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Program(Protocol):
    """Pickled to every worker when the fleet is made."""

    def load(self) -> None:
        """Imports what it needs: in every worker before its environments are built, and meanwhile in the caller."""

    def arrays(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], groups: Sequence[range]
    ) -> tuple[ExtraArray, ...]:
        """What it needs in the block; asked once, in the caller."""

    def attach(self, groups: Sequence[Group], arrays: FleetArrays) -> Sequence[GroupProgram]:
        """Takes its seat in one worker: a function for each of the worker's groups."""
