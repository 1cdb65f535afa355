"""The specification of a fleet as plain values: settings, how each group is made, the groups of each worker."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.vector import AutoresetMode

from envfleet.errors import EnvContext, SettingsError
from envfleet.fleet.routine import WorkerRoutine
from envfleet.fleet.validation import Validation

if TYPE_CHECKING:
    from envfleet.fleet.group import Group

__all__ = [
    "EnvMaker",
    "GroupMaker",
    "GroupSettings",
    "GroupSpec",
    "OnError",
    "Restarts",
    "Timeouts",
    "WorkerSpec",
    "default_group_count",
    "group_ranges",
    "split_evenly",
    "stepping_group_count",
]

EnvMaker = Callable[[], "gymnasium.Env[Any, Any]"]
GroupMaker = Callable[["GroupSpec", "GroupSettings"], "Group"]  # decides the kind of group


@dataclass(frozen=True)
class Timeouts:
    """How long an environment may take, in seconds, before it counts as hung; None means no limit."""

    step: float | None = 60.0
    start: float | None = 600.0  # creation and reset

    def __post_init__(self) -> None:
        for name, value in (("step", self.step), ("start", self.start)):
            if value is not None and not value > 0:
                raise SettingsError(f"timeout.{name} is {value!r}, expected seconds above 0 or None")


@dataclass(frozen=True)
class Restarts:
    """At most `limit` restarts of one worker, or of one environment, are allowed `within` this many seconds."""

    limit: int = 10
    within: float = 300.0
    backoff: float = 0.1  # seconds before a second restart, doubled each time up to 5 s

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise SettingsError(f"restarts.limit is {self.limit}, expected 0 or more")


class OnError(Enum):
    """What to do when an environment raises an exception."""

    RAISE = "raise"
    RESTART = "restart"


@dataclass(frozen=True)
class GroupSpec:
    """Environments that one worker steps together: indices `start` to `stop` (exclusive) of the fleet."""

    index: int
    start: int
    stop: int
    make: GroupMaker
    together: bool = False  # one call steps all of its environments, and a hang can be in any of them
    preloads: tuple[str, ...] = ()  # modules to import, if possible, before its worker is forked

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class GroupSettings:
    """Settings shared by all groups."""

    seed: int
    autoreset: AutoresetMode = AutoresetMode.NEXT_STEP
    on_error: OnError = OnError.RAISE
    restarts: Restarts = Restarts()
    recycle_every: int | None = None
    validation: Validation = field(default_factory=lambda: Validation("warn"))
    task_sampler: Callable[[Any], Any] | None = None
    own_spaces: bool = False  # check observations against the space of their own environment
    log_info: tuple[str, ...] = ()  # info keys that are tracked over each episode


@dataclass(frozen=True)
class WorkerSpec:
    """The groups that one worker hosts."""

    index: int
    name: str
    groups: tuple[GroupSpec, ...]
    settings: GroupSettings
    routine: WorkerRoutine | None = None  # code that the worker runs on its groups without the caller
    core: int | None = None  # its process is pinned to this core
    fingerprint: bool = False  # its first message has the digest of torch's arithmetic, if it uses torch

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that all workers need, so that they share what was imported before they were forked."""
        preloads = dict.fromkeys(name for group in self.groups for name in group.preloads)
        return (*preloads, *self._of_routine)

    @property
    def _of_routine(self) -> tuple[str, ...]:
        return () if self.routine is None else self.routine.modules

    def load(self) -> None:
        """Import the modules of the routine."""
        for name in self._of_routine:
            importlib.import_module(name)

    def context(self, env: int, operation: str) -> EnvContext:
        """Where the worker is if environment `env` is running; with a pool, one of its environments."""
        group = next((group for group in self.groups if group.start <= env < group.stop), self.groups[0])
        first = group.start if group.together else max(env, group.start)
        together = len(group) if group.together else 1
        return EnvContext(first, operation, self.settings.seed + first, together=together)


def default_group_count(n_envs: int) -> int:
    """Default number of groups. It depends on `n_envs` alone, because groups affect the results.

    A group has at least 4 environments (BLAS computes smaller batches differently) and at most 32 (so that there
    are enough groups for many cores). In between there are four groups, because every group costs a few microseconds
    per step, plus a forward pass of the policy if the worker acts.
    """
    return max(1, min(n_envs // 4, 4), -(-n_envs // 32))


def stepping_group_count(n_envs: int, workers: int) -> int:
    """Number of groups if groups are only stepped: a multiple of the number of workers, at most `n_envs`."""
    return min(n_envs, workers * -(-default_group_count(n_envs) // workers))


def group_ranges(n_envs: int, count: int) -> list[range]:
    """The environments of each of `count` groups."""
    return [range(part[0], part[-1] + 1) for part in split_evenly(range(n_envs), count)]


def split_evenly(items: Sequence[Any], parts: int) -> list[list[Any]]:
    """Split into `parts` contiguous runs whose lengths differ by at most one."""
    short, longer = divmod(len(items), parts)
    bounds = [0]
    for part in range(parts):
        bounds.append(bounds[-1] + short + (part < longer))
    return [list(items[a:b]) for a, b in itertools.pairwise(bounds)]
