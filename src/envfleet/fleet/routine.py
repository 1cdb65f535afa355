"""A worker routine: code that workers run on their own groups, with many steps per command.

The fleet knows routines only through this protocol. The routine that runs the policy in the workers is in
`envfleet.rollout`; backends know nothing about policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gymnasium import spaces

from envfleet.fleet.memory import Division

if TYPE_CHECKING:
    from envfleet.fleet.arrays import FleetArrays
    from envfleet.fleet.group import Group

__all__ = ["ExtraArray", "GroupRoutine", "WorkerRoutine"]

GroupRoutine = Callable[[Any], None]  # runs on one group, with the argument of `Fleet.run_async`


@dataclass(frozen=True)
class ExtraArray:
    """An array that a routine needs in the fleet's block."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    division: Division


class WorkerRoutine(Protocol):
    """Pickled to every worker when the fleet is made."""

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules it needs that are slow to import. Workers import them before they build environments, callers too."""

    def arrays(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], groups: Sequence[range]
    ) -> tuple[ExtraArray, ...]:
        """The arrays that it needs in the block; called once, in the caller."""

    def attach(self, groups: Sequence[Group], arrays: FleetArrays) -> Sequence[GroupRoutine]:
        """Set up the routine in one worker; return one function per group of the worker."""
