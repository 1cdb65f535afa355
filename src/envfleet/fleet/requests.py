"""Requests from the caller to a group, beyond a plain step: one small class each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from envfleet.errors import WorkerError
from envfleet.fleet.control import Command, Phase
from envfleet.fleet.env_calls import name_of
from envfleet.fleet.group import Extras, Group
from envfleet.fleet.infos import ColumnDefinition

__all__ = [
    "Apply",
    "ApplyStep",
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

    @property
    def operation(self) -> str | None:
        """What an environment does meanwhile, for error messages; None if it steps or is reset."""
        return None

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
    weight_set: int = 0  # which it reads
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

    @property
    def operation(self) -> str:
        return f"call of {self.name!r}"

    def apply(self, group: Group, slot: int) -> list[Any]:
        return group.call(self.name, self.args, self.kwargs, self.only)


@dataclass(frozen=True)
class Apply(Request):
    phase: ClassVar[int] = Phase.START
    function: Callable[[Any], Any]

    @property
    def operation(self) -> str:
        return name_of(self.function)

    def apply(self, group: Group, slot: int) -> list[Any]:
        return group.apply(self.function)


class ApplyStep(Apply):
    """As `Apply`, with the time limit of a step, except within the argument `starting` of the function."""

    phase: ClassVar[int] = Phase.STEP

    def apply(self, group: Group, slot: int) -> list[Any]:
        function: Callable[..., Any] = self.function
        return group.apply(functools.partial(function, starting=group.starting))


@dataclass(frozen=True)
class Rebuild(Request):
    phase: ClassVar[int] = Phase.START

    @property
    def operation(self) -> str:
        return "rebuild"

    def apply(self, group: Group, slot: int) -> None:
        group.rebuild()


@dataclass(frozen=True)
class SetAttr(Request):
    name: str
    values: Sequence[Any]

    @property
    def operation(self) -> str:
        return f"set_attr of {self.name!r}"

    def apply(self, group: Group, slot: int) -> None:
        group.set_attr(self.name, self.values)


@dataclass(frozen=True)
class Capture(Request):
    phase: ClassVar[int] = Phase.START

    @property
    def operation(self) -> str:
        return "get_state"

    def apply(self, group: Group, slot: int) -> list[dict[str, Any]]:
        return group.state()


@dataclass(frozen=True)
class Restore(Request):
    phase: ClassVar[int] = Phase.START
    states: Sequence[dict[str, Any]]

    @property
    def operation(self) -> str:
        return "set_state"

    def apply(self, group: Group, slot: int) -> None:
        group.restore(slot, self.states)


_REPEATED = (Reset, Recover, StepObjects, Restore, DefineColumns, Rebuild, RunRoutine, Call, SetAttr)  # after a restart


class Posted(NamedTuple):
    """A command that has not been answered yet."""

    slot: int
    request: Request | None  # None: a plain step
    attempts: int = 1

    @property
    def operation(self) -> str | None:
        return None if self.request is None else self.request.operation

    @property
    def again(self) -> Request | None:
        """The request to repeat after a restart of the worker; None for a step, which becomes a recovery."""
        return None if isinstance(self.request, Recover | StepObjects) else self.request

    def failure(self, worker: int, reason: str, most: int, *, hung: bool) -> WorkerError | None:
        """The error if this command, which a worker lost, is not repeated; it is tried again `most` times."""
        request, ended = self.request, "was killed" if hung else "died"
        if isinstance(request, RunRoutine):
            return None  # it continues where it was, so every attempt makes progress
        name = self.operation or ("step" if request is None else type(request).__name__)
        if self.attempts > most:
            return WorkerError(
                f"worker {worker} {ended} {self.attempts} times during the same {name}: {reason}",
                hint="envfleet.check(env) may show why; restarts= allows more",
                hung=hung,
            )
        if hung and isinstance(request, Call | SetAttr):  # it would hang again
            hint = "it was restarted; timeout= sets the limit"
        elif request is None or isinstance(request, _REPEATED):
            return None
        else:
            hint = "it was restarted; repeat the call"
        return WorkerError(f"worker {worker} {ended} during {name}: {reason}", hint=hint, hung=hung)
