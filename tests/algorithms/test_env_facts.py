"""Which observations have an image, for the choice of the preset."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from envfleet.algorithms.env_facts import EnvFacts
from envfleet.algorithms.settings import DQN, PPO, SAC, TrainingSettings


@pytest.mark.parametrize("settings", [PPO(), DQN(), SAC()], ids=lambda settings: settings.algorithm)
@pytest.mark.parametrize(
    ("shape", "family"),
    [
        ((84, 84, 4), "images"),
        ((4, 84, 84), "images"),
        ((3, 64, 64), "images"),
        ((210, 160, 3), "images"),
        ((10, 10, 4), "general"),
        ((4, 10, 40), "general"),
        ((84, 84), "general"),
    ],
)
def test_images_get_their_preset_wherever_the_channels_are(
    settings: TrainingSettings, shape: tuple[int, ...], family: str
) -> None:
    seen = spaces.Box(0, 255, shape, np.uint8)
    env = EnvFacts(seen, spaces.Discrete(3), "my.simulator:Env", frozenset(), {}, 1, {})
    name = settings.family_preset(env).name
    assert name == (family if isinstance(settings, PPO) else f"{settings.algorithm.upper()}, {family}")
