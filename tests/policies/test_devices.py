"""Arrays on devices. No accelerator is needed: the copy to it is replaced by a check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envfleet.algorithms.settings import DQN, PPO, SAC, TrainingSettings
from envfleet.policies.devices import to_device
from envfleet.policies.policy import build_policy
from envfleet.policies.settings import PolicySettings
from envfleet.runs.trained_policy import TrainedPolicy
from tests.rollout.test_replay import ENVS, World

MPS = torch.device("mps")
WIDE = spaces.Box(-np.inf, np.inf, (2,), np.float64)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies to MPS and CUDA leave the tensor where it is; MPS refuses float64, as the real one does."""
    real = torch.Tensor.to

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not args or not isinstance(args[0], torch.device) or args[0].type == "cpu":
            return real(tensor, *args, **kwargs)
        if args[0] == MPS and tensor.dtype == torch.float64:
            raise TypeError("the MPS framework doesn't support float64")
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", to)


@pytest.mark.parametrize(
    ("device", "dtype", "expected"),
    [
        ("mps", np.float64, torch.float32),
        ("mps", np.float32, torch.float32),
        ("mps", np.uint8, torch.uint8),
        ("cuda", np.float64, torch.float64),
        ("cpu", np.float64, torch.float64),
    ],
)
@pytest.mark.usefixtures("accelerator")
def test_only_mps_gets_narrower_numbers(device: str, dtype: Any, expected: torch.dtype) -> None:
    found = to_device(np.arange(3, dtype=dtype), torch.device(device))
    assert found.dtype == expected and found.tolist() == [0, 1, 2]


@pytest.mark.parametrize("settings", [DQN(learning_starts=8), SAC(learning_starts=8)], ids=lambda each: each.algorithm)
@pytest.mark.usefixtures("accelerator")
def test_learners_with_a_replay_send_wide_observations_to_mps(settings: TrainingSettings) -> None:
    small = settings.but(n_envs=ENVS, rollout_steps=4, replay_size=200, minibatch_size=16, hidden=(8,))
    learner = small.build_learner(WIDE, spaces.Discrete(4), n_envs=ENVS, seed=3, device=MPS)
    assert learner.learn(World(0, choices=4).rollout(8), 0.0)["train/n_updates"] > 0
    learner.close()


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.usefixtures("accelerator")
def test_ppo_sends_wide_observations_and_the_bounds_of_wide_actions_to_mps(memory: Any) -> None:
    actions = spaces.Box(-0.1, 0.1, (2,), np.float64)
    settings = PPO(
        n_envs=ENVS, rollout_steps=4, sequence_length=2, minibatch_size=12, hidden=(8,), memory=memory, memory_size=4
    )
    learner = settings.build_learner(WIDE, actions, n_envs=ENVS, seed=3, device=MPS)
    made, size = World(0).rollout(4), learner.policy.memory_size
    rollout = replace(
        made,
        columns={"actions": np.zeros((4, ENVS, 2), np.float32), "log_probs": np.zeros((4, ENVS), np.float32)},
        memory=np.zeros((3, ENVS, size), np.float32),
        final_memory=np.zeros((4, ENVS, size), np.float32),
    )
    assert learner.learn(rollout, 0.0)["train/n_updates"] > 0
    learner.close()


@pytest.mark.usefixtures("accelerator")
def test_a_trained_policy_reads_wide_observations_on_mps() -> None:
    actions = spaces.Box(-0.1, 0.1, (2,), np.float64)
    policy = build_policy(WIDE, actions, PolicySettings(), seed=1)
    trained = TrainedPolicy(policy.to(MPS), WIDE, actions)
    trained._device, trained._memory = MPS, torch.zeros(1, 0)  # the weights themselves are still on the CPU
    found = trained.act(np.array([1.0, 2.0]))
    assert found.dtype == np.float64 and actions.contains(found)
