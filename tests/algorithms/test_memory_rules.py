"""Settings of a memory that the policy does not have."""

from __future__ import annotations

from typing import Any

import pytest

from envfleet.algorithms.settings import PPO, SAC


@pytest.mark.parametrize(
    ("settings", "notice"),
    [
        (SAC(burn_in=3), "without memory, burn_in has no effect: add --memory gru"),
        (PPO(memory_size=64, sequence_length=16), "memory_size and sequence_length have no effect"),
    ],
)
def test_they_are_noticed(settings: Any, notice: str) -> None:
    assert any(notice in each for each in settings.notices())


@pytest.mark.parametrize("settings", [SAC(burn_in=3, memory="gru", history_parts={"action": ["", 0, 1]}), SAC(), PPO()])
def test_others_are_not(settings: Any) -> None:
    assert not any("without memory" in each for each in settings.notices())
