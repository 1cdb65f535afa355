"""Rollouts of a pool are those of a loop over the same environments, with both ways of acting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envfleet.fleet.pool import PoolMaker
from tests.fleet.pools import CounterPool
from tests.rollout.collecting import collecting, kept
from tests.rollout.envs import Counter, MaskedCounter, mask_of

Array = np.ndarray[Any, Any]
PROCESSES = {"backend": "processes", "workers": 2}


class MaskedPool(CounterPool):
    """Allows only some actions and raises on the others."""

    def masks(self) -> dict[str, Any]:
        states = zip(self.seeds, self.episodes, self.times, strict=True)
        return {"action_mask": np.array([mask_of(*state, 4) for state in states], np.int8)}

    def reset(self, *, seed: list[int | None] | None, options: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
        return super().reset(seed=seed, options=options)[0], self.masks()

    def step(self, actions: Array) -> Any:
        if not np.take_along_axis(self.masks()["action_mask"], actions[:, None] - 1, axis=1).all():
            raise ValueError("an action is forbidden now")
        return (*super().step(actions)[:4], self.masks())


@pytest.mark.parametrize("where", [{}, PROCESSES], ids=["sequential", "processes"])
@pytest.mark.parametrize("acting", ["worker", "central"])
@pytest.mark.parametrize(("loop", "pool"), [(Counter, CounterPool), (MaskedCounter, MaskedPool)])
def test_rollouts_have_the_bytes_of_the_loop(loop: Any, pool: Any, acting: str, where: dict[str, Any]) -> None:
    found = []
    for env, options in ((loop, {"acting": "worker"}), (PoolMaker(pool), {"acting": acting, **where})):
        with collecting(env, memory="gru", **options) as rig:
            found.append([kept(rig.collect(number)) for number in range(2)])
    for expected, rollout in zip(*found, strict=True):
        assert expected.keys() == rollout.keys()
        for name, array in expected.items():
            assert array.tobytes() == rollout[name].tobytes(), name
