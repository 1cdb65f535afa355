"""Messages longer than a socket takes at once: states, requests and infos of any size get through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import envfleet
from tests.fleet.simulators import Chatty, Heavy


@pytest.mark.parametrize("size", [2**20, pytest.param(2**27, marks=pytest.mark.proof)])
def test_states_of_any_size_are_saved_and_restored(size: int, backend: dict[str, Any]) -> None:
    """With several groups per worker, none may block on the caller while the caller waits for the next."""
    fleet = envfleet.make(lambda: Heavy(size), 8, group_size=1, seed=3, timeout=60.0, **backend)
    actions = np.zeros(8, np.int64)
    fleet.reset()
    fleet.step(actions)
    reported: list[tuple[int, int]] = []
    state = fleet.state(progress=lambda done, of: reported.append((done, of)))
    expected = fleet.step(actions)[1]
    fleet.restore(state)
    assert fleet.step(actions)[1].tolist() == expected.tolist()
    assert fleet.statistics().restarts == 0
    assert reported[-1] == (8, 8) and reported == sorted(reported)
    fleet.close()


def test_long_infos_of_many_groups_pass(backend: dict[str, Any]) -> None:
    fleet = envfleet.make(Chatty, 8, group_size=1, seed=3, timeout=60.0, **backend)
    fleet.reset()
    for _ in range(3):
        infos = fleet.step(np.zeros(8, np.int64))[4]
        assert [len(said) for said in infos["said"]] == [2**20] * 8
    assert fleet.statistics().restarts == 0
    fleet.close()
