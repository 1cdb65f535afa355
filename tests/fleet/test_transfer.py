"""Rows travel between two blocks as their marks say: all that a command needs or wrote, and nothing else."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from envfleet.fleet.arrays import FleetArrays, FleetShape
from envfleet.fleet.control import Command
from envfleet.fleet.infos import ColumnTable
from envfleet.fleet.memory import Division
from envfleet.fleet.routine import ExtraArray
from envfleet.fleet.transfer import MOST_KNOWN, RowTransfer, Task

Array = np.ndarray[Any, Any]
GROUPS = [range(2), range(2, 4), range(4, 6), range(6, 8)]
MINE = [0, 2]  # two slices: environments 0, 1, 4 and 5
WRITTEN = Division(axis=2, to_caller="routine", buffered=True)
EXTRAS = (
    ExtraArray("weights", (3, 5), "<f4", Division("weight_set", to_worker="routine")),
    ExtraArray("masked", (1,), "<i8", Division("nothing", to_worker="always", to_caller="always")),
    ExtraArray("progress", (4,), "<i8", Division("group", to_worker="always", to_caller="always")),
    ExtraArray("seconds", (2, 4, 2), "<f8", Division("group", axis=1, to_caller="routine", buffered=True)),
    ExtraArray("truncated", (2, 3, 8), "|b1", WRITTEN),
    ExtraArray("returns", (2, 3, 8), "<f8", Division("env", 2, "never", "routine", True, only_at=("truncated",))),
    ExtraArray("finals", (2, 3, 8, 2), "<f4", Division("env", 2, "never", "routine", True, only_first=("truncated",))),
    ExtraArray("masks", (2, 3, 8, 2), "|b1", Division("env", 2, "never", "routine", True, only_if="masked")),
)
SPACE = Dict({"a": Box(-9.0, 9.0, (2,), np.float32), "b": Discrete(5)})


def arrays() -> FleetArrays:
    shape = FleetShape(8, 2, 4, SPACE, Discrete(3), EXTRAS, numbers=1)
    layout = shape.layout()
    return FleetArrays(shape, layout, mmap.mmap(-1, layout.size))


def fill(block: FleetArrays, start: int) -> None:
    """Write a different number into every element."""
    for name, view in block.views.items():
        if name in ("control", "columns"):
            continue
        if view.dtype == np.bool_:
            view[...] = np.arange(view.size).reshape(view.shape) % 3 == start % 3
        else:
            view[...] = np.arange(start, start + view.size).reshape(view.shape)


@pytest.fixture
def sides() -> tuple[FleetArrays, RowTransfer, FleetArrays, RowTransfer]:
    """Return caller and worker with different contents, each with its transfer."""
    caller, worker = arrays(), arrays()
    fill(caller, 1)
    fill(worker, 1000)
    return caller, RowTransfer(caller, GROUPS, to_worker=True), worker, RowTransfer(worker, GROUPS, to_worker=False)


def changed(block: FleetArrays, before: dict[str, Array]) -> set[str]:
    return {name for name, view in block.views.items() if not np.array_equal(view, before[name])}


def copies(block: FleetArrays) -> dict[str, Array]:
    return {name: view.copy() for name, view in block.views.items()}


def assert_rows(name: str, target: Array, source: Array, before: Array, axis: int = 0) -> None:
    """The rows of environments 0, 1, 4 and 5 come from the source; all others are as before."""
    mine = [0, 1, 4, 5]
    others = [2, 3, 6, 7]
    assert np.array_equal(target.take(mine, axis), source.take(mine, axis)), name
    assert np.array_equal(target.take(others, axis), before.take(others, axis)), name


def test_a_step_needs_actions_and_returns_its_results(sides: Any) -> None:
    caller, out, worker, back = sides
    tasks = [Task(group, Command.STEP, slot=1) for group in MINE]
    before = copies(worker)
    back.paste(out.cut(tasks), tasks)
    assert changed(worker, before) == {"action/", "extra/progress"}
    assert_rows("action", worker.views["action/"], caller.views["action/"], before["action/"])
    worker.terminated[...] = False
    worker.truncated[...] = [True, False] * 4
    before = copies(caller)
    out.paste(back.cut(tasks), tasks)
    for name in ("reward", "truncated", "lost", "observation/1/a", "observation/1/b"):
        assert_rows(name, caller.views[name], worker.views[name], before[name])
    for name in ("episode_return", "episode_numbers", "observation/final/a"):  # only where an episode ended
        expected = before[name].copy()
        expected[[0, 4]] = worker.views[name][[0, 4]]
        assert np.array_equal(caller.views[name], expected), name
    assert not changed(caller, before) & {"observation/0/a", "action/", "extra/truncated", "extra/weights"}


def test_a_routine_returns_the_buffer_that_it_has_filled(sides: Any) -> None:
    caller, out, worker, back = sides
    tasks = [Task(group, Command.ROUTINE, slot=0, buffer=1) for group in MINE]
    back.paste(out.cut(tasks), tasks)
    caller.extra["masked"][0] = 2000
    back.paste_whole(out.whole(Command.ROUTINE), Command.ROUTINE)
    assert np.array_equal(worker.extra["masked"], caller.extra["masked"])
    worker.extra["masked"][0] = 0
    worker.extra["truncated"][...] = False
    worker.extra["truncated"][1, 2, [0, 4, 6]] = True
    worker.extra["truncated"][1, 1, 4] = True  # two finals of environment 4
    before = copies(caller)
    out.paste(back.cut(tasks), tasks)
    after = caller.extra
    assert np.array_equal(after["seconds"][1, MINE], worker.extra["seconds"][1, MINE])
    assert np.array_equal(after["seconds"][1, [1, 3]], before["extra/seconds"][1, [1, 3]])
    assert_rows("truncated", after["truncated"][1], worker.extra["truncated"][1], before["extra/truncated"][1], 1)
    expected = before["extra/returns"][1].copy()
    for at in ((2, 0), (2, 4), (1, 4)):
        expected[at] = worker.extra["returns"][1][at]
    assert np.array_equal(after["returns"][1], expected)
    assert np.array_equal(after["finals"][1][:2, 4], worker.extra["finals"][1][:2, 4])
    assert np.array_equal(after["finals"][1][2], before["extra/finals"][1][2])  # no environment has three
    assert np.array_equal(after["masks"], before["extra/masks"])  # there are none
    for name in ("truncated", "returns", "finals", "seconds"):
        assert np.array_equal(after[name][0], before[f"extra/{name}"][0]), name  # the learner may be reading it
    assert after["masked"][0] == before["extra/masked"][0]  # a flag that another worker has raised


def test_a_routine_needs_the_weights_that_it_reads(sides: Any) -> None:
    caller, out, worker, back = sides
    before = worker.extra["weights"].copy()
    data = out.whole(Command.ROUTINE, (1,))
    assert data.nbytes == caller.extra["weights"][1].nbytes + caller.extra["masked"].nbytes
    back.paste_whole(data, Command.ROUTINE, (1,))
    assert np.array_equal(worker.extra["weights"][1], caller.extra["weights"][1])
    assert np.array_equal(worker.extra["weights"][[0, 2]], before[[0, 2]])
    back.paste_whole(out.whole(Command.ROUTINE, (0, 2)), Command.ROUTINE, (0, 2))
    assert np.array_equal(worker.extra["weights"], caller.extra["weights"])


def test_a_flag_that_a_worker_has_raised_stays_raised_on_its_host(sides: Any) -> None:
    """The caller learns of it with the next report; commands that it sends before must not lower it."""
    caller, out, worker, back = sides
    caller.extra["masked"][0], worker.extra["masked"][0] = 0, 1
    back.paste_whole(out.whole(Command.ROUTINE), Command.ROUTINE)
    assert worker.extra["masked"][0] == 1


def test_observations_that_the_caller_has_changed(sides: Any) -> None:
    caller, out, worker, back = sides
    caller.extra["masked"][0] = 2000
    tasks = [Task(group, Command.REQUEST) for group in MINE]
    before = copies(worker)
    back.paste(out.cut(tasks, observations=True), tasks)
    for slot in (0, 1):
        name = f"observation/{slot}/a"
        assert_rows(name, worker.views[name], caller.views[name], before[name])
    back.paste_whole(out.whole(Command.REQUEST), Command.REQUEST)
    assert not changed(worker, before) & {"action/", "extra/weights", "reward"}
    assert np.array_equal(worker.extra["masked"], caller.extra["masked"])


def test_a_new_block_gets_everything(sides: Any) -> None:
    caller, out, worker, back = sides
    caller.extra["masked"][0] = 1
    before = copies(worker)
    back.paste_everything(out.everything(MINE), MINE)
    for name, array in caller.extra.items():
        if array.ndim > 2 and name not in ("returns", "finals", "seconds"):
            assert_rows(name, worker.extra[name], array, before[f"extra/{name}"], 2)
    for name in ("reward", "observation/0/a", "observation/1/b"):
        assert_rows(name, worker.views[name], caller.views[name], before[name])


def test_groups_with_different_commands(sides: Any) -> None:
    """After a worker's death some groups recover while the others step."""
    caller, out, worker, back = sides
    tasks = [Task(0, Command.STEP, slot=1), Task(2, Command.REQUEST, slot=0)]
    before = copies(caller)
    out.paste(back.cut(tasks), tasks)
    for slot, rows in ((1, slice(0, 2)), (0, slice(4, 6))):
        name = f"observation/{slot}/a"
        expected = before[name].copy()
        expected[rows] = worker.views[name][rows]
        assert np.array_equal(caller.views[name], expected)


