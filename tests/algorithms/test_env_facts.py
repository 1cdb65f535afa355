"""Which observations have an image, for the choice of the preset and of the learner's threads."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize(
    ("shape", "changes", "threads"),
    [
        ((84, 84, 4), {"minibatch_size": 128}, 2),
        ((84, 84, 4), {"minibatch_size": 127}, 1),
        ((84, 84, 4), {"minibatch_size": 128, "schedule": "overlap"}, 2),
        ((84, 84, 4), {"minibatch_size": 2048, "schedule": "async"}, 1),
        ((84, 84, 4), {"minibatch_size": 128, "learner_threads": 1}, 1),
        ((84, 84, 4), {"minibatch_size": 2048, "n_envs": 4, "rollout_steps": 16}, 1),  # 64 rows in all
        ((17,), {"minibatch_size": 1024}, 2),
        ((17,), {"minibatch_size": 1023}, 1),
        ((17,), {"minibatch_size": 1024, "schedule": "overlap"}, 1),
    ],
)
def test_large_batches_are_learned_with_two_threads(
    shape: tuple[int, ...], changes: dict[str, Any], threads: int
) -> None:
    env = EnvFacts(spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(3), "my.simulator:Env", frozenset(), {}, 1, {})
    assert PPO(**{"n_envs": 64, "rollout_steps": 128, **changes}).adapted(env).threads == threads
