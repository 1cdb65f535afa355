"""A large array in an environment factory is kept once by the caller, however many workers receive it."""

from __future__ import annotations

import functools
import os
import signal
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet.fleet.channel import LARGE_BYTES, dump_parts, load_parts
from tests.fleet.simulators import Counter


class Mapped(Counter):
    """Reads its rewards from a table."""

    def __init__(self, table: Any) -> None:
        super().__init__(length=1000)
        self.table = table

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(self.table[self.count]), terminated, truncated, info


def received(parts: list[bytes]) -> Any:
    return load_parts([bytearray(part) for part in parts])


def test_equal_arrays_are_kept_once() -> None:
    table, kept = np.arange(LARGE_BYTES, dtype=np.float64), list[bytes]()
    first = dump_parts({"table": table, "number": 1}, kept)
    second = dump_parts([table.copy(), table], kept)
    other = dump_parts(table + 1.0, kept)
    assert [len(each) for each in kept] == [table.nbytes] * 2
    assert first[1] is second[1] is second[2] is kept[0] and other[1] is kept[1]
    assert max(len(parts[0]) for parts in (first, second, other)) < 1000
    assert received(first)["number"] == 1
    for array, expected in (
        (received(first)["table"], table),
        (received(second)[1], table),
        (received(other), table + 1),
    ):
        assert array.tobytes() == expected.tobytes() and array.flags.writeable


def test_small_arrays_stay_in_the_pickle() -> None:
    kept: list[bytes] = []
    parts = dump_parts(np.arange(100), kept)
    assert (len(parts), kept) == (1, [])
    assert received(parts).tolist() == list(range(100))


@pytest.mark.parametrize("kind", ["closure", "partial", "env_kwargs", "one each"])
def test_workers_share_what_the_caller_keeps(kind: str) -> None:
    table = np.arange(LARGE_BYTES // 4, dtype=np.float64)
    given: dict[str, Any] = {
        "closure": {"env": lambda: Mapped(table)},
        "partial": {"env": functools.partial(Mapped, table)},
        "env_kwargs": {"env": Mapped, "env_kwargs": {"table": table}},
        "one each": {"env": [functools.partial(Mapped, table) for _ in range(4)]},
    }[kind]
    fleet = envfleet.make(n_envs=4, backend="processes", workers=2, start_method="fork", seed=1, **given)
    backend = fleet._supervisor.backend
    parts = {id(part): part for messages in backend._specs.values() for message in messages for part in message}
    assert sum(len(part) >= table.nbytes for part in parts.values()) == 1
    fleet.reset()
    assert fleet.step(np.zeros(4, np.int64))[1].tolist() == [1.0] * 4
    fleet.close()
    assert not backend._specs and not backend._large


def test_a_restarted_worker_gets_it_too() -> None:
    table = np.arange(LARGE_BYTES // 4, dtype=np.float64)
    fleet = envfleet.make(lambda: Mapped(table), 2, backend="processes", workers=2, start_method="fork", seed=1)
    fleet.reset()
    table[:] = -1.0  # the environments keep the values they were made with
    os.kill(fleet.statistics().workers[1].pid, signal.SIGKILL)
    rewards = [fleet.step(np.zeros(2, np.int64))[1].tolist() for _ in range(3)]
    assert rewards == [[1.0, 0.0], [2.0, 0.0], [3.0, 1.0]]  # environment 1: lost step, reset, step
    fleet.close()