def test_columns_of_infos_and_their_clearing(sides: Any) -> None:
    caller, out, worker, back = sides
    table = ColumnTable(caller.columns, 8)
    table.learn({"score": 1.5, "hit": True})
    for transfer in (out, back):
        transfer.define_columns(table.definitions)
    of_worker = ColumnTable(worker.columns, 8)
    of_worker.learn({"score": 1.5, "hit": True})
    for column in of_worker._columns:
        column.mask[...], column.values[...] = True, 1
    tasks = [Task(group, Command.STEP) for group in MINE]
    out.paste(back.cut(tasks, present=[0b11, 0b01]), tasks)
    infos: dict[str, Any] = {}
    table.read(0b11, [slice(0, 8)], infos)
    assert infos["_score"].tolist() == [True, True, False, False] * 2
    for column in of_worker._columns:
        column.mask[...], column.values[...] = False, 0
    out.paste(back.cut(tasks, present=[0, 0]), tasks)  # nothing is present, but what was there must go
    infos = {}
    table.read(0b11, [slice(0, 8)], infos)
    assert not infos["_score"].any() and not infos["_hit"].any()
    assert len(back.cut(tasks, present=[0, 0]).columns) == 0


def test_a_block_of_another_size_is_noticed(sides: Any) -> None:
    _, out, _, back = sides
    with pytest.raises((AssertionError, TypeError)):
        back.paste(out.cut([Task(0, Command.STEP)]), [Task(0, Command.STEP), Task(1, Command.STEP)])


