"""The asynchronous schedule: which rollouts enter which batch, how old they may be, and what is dropped.

Workers are scripted here: they finish in the order that a test gives, so nothing depends on timing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envfleet.errors import SettingsError
from envfleet.rollout.arrays import Column, RolloutShape, private_arrays
from envfleet.rollout.async_schedule import AsyncSchedule
from envfleet.rollout.batches import RolloutBatch
from envfleet.rollout.order import Order, OrderWriter
from envfleet.rollout.worker_rollouts import WorkerRollout

Array = np.ndarray[Any, Any]
STEPS, BUFFERS = 3, 2


class Scripted:
    """Workers that finish in a given order. Each reward says which rollout, version and environment it belongs to."""

    while_waiting = None

    def __init__(self, shape: RolloutShape, ranges: Sequence[range], groups: list[list[int]]) -> None:
        self.arrays, self.groups, self._ranges = private_arrays(shape.arrays()), groups, ranges
        self.arrays["valid"][...] = True
        self._numbers = [0] * len(groups)
        self._version = 0
        self._under_way: dict[int, int] = {}  # worker: version that it began with
        self._script: Iterable[int] = iter(())
        self.in_use: set[tuple[int, int]] = set()  # (worker, buffer)

    def publish(self, weights: Array, version: int) -> None:
        self._version = version

    def begin(self, *workers: int) -> None:
        """Let workers begin with the weights of now."""
        self._under_way.update(dict.fromkeys(workers, self._version))

    def will_finish(self, *workers: int) -> None:
        self._script = iter(workers)

    def next(self, until: float = math.inf) -> WorkerRollout:
        worker = next(self._script)  # type: ignore[call-overload]
        number = self._numbers[worker]
        version = self._under_way.pop(worker, self._version)
        rollout = WorkerRollout(worker, number, version, number % BUFFERS)
        assert (worker, rollout.buffer) not in self.in_use, "a buffer is used again before it was released"
        self.in_use.add((worker, rollout.buffer))
        for group in self.groups[worker]:
            for env in self._ranges[group]:
                self.arrays["rewards"][rollout.buffer, :, env] = 10_000 * number + 100 * version + env
        self._numbers[worker] += 1
        return rollout

    def release(self, rollout: WorkerRollout) -> None:
        self.in_use.remove((rollout.worker, rollout.buffer))

    def settle(self) -> None:
        """Nothing runs."""

    @property
    def next_number(self) -> int:
        return max(self._numbers)

    def resume(self, number: int) -> None:
        self._numbers = [number] * len(self._numbers)

    def close(self) -> None:
        """Nothing to close."""


def made(ranges: Sequence[range], groups: list[list[int]], max_lag: int | None = 8) -> tuple[AsyncSchedule, Scripted]:
    box = spaces.Box(-1.0, 1.0, (2,))
    columns = {"actions": Column((), "<i8")}
    shape = RolloutShape(STEPS, ranges[-1].stop, len(ranges), box, columns, 0, 0, STEPS, 1, BUFFERS, (), len(groups))
    workers = Scripted(shape, ranges, groups)
    return AsyncSchedule(workers, RolloutBatch(shape, ranges), lambda: np.zeros(1), max_lag=max_lag), workers


PAIRS = [range(2), range(2, 4)]  # two groups of two environments, one per worker


def test_a_batch_is_what_finished_first() -> None:
    schedule, workers = made(PAIRS, [[0], [1]])
    workers.will_finish(1, 1)
    batch = schedule.next()
    # Both rollouts of the fast worker, the first one in its own slot; none of the slow one.
    assert batch.rewards[0].tolist() == [10_002, 10_003, 2, 3]
    assert batch.env_ids is not None
    assert batch.env_ids.tolist() == [2, 3, 2, 3]
    workers.will_finish(0, 1)
    assert schedule.next().rewards[0].tolist() == [0 + 100, 1 + 100, 20_102, 20_103]
    assert workers.in_use == set()


def test_each_rollout_keeps_the_version_that_it_began_with() -> None:
    schedule, workers = made(PAIRS, [[0], [1]])
    workers.will_finish(1, 1)
    workers.begin(0)  # the slow one begins with version 0
    schedule.next()
    workers.will_finish(1, 0)
    batch = schedule.next()
    assert batch.versions is not None
    assert batch.versions.tolist() == [0, 0, 1, 1]
    assert schedule.metrics() == {"lag/mean": 0.5, "lag/p95": 1.0, "lag/max": 1.0, "lag/dropped_steps": 0.0}


@pytest.mark.parametrize(("max_lag", "dropped"), [(3, 0), (2, 2 * STEPS), (None, 0)])
def test_a_rollout_that_is_too_old_is_dropped_and_counted(max_lag: int | None, dropped: int) -> None:
    schedule, workers = made(PAIRS, [[0], [1]], max_lag)
    workers.begin(0)
    for _ in range(3):
        workers.will_finish(1, 1)
        schedule.next()
    workers.will_finish(0, 1, *([1] if dropped else []))  # worker 0 finishes with a lag of 3
    batch = schedule.next()
    assert schedule.metrics()["lag/dropped_steps"] == dropped
    assert schedule.metrics()["lag/max"] == (0 if dropped else 3)
    assert batch.env_ids is not None
    assert (0 in batch.env_ids.tolist()) == (not dropped)
    assert workers.in_use == set()


def test_groups_of_different_sizes_fill_slots_of_their_size() -> None:
    """Five environments in groups of 3 and 2: the fast worker can fill only its own slot of a batch."""
    schedule, workers = made([range(3), range(3, 5)], [[0], [1]])
    workers.will_finish(0, 0, 1)
    assert schedule.next().rewards[0].tolist() == [0, 1, 2, 3, 4]
    assert workers.in_use == {(0, 1)}  # its second rollout waits for the next batch
    workers.will_finish(1)
    batch = schedule.next()
    assert batch.rewards[0].tolist() == [10_000, 10_001, 10_002, 10_103, 10_104]
    assert workers.in_use == set()


def test_workers_with_different_numbers_of_groups() -> None:
    """The unit of a batch is a group: what does not fit enters the next one."""
    schedule, workers = made([range(2), range(2, 4), range(4, 6)], [[0, 2], [1]])
    workers.will_finish(0, 0)
    assert schedule.next().rewards[0].tolist() == [0, 1, 10_000, 10_001, 4, 5]
    workers.will_finish(1, 1)
    assert schedule.next().rewards[0].tolist() == [10_102, 10_103, 102, 103, 10_004, 10_005]


def test_a_rollout_that_waits_for_its_slot_grows_too_old_as_well() -> None:
    schedule, workers = made([range(3), range(3, 5)], [[0], [1]], max_lag=1)
    workers.begin(0)
    workers.will_finish(0, 0, 1)
    schedule.next()
    for lag in (1, 2):
        workers.will_finish(*([1] if lag == 1 else [0, 1]))
        workers.begin(0)
        schedule.next()
        assert schedule.metrics()["lag/max"] <= 1.0


def test_final_observations_and_their_masks_come_along() -> None:
    schedule, workers = made(PAIRS, [[0], [1]])
    workers.arrays["truncated"][:, 1, 2] = True
    workers.arrays["finals/"][:, 0, 2] = 7.0
    workers.will_finish(1, 0)
    batch = schedule.next()
    time, env, k = batch.final_rows()
    assert (time.tolist(), env.tolist(), k.tolist()) == ([1], [2], [0])
    assert batch.finals[""][k, env].tolist() == [[7.0, 7.0]]


def test_a_resumed_schedule_repeats_no_number_and_no_version() -> None:
    schedule, workers = made(PAIRS, [[0], [1]])
    for _ in range(3):
        workers.will_finish(1, 1)
        schedule.next()
    resumed, others = made(PAIRS, [[0], [1]])
    resumed.resume(schedule.state())
    others.will_finish(0, 1)
    batch = resumed.next()
    assert batch.number == 3
    assert batch.rewards[0].tolist() == [60_300, 60_301, 60_302, 60_303]  # rollout 6 of both, version 3


def test_the_order_says_which_rollout_entered_which_update(tmp_path: Path) -> None:
    schedule, workers = made(PAIRS, [[0], [1]])
    schedule.record_to(tmp_path / "order.jsonl")
    workers.begin(0)
    workers.will_finish(1, 1)
    schedule.next()
    workers.will_finish(0, 1)
    schedule.next()
    order = Order.read(tmp_path / "order.jsonl")
    assert order.groups == [[0], [1]]
    assert order.rollouts == [(1, 0, 0), (1, 1, 0), (0, 0, 0), (1, 2, 1)]
    assert order.updates == 2


def test_an_order_with_lost_steps_or_a_resume_is_not_replayed(tmp_path: Path) -> None:
    path = tmp_path / "order.jsonl"
    schedule, workers = made(PAIRS, [[0], [1]])
    schedule.record_to(path)
    workers.arrays["valid"][0, 1, 0] = False
    workers.will_finish(0, 1)
    schedule.next()
    with pytest.raises(SettingsError, match=r"lost steps in update 0\nhint: only a run in which no worker died"):
        Order.read(path)
    schedule.record_to(path)  # as a resumed run does, before update 1
    assert [line.split(":")[0] for line in path.read_text().splitlines()] == ['{"order"', '{"update"', '{"resumed"']
    path.write_text(path.read_text().replace('"lost": 1', '"lost": 0'))
    with pytest.raises(SettingsError, match=r"resumed before update 1, .*\nhint: only a run that was never resumed"):
        Order.read(path)


@pytest.mark.parametrize("text", ["", "{}\n", "no json\n", '{"order": 7, "groups": []}\n', '{"order": 1}\n[1]\n'])
def test_a_file_that_is_no_order_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "order.jsonl").write_text(text)
    with pytest.raises(SettingsError, match=r"cannot be replayed: .*\nhint: replay_order needs the order\.jsonl"):
        Order.read(tmp_path / "order.jsonl")


def test_a_killed_run_may_have_cut_the_last_line_of_its_order(tmp_path: Path) -> None:
    path = tmp_path / "order.jsonl"
    writer = OrderWriter(path, [[0], [1]], 0)
    for update in range(3):
        writer.write(update, [], 0)
    path.write_text(path.read_text()[:-9])
    assert Order.read(path).updates == 2
    OrderWriter(path, [[0], [1]], 2)
    first, *updates, resumed = map(json.loads, path.read_text().splitlines())
    assert first["groups"] == [[0], [1]]
    assert [line["update"] for line in updates] == [0, 1]
    assert resumed == {"resumed": 2}
