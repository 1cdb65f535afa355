"""DQN with its preset learns where breaks pay, on one small landscape."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from envfleet.algorithms.settings import DQN
from envfleet.environments.wildfire import SurfaceFire, WildfireEnv, draw_fires
from envfleet.environments.wildfire.baselines import burned_hectares, random_breaks
from envfleet.training import train
from envfleet.training.assembly import resolve

GROUND = {"grid_size": 10, "num_landscapes": 1, "budget_percent": 6}


def test_an_agent_learns_one_landscape(tmp_path: Path) -> None:
    """After 1,000 steps with seed 1, fires burn at least a fifth less than with random breaks (mean of 20)."""
    small = {"hidden": (8, 8), "learning_starts": 300, "minibatch_size": 32, "train_frequency": 4, "replay_size": 4_000}
    run = train(
        DQN(
            env="envfleet/Wildfire-v0",
            env_kwargs=GROUND,
            steps=1_000,
            seed=1,
            backend="sequential",
            eval_every=0,
            quiet=True,
            output_dir=str(tmp_path / "run"),
            **small,
        )
    )
    env = WildfireEnv(**GROUND, fire_channels=True)
    observation, info = env.reset(seed=0)
    ended = False
    while not ended:
        observation, _, ended, _, info = env.step(run.policy.act(observation, mask=info["action_mask"]))
    landscape, model, generator = env.landscape, SurfaceFire(), np.random.default_rng(0)
    fires = draw_fires(landscape, generator, 300)
    agents = burned_hectares(landscape, np.flatnonzero(env.breaks), fires, model, 120).mean()
    chance = [
        burned_hectares(landscape, random_breaks(landscape, 6, generator), fires, model, 120).mean() for _ in range(20)
    ]
    assert env.breaks.sum() == 6
    assert agents < 0.8 * np.mean(chance), (agents, np.mean(chance))


def test_a_run_from_before_the_fire_channels_keeps_its_observation() -> None:
    """The preset has had `fire_channels` since; a recorded run does not get them when it is resumed."""
    settings = DQN(env="envfleet/Wildfire-v0", env_kwargs={"grid_size": 8, "memory_simulations": 64}, seed=1)
    for recorded, channels in ((True, 9), (False, 11)):
        resolved = resolve(settings, recorded=recorded)
        resolved.stage.close()
        assert resolved.observation_space.shape == (channels, 8, 8)
