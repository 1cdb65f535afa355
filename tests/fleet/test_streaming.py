"""`step_async`/`step_wait`, and `send`/`recv`, which return whichever groups are ready first."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envfleet
from tests.fleet.backends import same
from tests.fleet.simulators import Counter, Nested, Talks
from tests.waiting import wait_until


def test_step_async_lets_the_caller_work(backend: dict[str, Any]) -> None:
    fleet = envfleet.make(Counter, 4, group_size=2, seed=1, **backend)
    fleet.reset()
    fleet.step_async(np.arange(4))
    with pytest.raises(envfleet.ProtocolError, match=r"call step_wait\(\) first"):
        fleet.step(np.arange(4))
    observations, rewards, *_ = fleet.step_wait()
    assert observations[:, 0].tolist() == [1] * 4
    assert rewards.tolist() == [0, 1, 2, 3]
    fleet.close()


@pytest.mark.parametrize("env", [Counter, Nested, Talks])
def test_streaming_gives_the_bytes_of_stepping(env: Any, backend: dict[str, Any]) -> None:
    """Each environment gives the same sequence, whether groups step together or at their own pace."""
    steps, n_envs = 15, 6
    reference = envfleet.make(env, n_envs, group_size=2, seed=3, backend="sequential")
    fleet = envfleet.make(env, n_envs, group_size=2, seed=3, **backend)
    reference.action_space.seed(0)
    actions = [reference.action_space.sample() for _ in range(steps)]
    reference.reset()
    expected = [reference.step(batch) for batch in actions]
    fleet.reset()
    taken = np.zeros(n_envs, int)
    for group in fleet.groups:
        fleet.send(_rows(actions[0], list(group)), list(group))
    while taken.min() < steps:
        observations, rewards, terminated, truncated, infos = fleet.recv(2)
        ids = infos.pop("env_id")
        step = int(taken[ids[0]])
        want = expected[step]
        assert same(_rows(want[0], ids), observations)
        assert same(want[1][ids], rewards)
        assert same(want[2][ids], terminated)
        assert same(want[3][ids], truncated)
        taken[ids] += 1
        if step + 1 < steps:
            fleet.send(_rows(actions[step + 1], ids), ids)
    with pytest.raises(envfleet.ProtocolError, match=r"call send\(\) first"):
        fleet.recv()
    fleet.close()
    reference.close()


def _rows(batch: Any, ids: Any) -> Any:
    if isinstance(batch, dict):
        return {key: _rows(value, ids) for key, value in batch.items()}
    if isinstance(batch, tuple):
        if isinstance(batch[0], str):
            return tuple(batch[i] for i in ids)
        return tuple(_rows(value, ids) for value in batch)
    return batch[ids]


@pytest.mark.parametrize("backend", [{"backend": "threads", "workers": 2}, {"backend": "processes", "workers": 2}])
def test_the_quick_group_comes_first(backend: dict[str, Any], tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    fleet = envfleet.make([lambda: WaitingCounter(go_on)] * 2 + [Counter] * 2, group_size=2, seed=1, **backend)
    fleet.reset()
    fleet.send(np.zeros(4, np.int64), np.arange(4))
    assert fleet.recv()[4]["env_id"].tolist() == [2, 3]
    go_on.touch()
    assert fleet.recv(2)[4]["env_id"].tolist() == [0, 1]
    fleet.close()


class WaitingCounter(Counter):
    def __init__(self, go_on: Path) -> None:
        super().__init__()
        self.go_on = go_on

    def step(self, action: Any) -> Any:
        assert wait_until(self.go_on.exists)
        return super().step(action)


def test_stepping_after_streaming_at_different_paces(backend: dict[str, Any]) -> None:
    """Groups whose newest observations lie in different slots are brought into line."""
    fleet = envfleet.make(Counter, 4, group_size=2, seed=1, **backend)
    fleet.reset()
    for _ in range(3):
        fleet.send(np.zeros(2, np.int64), [0, 1])
        fleet.recv(2)
    fleet.send(np.zeros(2, np.int64), [2, 3])
    fleet.recv(2)
    fleet.send(np.zeros(2, np.int64), [2, 3])
    fleet.send(np.zeros(2, np.int64), [0, 1])
    mixed = fleet.recv(4)  # one group has taken 4 steps, the other 2
    assert mixed[0][:, 0].tolist() == [4, 4, 2, 2]
    assert mixed[4]["env_id"].tolist() == [0, 1, 2, 3]
    assert fleet.step(np.zeros(4, np.int64))[0][:, 0].tolist() == [5, 5, 3, 3]
    fleet.close()


def test_few_combinations_of_groups_are_remembered() -> None:
    """A fleet that streams for days meets ever new ones."""
    groups = range(9)
    with envfleet.make(Counter, len(groups), group_size=1, seed=1, backend="sequential") as fleet:
        fleet.reset()
        exchange = fleet._exchange
        for count in groups:
            for ids in itertools.combinations(groups, count + 1):  # 511 in all
                fleet.send(np.zeros(len(ids), np.int64), ids[::-1])
                assert fleet.recv(len(ids))[4]["env_id"].tolist() == list(ids)
        assert len(exchange._rows_by_ids) <= 256 and len(exchange._rows_by_groups) <= 256
        assert exchange.rows_of_groups([2, 0, 1]) is exchange.rows_of_groups([0, 1, 2])


@pytest.mark.parametrize("ids", [[0], [1, 2], [0, 1, 0, 1], [], [[0, 1]], [0, 1, 2, 7]])
def test_only_whole_groups_can_be_sent_to(ids: Any) -> None:
    fleet = envfleet.make(Counter, 4, group_size=2, seed=1, backend="sequential")
    fleet.reset()
    with pytest.raises(envfleet.SettingsError, match=r"whole groups|named twice"):
        fleet.send(np.zeros(len(ids), np.int64), ids)
    fleet.send(np.zeros(4, np.int64), [2, 3, 0, 1])  # groups in any order
    assert fleet.recv(4)[4]["env_id"].tolist() == [0, 1, 2, 3]
    fleet.close()