def test_the_rows_of_some_commands_of_a_parcel(sides: Any) -> None:
    """The rest of the parcel belongs to a worker that was restarted since."""
    caller, out, worker, back = sides
    tasks = [Task(group, Command.ROUTINE, slot=0, buffer=1) for group in MINE]
    for block in (caller, worker):
        block.extra["masked"][0] = 1
    before = copies(caller)
    out.paste(out.only(back.cut(tasks), tasks, tasks[1:]), tasks[1:])
    found = copies(caller)
    for name, view in caller.views.items():
        view[...] = before[name]
    out.paste(back.cut(tasks[1:]), tasks[1:])
    assert not changed(caller, found)
    assert "extra/returns" in changed(caller, before)


class ClearedAtOnce(dict[Any, Any]):
    """What a thread sees if another one clears the dictionary right after a look-up."""

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        self.clear()
        return found


def test_another_thread_may_forget_the_rows_of_commands(sides: Any) -> None:
    _, out, _, _ = sides
    tasks = [Task(group, Command.STEP, slot=1) for group in MINE]
    expected = out.cut(tasks).data.tobytes()
    out._pieces = ClearedAtOnce(out._pieces)
    assert out.cut(tasks).data.tobytes() == expected


def test_few_combinations_of_commands_are_remembered(sides: Any) -> None:
    _, out, _, _ = sides
    first = out._pieces
    for buffer in range(MOST_KNOWN + 1):
        out.cut([Task(0, Command.STEP, buffer=buffer)])
    assert len(out._pieces) == 1 and len(first) == MOST_KNOWN  # not cleared: another thread may be reading it
