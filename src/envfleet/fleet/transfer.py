"""Transfer of rows between the caller's block and the block of workers that share no memory with the caller.

Both blocks have the same layout, so an array has the same name and shape on both sides. `Division` (`memory.py`) says
how an array is divided among the workers, and with which commands its rows travel. This module cuts the rows of some
commands out of one block, as a `Parcel`, and pastes them into the other. A parcel does not list its contents: both
sides compute them in the same way, from the commands, from the layout, and from flags that come earlier in the parcel.

An array that is not divided is the same for all workers, so it is cut once for all hosts (`whole`), and of the weights
only the sets that routines read. If it also travels back, it has flags that any worker may raise, so both sides keep
the maximum.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from envfleet.fleet.arrays import EXTRA, FleetArrays
from envfleet.fleet.control import Command
from envfleet.fleet.infos import ColumnDefinition, column_arrays
from envfleet.fleet.memory import Division
from envfleet.fleet.rows import Rows

__all__ = ["Array", "Parcel", "RowTransfer", "Task"]

Array = np.ndarray[Any, Any]
ALIGNMENT = 8
MOST_KNOWN = 256  # combinations of commands whose rows are remembered
_START, _EVERYTHING = 0, -1  # not commands: a worker's start, and the first rows of a new block


class Task(NamedTuple):
    """The parts of a command to a group that decide which rows travel."""

    group: int
    command: int
    slot: int = 0
    buffer: int = 0
    weight_set: int = 0


_Commands = tuple[tuple[Task, ...], bool, bool]  # with their direction, and whether observations are included


@dataclass(frozen=True)
class Parcel:
    """Rows that travel with some commands."""

    data: Array  # [byte]
    observations: bool = False  # includes both slots of observations
    without: tuple[int, ...] = ()  # positions of arrays that have no values, see `Division.only_if`
    columns: tuple[int, ...] = ()  # numbers of the info columns, whose rows come last


class _Part(NamedTuple):
    """A part of an array that travels."""

    view: Array
    flags: Array | None = None  # if given, only the values at set flags travel
    raised: bool = False  # an undivided array of flags, which any worker may raise

    @property
    def values(self) -> Array:
        """The values that travel."""
        return self.view if self.flags is None else self.view[self.flags]

    @property
    def shape(self) -> tuple[int, ...]:
        whole: tuple[int, ...] = self.view.shape
        return whole if self.flags is None else (int(np.count_nonzero(self.flags)), *whole[self.flags.ndim :])


@dataclass(frozen=True)
class _Entry:
    """One array of the block, with the arrays that its division names."""

    position: int
    array: Array
    division: Division
    at: list[Array]
    first: list[Array]
    flag: Array | None


class _Piece(NamedTuple):
    """Some rows of an array, and the same rows of the arrays that say which of them travel."""

    position: int  # of the array
    view: Array
    at: Sequence[Array] = ()
    first: Sequence[Array] = ()
    raised: bool = False

    def part(self) -> _Part:
        """The part of these rows that travels now."""
        if self.at:
            return _Part(self.view, np.logical_or.reduce(self.at))
        if self.first:
            counts = [array.sum(axis=0, dtype=np.int64).max(initial=0) for array in self.first]
            return _Part(self.view[: max(counts)])
        return _Part(self.view, raised=self.raised)


class RowTransfer:
    """Cuts rows out of one block, or pastes them into it."""

    def __init__(self, arrays: FleetArrays, groups: Sequence[range], *, to_worker: bool) -> None:
        """`groups` are the environments of all groups of the fleet; `to_worker` says which way it sends rows."""
        self._arrays, self._groups, self._to_worker = arrays, list(groups), to_worker
        self._entries = [self._entry(position, name) for position, name in enumerate(arrays.places)]
        self._pieces: dict[_Commands, tuple[list[_Piece], list[slice]]] = {}  # of the commands seen so far
        self._columns: list[tuple[Array, Array]] = []  # mask and values of each info column
        self._columns_sent = [0] * len(self._groups)  # bits of the info columns that a group's last parcel had

    def _entry(self, position: int, name: str) -> _Entry:
        division, views = self._arrays.places[name].division, self._arrays.views
        prefix = EXTRA if name.startswith(EXTRA) else ""
        return _Entry(
            position,
            views[name],
            division,
            [views[prefix + other] for other in division.only_at],
            [views[prefix + other] for other in division.only_first],
            None if division.only_if is None else views[prefix + division.only_if],
        )

    def define_columns(self, definitions: Sequence[ColumnDefinition]) -> None:
        """Learn the info columns that were defined since the last call."""
        for definition in definitions[len(self._columns) :]:
            self._columns.append(column_arrays(definition, self._arrays.columns, len(self._arrays.reward)))

    def clear_columns(self, groups: Iterable[int]) -> None:
        """Remove the infos of these groups, which a dead worker has left."""
        for rows in (slice(self._groups[group].start, self._groups[group].stop) for group in groups):
            for mask, values in self._columns:
                mask[rows], values[rows] = False, 0

    # --- cutting

    def cut(self, tasks: Sequence[Task], *, observations: bool = False, present: Sequence[int] = ()) -> Parcel:
        """The rows that these commands need, or those that they have written.

        With `observations`, both slots are included because the caller has changed them. `present` has the bits of the
        info columns that each group has filled.
        """
        bits = 0
        for task, filled in zip(tasks, present, strict=False):
            bits |= filled | self._columns_sent[task.group]  # a column that was cleared since then must arrive too
            self._columns_sent[task.group] = filled
        columns = tuple(number for number in range(len(self._columns)) if bits >> number & 1)
        without = tuple(entry.position for entry in self._entries if entry.flag is not None and not entry.flag[0])
        cut = [part.values for part in self._parts(tasks, self._to_worker, observations, without, columns)]
        data, at = np.empty(sum([_padded(values.nbytes) for values in cut]), np.uint8), 0
        for values in cut:
            np.ndarray(values.shape, values.dtype, data, at)[...] = values
            at += _padded(values.nbytes)
        return Parcel(data, observations, without, columns)

    def whole(self, command: int, weight_sets: Sequence[int] = ()) -> Array:
        """The bytes of all arrays that are not divided among workers and that this command needs."""
        parts = [part.view.ravel().view(np.uint8) for part in self._undivided(command, weight_sets)]
        return np.concatenate(parts) if parts else np.empty(0, np.uint8)

    def paste_whole(self, data: Array, command: int, weight_sets: Sequence[int] = ()) -> None:
        at = 0
        for view, _, raised in self._undivided(command, weight_sets):
            received: Array = np.ndarray(view.shape, view.dtype, data, at)
            at += view.nbytes
            view[...] = np.maximum(view, received) if raised else received
        assert at == len(data), "both sides compute the same sizes"

    def _undivided(self, command: int, weight_sets: Sequence[int]) -> list[_Part]:
        kind, parts = Task(0, command), []
        for entry in self._entries:
            division, array = entry.division, entry.array
            if division.by in _UNDIVIDED and _travels(division, kind, to_worker=True, observations=False):
                views = [array] if division.by == "nothing" else [array[number] for number in weight_sets]
                parts += [_Part(view, raised=division.to_caller != "never") for view in views]
        return parts

    def everything(self, groups: Iterable[int]) -> Parcel:
        """All rows of these groups, for a worker whose block is new."""
        return self.cut(_everything(groups), observations=True)

    def at_start(self, groups: Iterable[int]) -> Parcel:
        """The rows of these groups that a worker has set at its start."""
        return self.cut(_at_start(groups))

    # --- pasting

    def paste(self, parcel: Parcel, tasks: Sequence[Task]) -> None:
        """Write the rows that the other side has cut for these commands."""
        at = 0
        parts = self._parts(tasks, not self._to_worker, parcel.observations, parcel.without, parcel.columns)
        for part in parts:  # one after the other: the flags of some parts are in earlier ones
            view, flags, raised = part
            received: Array = np.ndarray(part.shape, view.dtype, parcel.data, at)
            at += _padded(received.nbytes)
            if flags is not None:
                view[flags] = received
            elif raised:
                np.maximum(view, received, out=view)
            else:
                view[...] = received
        assert at == len(parcel.data), "both sides compute the same sizes"

    def only(self, parcel: Parcel, tasks: Sequence[Task], kept: Sequence[Task]) -> Parcel:
        """The rows of some of the commands that the other side has cut a parcel for, by way of another block."""
        shape, columns = self._arrays.shape, sum(1 << number for number in parcel.columns)
        layout = shape.layout()
        block = FleetArrays(shape, layout, mmap.mmap(-1, layout.size))
        ours, theirs = (
            RowTransfer(block, self._groups, to_worker=way) for way in (self._to_worker, not self._to_worker)
        )
        for side in (ours, theirs):
            side.define_columns(self._arrays.column_definitions)
        ours.paste(parcel, tasks)
        return theirs.cut(kept, present=[columns] * len(kept))

    def paste_everything(self, parcel: Parcel, groups: Iterable[int]) -> None:
        self.paste(parcel, _everything(groups))

    def paste_start(self, parcel: Parcel, groups: Iterable[int]) -> None:
        self.paste(parcel, _at_start(groups))

    # --- parts

    def _parts(
        self,
        tasks: Sequence[Task],
        to_worker: bool,
        observations: bool,
        without: Sequence[int],
        columns: Sequence[int],
    ) -> Iterator[_Part]:
        """The parts of arrays that travel with these commands, in the order of the block."""
        commands = tuple(tasks), to_worker, observations
        known = self._pieces  # never cleared: two threads of a caller use it
        found = known.get(commands)
        if found is None:
            found = self._find_pieces(*commands)
            if len(known) >= MOST_KNOWN:
                self._pieces = known = {}
            known[commands] = found
        pieces, envs = found
        for piece in pieces:
            if piece.position not in without:
                yield piece.part()
        for number in columns:
            for array in self._columns[number]:
                for rows in envs:
                    yield _Part(array[rows])

    def _find_pieces(
        self, tasks: tuple[Task, ...], to_worker: bool, observations: bool
    ) -> tuple[list[_Piece], list[slice]]:
        """The rows that may travel with these commands, in the order of the block, and all rows of their groups."""
        batches: dict[Task, list[int]] = {}  # groups with the same command
        for task in tasks:
            batches.setdefault(task._replace(group=0), []).append(task.group)
        ones = [range(group, group + 1) for group in range(len(self._groups))]
        rows_of = {
            kind: {"env": Rows.of(groups, self._groups).slices, "group": Rows.of(groups, ones).slices}
            for kind, groups in batches.items()
        }
        pieces = []
        for entry in self._entries:
            kinds = [kind for kind in batches if _travels(entry.division, kind, to_worker, observations)]
            if kinds and entry.division.by in _UNDIVIDED:
                pieces += [] if to_worker else [_Piece(entry.position, entry.array, raised=True)]
                continue
            for kind in kinds:
                for buffer, rows in itertools.product(self._buffers(entry, kind), rows_of[kind][entry.division.by]):
                    pieces.append(_piece(entry, buffer, rows))
        return pieces, Rows.of([task.group for task in tasks], self._groups).slices if tasks else []

    @staticmethod
    def _buffers(entry: _Entry, kind: Task) -> Sequence[int | None]:
        if not entry.division.buffered:
            return [None]
        return range(len(entry.array)) if kind.command == _EVERYTHING else [kind.buffer]


def _piece(entry: _Entry, buffer: int | None, rows: slice) -> _Piece:
    index: tuple[Any, ...] = (*[slice(None)] * entry.division.axis, rows)
    if buffer is not None:
        index = (buffer, *index[1:])
    at, first = ([array[index] for array in arrays] for arrays in (entry.at, entry.first))
    return _Piece(entry.position, entry.array[index], at, first)


def _travels(division: Division, kind: Task, to_worker: bool, observations: bool) -> bool:
    command = kind.command
    if command == _EVERYTHING:
        return division != Division()
    if division.slot is not None and (to_worker or command in _FILLS_A_SLOT):
        return observations if to_worker else division.slot == kind.slot
    when = division.to_worker if to_worker else division.to_caller
    return when == "always" or when == _WHEN.get(command)


_UNDIVIDED = ("nothing", "weight_set")
_WHEN = {Command.STEP: "step", Command.ROUTINE: "routine"}
_FILLS_A_SLOT = (Command.STEP, Command.REQUEST)


def _everything(groups: Iterable[int]) -> list[Task]:
    return [Task(group, _EVERYTHING) for group in groups]


def _at_start(groups: Iterable[int]) -> list[Task]:
    return [Task(group, _START) for group in groups]


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
