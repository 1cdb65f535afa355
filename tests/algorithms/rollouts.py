"""Synthetic rollouts and learners for tests of algorithms."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from envfleet.algorithms.ppo import PPOLearner
from envfleet.algorithms.settings import PPO
from envfleet.policies.policy import Policy, build_policy
from envfleet.rollout.arrays import Rollout

Array = np.ndarray[Any, Any]
SEED, STEPS, ENVS, SIZE = 7, 16, 4, 3
OBSERVATIONS = spaces.Box(-10, 10, (SIZE,), np.float32)
ACTIONS = spaces.Discrete(4)


def settings_of(**changes: Any) -> PPO:
    base: dict[str, Any] = {
        "n_envs": ENVS,
        "rollout_steps": STEPS,
        "minibatch_size": STEPS * ENVS,
        "epochs": 1,
        "hidden": (8,),
        "memory_size": 6,
        "sequence_length": 4,
        "learning_rate": 1e-3,
        "entropy_coefficient": 0.01,
        "seed": SEED,
    }
    return PPO(**{**base, **changes})


def policy_of(settings: PPO, action_space: spaces.Space[Any] = ACTIONS) -> Policy:
    policy = build_policy(OBSERVATIONS, action_space, settings.policy_settings(), seed=SEED)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "policy_head" in name:
                parameter.mul_(100.0)  # makes action probabilities far from uniform
    return policy


def learner_of(settings: PPO, action_space: spaces.Space[Any] = ACTIONS) -> PPOLearner:
    return PPOLearner(settings, policy_of(settings, action_space), seed=SEED, device=torch.device("cpu"))


def rollout_of(
    settings: PPO,
    *,
    action_space: spaces.Space[Any] = ACTIONS,
    masked: bool = False,
    number: int = 0,
    moved: float = 0.3,
    often: float = 0.15,
    seed: int = SEED,
) -> Rollout:
    """Return a random rollout with the policy's actions; `moved` scales the noise added to their log-probabilities."""
    generator = np.random.default_rng(seed)
    policy = policy_of(settings, action_space)
    steps, envs = settings.rollout_steps, settings.n_envs
    observations = generator.normal(size=(steps + 1, envs, SIZE)).astype(np.float32)
    masks = generator.random((steps + 1, envs, policy.mask_size)) < 0.7 if masked else None
    terminated = generator.random((steps, envs)) < often
    truncated = generator.random((steps, envs)) < often
    noise = policy.draw_noise(generator, (steps, envs))
    pieces = -(-steps // settings.piece_length)
    memory = np.zeros((pieces + 1, envs, policy.memory_size), np.float32)
    held, actions, log_probs = policy.initial_memory(envs), [], []
    with torch.inference_mode():
        for t in range(steps):
            if t % settings.piece_length == 0:
                memory[t // settings.piece_length] = held.numpy()
            mask = None if masks is None else torch.from_numpy(masks[t])
            row = {"": torch.from_numpy(observations[t])}
            acted = policy.act(row, held, torch.from_numpy(noise[t]), mask)
            actions.append(acted.actions.numpy())
            log_probs.append(acted.recorded[0].numpy())
            ended = torch.from_numpy(terminated[t] | truncated[t])
            held = acted.memory.masked_fill(ended[:, None], 0.0)
    memory[-1] = held.numpy()
    shifted = np.stack(log_probs) + moved * generator.normal(size=(steps, envs))
    return Rollout(
        number=number,
        observations={"": observations},
        finals={"": generator.normal(size=(steps, envs, SIZE)).astype(np.float32)},
        columns={"actions": np.stack(actions), "log_probs": shifted.astype(np.float32)},
        rewards=generator.normal(size=(steps, envs)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        valid=np.ones((steps, envs), bool),
        masks=masks,
        memory=memory,
        final_memory=generator.normal(size=(steps, envs, policy.memory_size)).astype(np.float32),
        episode_returns=np.zeros((steps, envs)),
        episode_lengths=np.zeros((steps, envs), np.int64),
        seconds=np.zeros((1, 2)),
    )


def parameters(policy: Policy) -> dict[str, Array]:
    return {name: parameter.detach().numpy().copy() for name, parameter in policy.named_parameters()}


def a_copy(rollout: Rollout) -> Rollout:
    return copy.deepcopy(rollout)
