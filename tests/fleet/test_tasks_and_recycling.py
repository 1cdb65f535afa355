"""Tasks per environment that survive autoreset, and environments that are rebuilt after some episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import envfleet
from tests.fleet.backends import same
from tests.fleet.simulators import Counter, Rots

ACTIONS = np.zeros(4, np.int64)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_tasks_survive_autoreset(mode: str, backend: dict[str, Any]) -> None:
    fleet = envfleet.make(lambda: Counter(length=2), 4, group_size=2, seed=1, autoreset=mode, **backend)
    _, infos = fleet.reset(tasks=[5, 6, 7, 8])
    assert infos["task"].tolist() == [5, 6, 7, 8]
    seen = []
    for _ in range(7):
        infos = fleet.step(ACTIONS)[4]
        if "task" in infos:
            seen.append(infos["task"].tolist())
    assert len(seen) >= 2 and all(tasks == [5, 6, 7, 8] for tasks in seen)
    _, infos = fleet.reset(tasks=[1, 2, 3, 4])
    assert infos["task"].tolist() == [1, 2, 3, 4]
    _, infos = fleet.reset()
    assert infos["task"].tolist() == [1, 2, 3, 4]
    with pytest.raises(envfleet.SettingsError, match="3 entries"):
        fleet.reset(tasks=[1, 2, 3])
    fleet.close()


def test_a_reset_of_some_gives_the_others_their_tasks_too(backend: dict[str, Any]) -> None:
    fleet = envfleet.make(lambda: Counter(length=2), 4, group_size=2, seed=1, autoreset="same_step", **backend)
    fleet.reset(tasks=[5, 6, 7, 8])
    fleet.step(ACTIONS)
    fleet.reset(tasks=[1, 2, 3, 4], options={"reset_mask": np.array([True, False, False, False])})
    assert fleet.step(ACTIONS)[4]["task"].tolist() == [0, 2, 3, 4]  # those whose episodes ended
    fleet.close()


def test_tasks_given_to_make() -> None:
    fleet = envfleet.make(Counter, 3, backend="sequential", tasks=[7, 8, 9])
    assert fleet.reset()[1]["task"].tolist() == [7, 8, 9]
    fleet.close()


def test_task_sampler_draws_for_every_episode(backend: dict[str, Any]) -> None:
    def run(**settings: Any) -> list[list[int]]:
        fleet = envfleet.make(
            lambda: Counter(length=2), 4, group_size=2, seed=1, tasks=lambda rng: int(rng.integers(10**6)), **settings
        )
        drawn = [fleet.reset()[1]["task"].tolist()]
        for _ in range(6):
            infos = fleet.step(ACTIONS)[4]
            if "task" in infos:
                drawn.append(infos["task"].tolist())
        fleet.close()
        return drawn

    drawn = run(**backend)
    assert len(drawn) == 3
    assert len({task for tasks in drawn for task in tasks}) == 12  # all different
    assert drawn == run(backend="sequential")


def test_recycling_rebuilds_and_stays_deterministic(backend: dict[str, Any]) -> None:
    def run(**settings: Any) -> tuple[Any, list[Any]]:
        fleet = envfleet.make(Rots, 4, group_size=2, seed=1, recycle_every=2, **settings)
        fleet.reset()
        observations = []
        for _ in range(20):
            observations.append(fleet.step(ACTIONS)[0].tolist())
        ages = fleet.get_attr("age")
        fleet.close()
        return ages, observations

    ages, observations = run(**backend)
    assert max(ages) <= 2  # never more than two episodes old
    assert (ages, observations) == run(backend="sequential")


def test_a_recycled_environment_gets_the_seed_that_was_given() -> None:
    with envfleet.make(Counter, 4, seed=1, recycle_every=1, backend="sequential") as fleet:
        first, _ = fleet.reset(seed=5)
        assert same(fleet.reset(seed=5)[0], first)
