"""Requests from the caller to a group, beyond a plain step: one small class each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from envfleet.fleet.control import Command, Phase
from envfleet.fleet.group import Extras, Group
from envfleet.fleet.infos import ColumnDefinition

__all__ = [
    "REPEATED",
    "Apply",
    "Call",
    "Capture",
    "DefineColumns",
    "Posted",
    "Rebuild",
    "Recover",
    "Request",
    "Reset",
    "Restore",
    "RunRoutine",
    "SetAttr",
    "StepObjects",
]


class Request:
    """Carried out by a group; the result of `apply` is sent back, and an exception is raised in the caller."""

    phase: ClassVar[int] = Phase.STEP  # which time limit applies; during resets the group switches to START itself
    command: ClassVar[int] = Command.REQUEST

    def apply(self, group: Group, slot: int) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Reset(Request):
    seeds: Sequence[int | None]
    options: dict[str, Any] | None
    tasks: Sequence[Any] | None
    mask: Sequence[bool] | None

    def apply(self, group: Group, slot: int) -> Extras | None:
        return group.reset(slot, seeds=self.seeds, options=self.options, tasks=self.tasks, mask=self.mask)


@dataclass(frozen=True)
class Recover(Request):
    """Replaces the step that a dead worker lost."""

    seeds: Sequence[int]
    tasks: Sequence[Any]
    ended: Sequence[bool]

    def apply(self, group: Group, slot: int) -> Extras | None:
        return group.recover(slot, seeds=self.seeds, tasks=self.tasks, ended=self.ended)


@dataclass(frozen=True)
class RunRoutine(Request):
    """Runs a group's routine with this argument; with `lost`, first replaces the episodes that a dead worker lost."""

    command: ClassVar[int] = Command.ROUTINE
    argument: Any
    buffer: int = 0  # of the routine's arrays, which it fills
    lost: Recover | None = None

    def apply(self, group: Group, slot: int) -> int:
        """Run the routine and return the slot of the newest observations."""
        if self.lost is not None:
            group.begin_fresh(slot, seeds=self.lost.seeds, tasks=self.lost.tasks)
        assert group.routine is not None, "a fleet made without a routine is not asked to run one"
        group.routine(self.argument)
        return group.newest_slot


@dataclass(frozen=True)
class StepObjects(Request):
    """A step with actions that are objects (Text, Graph, Sequence) and do not fit into arrays."""

    actions: list[Any]

    def apply(self, group: Group, slot: int) -> Extras | None:
        return group.step(slot, self.actions)


@dataclass(frozen=True)
class DefineColumns(Request):
    definitions: list[ColumnDefinition]

    def apply(self, group: Group, slot: int) -> None:
        group.define_columns(self.definitions)


@dataclass(frozen=True)
class Call(Request):
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    only: set[int] | None = None

    def apply(self, group: Group, slot: int) -> list[Any]:
        return group.call(self.name, self.args, self.kwargs, self.only)


@dataclass(frozen=True)
class Apply(Request):
    phase: ClassVar[int] = Phase.START
    function: Callable[[Any], Any]

    def apply(self, group: Group, slot: int) -> list[Any]:
        return group.apply(self.function)


@dataclass(frozen=True)
class Rebuild(Request):
    phase: ClassVar[int] = Phase.START

    def apply(self, group: Group, slot: int) -> None:
        group.rebuild()


@dataclass(frozen=True)
class SetAttr(Request):
    name: str
    values: Sequence[Any]

    def apply(self, group: Group, slot: int) -> None:
        group.set_attr(self.name, self.values)


@dataclass(frozen=True)
class Capture(Request):
    phase: ClassVar[int] = Phase.START

    def apply(self, group: Group, slot: int) -> list[dict[str, Any]]:
        return group.state()


@dataclass(frozen=True)
class Restore(Request):
    phase: ClassVar[int] = Phase.START
    states: Sequence[dict[str, Any]]

    def apply(self, group: Group, slot: int) -> None:
        group.restore(slot, self.states)


REPEATED = (Reset, Restore, DefineColumns, Rebuild, RunRoutine, Call, SetAttr)  # after a worker was restarted


class Posted(NamedTuple):
    """A command that has not been answered yet."""

    slot: int
    request: Request | None  # None: a plain step
