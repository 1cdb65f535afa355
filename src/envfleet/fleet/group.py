"""A group: a fixed number of environments, stepped, seeded and reset together by one worker.

Only groups step environments. Autoreset, episode statistics, checks and error capture happen there, so that every
backend gives the same bytes. There are two kinds: a loop over Gymnasium environments (`loop_group.py`) and a pool that
steps all of its environments in one call (`pool_group.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import gymnasium
from gymnasium import spaces

from envfleet.errors import EnvfleetError, StateError, UnsupportedError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.infos import ColumnDefinition
from envfleet.fleet.routine import GroupRoutine
from envfleet.fleet.spec import GroupSpec

__all__ = ["Capability", "Extras", "Group", "GroupDescription", "InfoSink", "unsupported"]

InfoSink = Callable[[int, dict[str, Any]], None]  # receives (environment of the group, info)


@dataclass
class Extras:
    """Results of a step that are not in the arrays: infos without a column, and values of object leaves."""

    infos: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # (environment of the group, info)
    objects: dict[Any, list[Any]] = field(default_factory=dict)  # leaf path -> one value per environment


class Capability(Enum):
    """Something that not every kind of group can do; the value completes the sentence 'a pool cannot ...'."""

    STATE = "save and restore the state of its environments"
    TASKS = "give its environments tasks"
    CALLS = "call single environments or access their attributes"
    RECYCLING = "rebuild single environments, as recycle_every asks"


def unsupported(capability: Capability) -> EnvfleetError:
    """The error for asking a group for something that its kind cannot do."""
    kind = StateError if capability is Capability.STATE else UnsupportedError
    return kind(f"a pool cannot {capability.value}", hint="write it as a gymnasium.Env if you need this")


@dataclass(frozen=True)
class GroupDescription:
    """Spaces, metadata and capabilities of a group, known once it is built."""

    observation_spaces: list[spaces.Space[Any]]  # one per environment
    action_spaces: list[spaces.Space[Any]]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: Any
    capabilities: frozenset[Capability]

    @classmethod
    def of(cls, envs: Sequence[gymnasium.Env[Any, Any]]) -> GroupDescription:
        """Description of ordinary environments, which can do everything."""
        return cls(
            [env.observation_space for env in envs],
            [env.action_space for env in envs],
            dict(envs[0].metadata),
            envs[0].render_mode,
            envs[0].spec,
            frozenset(Capability),
        )


class Group(Protocol):
    """Steps its environments and writes their results into the fleet's arrays.

    `build` comes first, then `attach`; from then on a group can be reset, and after that stepped.
    """

    spec: GroupSpec
    episode_ended: bool  # by the last step
    fresh: bool  # a worker's death cut its episodes and they were restarted; the routine must know
    routine: GroupRoutine | None  # steps the group without the caller
    info_sink: InfoSink | None  # receives infos instead of the columns

    def build(self) -> GroupDescription: ...

    def attach(self, arrays: FleetArrays, worker: int) -> None:
        """Attach to its rows of the fleet's arrays."""

    def define_columns(self, definitions: list[ColumnDefinition]) -> None:
        """Learn the columns for infos."""

    @property
    def newest_slot(self) -> int:
        """Slot of its newest observations."""

    @property
    def columns_present(self) -> int:
        """A bit per info column that the last step filled."""

    def step(self, slot: int, actions: list[Any] | None = None) -> Extras | None:
        """Step every environment once with its action and fill the arrays of `slot`.

        `actions` has one object per environment if they do not fit into arrays.
        """

    def reset(
        self,
        slot: int,
        *,
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        tasks: Sequence[Any] | None,
        mask: Sequence[bool] | None,
    ) -> Extras | None:
        """Reset the environments in `mask` (all if it is None); the others continue their episodes."""

    def recover(self, slot: int, *, seeds: Sequence[int], tasks: Sequence[Any], ended: Sequence[bool]) -> Extras | None:
        """Replace the step that a dead worker lost: its environments are new, and the cut episodes end as truncated."""

    def begin_fresh(self, slot: int, *, seeds: Sequence[int], tasks: Sequence[Any]) -> None:
        """Begin new episodes after a worker's death, for a group whose routine does its own bookkeeping."""

    def rebuild(self) -> None:
        """Replace all environments with fresh ones, which must be reset afterwards."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], only: set[int] | None) -> list[Any]:
        """Attribute `name` of the environments in `only` (all if it is None); if callable, the result of calling it."""

    def starting(self) -> AbstractContextManager[None]:
        """Show that environments are being built or reset, which may take longer than a step."""

    def apply(self, function: Callable[[Any], Any]) -> list[Any]:
        """Results of `function` for each environment; a generator's items as a list."""

    def set_attr(self, name: str, values: Sequence[Any]) -> None: ...

    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        """The environment objects, for a caller in the same process."""

    def state(self) -> list[dict[str, Any]]:
        """State of every environment and its episode as plain data."""

    def restore(self, slot: int, states: Sequence[dict[str, Any]]) -> None:
        """Restore captured states; the arrays of `slot` already hold their observations."""

    def close(self) -> None: ...
