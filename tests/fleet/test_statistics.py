"""Episode and fleet statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

import envfleet
from tests.fleet.simulators import Counter, Masked


def test_episodes_and_workers(backend: dict[str, Any]) -> None:
    fleet = envfleet.make(lambda: Counter(length=3), 4, group_size=2, seed=1, **backend)
    fleet.reset()
    for _ in range(8):  # three steps and a reset, twice
        fleet.step(np.arange(4))
    statistics = fleet.statistics()
    assert (statistics.steps, statistics.episodes) == (32, 8)
    assert statistics.lengths == [3] * 8
    assert statistics.returns == [0, 3, 6, 9] * 2
    assert all(0 < seconds < 60 for seconds in statistics.episode_seconds)
    assert statistics.steps_per_second > 0
    assert len(statistics.workers) == fleet.workers
    for worker in statistics.workers:
        assert 0 < worker.busy_share <= 1 and worker.memory_mb > 1 and worker.restarts == 0
    fleet.close()


def test_action_masks_are_batched(backend: dict[str, Any]) -> None:
    fleet = envfleet.make(Masked, 4, group_size=2, seed=1, **backend)
    _, infos = fleet.reset()
    for step in range(12):
        masks = infos["action_mask"]
        assert masks.shape == (4, 4) and masks.dtype == np.int8
        assert infos["_action_mask"].all()
        count = step % 11
        assert masks[0].tolist() == [int(count % 4 != i) for i in range(4)]
        if count < 10:
            infos = fleet.step(np.zeros(4, np.int64))[4]
            assert infos["note"][0] == "text"
        else:
            infos = fleet.step(np.zeros(4, np.int64))[4]
    fleet.close()
