"""Session that trains PPO in one plain PyTorch loop, in Stable-Baselines3's virtual environment.

It stands in for CleanRL, whose scripts are meant to be copied, not installed. It does what CleanRL's `ppo.py` does in
each step and update: Gymnasium's SyncVectorEnv, one tensor per step, torch.distributions, GAE as a loop over time,
minibatches by index, Adam, gradient clipping, statistics read after every minibatch. The code is our own, for the
sizes and networks that all others have here.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from benchmarks.ppo.peer_session import WARM_UPDATES, make_env
from benchmarks.ppo.workloads import Sizes
from benchmarks.stepping import Stepper, serve, training_options

GAMMA, LAMBDA, CLIP, VALUE_WEIGHT, LARGEST_NORM = 0.99, 0.95, 0.2, 0.5, 0.5


def layer(module: Any, gain: float = math.sqrt(2)) -> Any:
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


def mlp(inputs: int, outputs: int, gain: float) -> nn.Module:
    hidden = [layer(nn.Linear(inputs, 64)), nn.Tanh(), layer(nn.Linear(64, 64)), nn.Tanh()]
    return nn.Sequential(*hidden, layer(nn.Linear(64, outputs), gain))


class Agent(nn.Module):
    """Actor and critic: separate 64×64 tanh MLPs, or one Nature CNN with two heads."""

    def __init__(self, envs: Any, *, images: bool) -> None:
        super().__init__()
        continuous = isinstance(envs.single_action_space, gymnasium.spaces.Box)
        outputs = envs.single_action_space.shape[0] if continuous else int(envs.single_action_space.n)
        self.images = images
        self.body: nn.Module = nn.Identity()
        self.log_std = nn.Parameter(torch.zeros(1, outputs)) if continuous else None
        if images:
            convolutions = [nn.Conv2d(3, 32, 8, stride=4), nn.Conv2d(32, 64, 4, stride=2), nn.Conv2d(64, 64, 3)]
            parts = [part for each in convolutions for part in (layer(each), nn.ReLU())]
            self.body = nn.Sequential(*parts, nn.Flatten(), layer(nn.Linear(1024, 512)), nn.ReLU())
            self.actor, self.critic = layer(nn.Linear(512, outputs), 0.01), layer(nn.Linear(512, 1), 1.0)
        else:
            inputs = envs.single_observation_space.shape[0]
            self.actor, self.critic = mlp(inputs, outputs, 0.01), mlp(inputs, 1, 1.0)

    def forward(self, observations: Tensor, actions: Tensor | None = None) -> tuple[Any, Any, Any, Any]:
        """Return actions (sampled if none are given), their log-probabilities, entropies and values."""
        if self.images:
            observations = observations.permute(0, 3, 1, 2) / 255.0
        features = self.body(observations)
        found = self.actor(features)
        values = self.critic(features).flatten()
        if self.log_std is None:
            choice: Any = Categorical(logits=found)
            actions = choice.sample() if actions is None else actions
            return actions, choice.log_prob(actions), choice.entropy(), values
        normal: Any = Normal(found, self.log_std.expand_as(found).exp())
        actions = normal.sample() if actions is None else actions
        return actions, normal.log_prob(actions).sum(1), normal.entropy().sum(1), values


class PlainPPO:
    """PPO as plain loops over the tensors of one rollout."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self.envs = gymnasium.vector.SyncVectorEnv([lambda: make_env(sizes.env, **sizes.env_kwargs)] * sizes.n_envs)
        self._agent = Agent(self.envs, images=sizes.has_images)
        self._adam = torch.optim.Adam(self._agent.parameters(), lr=3e-4, eps=1e-5)
        self._random = np.random.default_rng(0)
        shape = (sizes.rollout_steps, sizes.n_envs)
        observation_shape, action_shape = self.envs.single_observation_space.shape, self.envs.single_action_space.shape
        assert observation_shape is not None and action_shape is not None
        self._observations, self._actions = torch.zeros(*shape, *observation_shape), torch.zeros(*shape, *action_shape)
        self._log_probs, self._rewards, self._ends, self._values = (torch.zeros(shape) for _ in range(4))
        first, _ = self.envs.reset(seed=0)
        self._now, self._ended = torch.Tensor(first), torch.zeros(sizes.n_envs)

    def advance(self) -> int:
        self._collect()
        self._learn(self._advantages())
        return self._sizes.rollout_size

    def _collect(self) -> None:
        for t in range(self._sizes.rollout_steps):
            self._observations[t], self._ends[t] = self._now, self._ended
            with torch.no_grad():
                self._actions[t], self._log_probs[t], _, self._values[t] = self._agent(self._now)
            given = self._actions[t].numpy()
            # Clip to the bounds of the Box, as the wrappers of such scripts do.
            given = given.astype(np.int64) if given.ndim == 1 else np.clip(given, -1.0, 1.0)
            after, reward, terminated, truncated, _ = self.envs.step(given)
            self._rewards[t] = torch.tensor(reward).view(-1)
            self._now, self._ended = torch.Tensor(after), torch.Tensor(terminated | truncated)

    def _advantages(self) -> Tensor:
        advantages = torch.zeros_like(self._rewards)
        with torch.no_grad():
            following, value, carried = self._ended, self._agent(self._now)[3], torch.zeros(self._sizes.n_envs)
            for t in reversed(range(self._sizes.rollout_steps)):
                going_on = 1.0 - following
                error = self._rewards[t] + GAMMA * value * going_on - self._values[t]
                advantages[t] = carried = error + GAMMA * LAMBDA * going_on * carried
                following, value = self._ends[t], self._values[t]
        return advantages

    def _learn(self, advantages: Tensor) -> None:
        sizes = self._sizes
        returns = (advantages + self._values).flatten()
        flat = [each.flatten(0, 1) for each in (self._observations, self._actions, self._log_probs, advantages)]
        order = np.arange(sizes.rollout_size)
        clipped = []
        for _ in range(sizes.epochs):
            self._random.shuffle(order)
            for start in range(0, sizes.rollout_size, sizes.minibatch_size):
                part = order[start : start + sizes.minibatch_size]
                observations, actions, old_log_probs, advantage = (each[part] for each in flat)
                _, log_probs, entropy, values = self._agent(observations, actions)
                ratio = (log_probs - old_log_probs).exp()
                with torch.no_grad():
                    clipped.append(((ratio - 1.0).abs() > CLIP).float().mean().item())
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                surrogate = torch.max(-advantage * ratio, -advantage * ratio.clamp(1.0 - CLIP, 1.0 + CLIP)).mean()
                value_loss = 0.5 * ((values - returns[part]) ** 2).mean()
                loss: Any = surrogate - 0.0 * entropy.mean() + VALUE_WEIGHT * value_loss
                self._adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self._agent.parameters(), LARGEST_NORM)
                self._adam.step()


def build_training(sizes: Sizes, *, threads: int | None) -> Stepper:
    """Build a training that collects and learns in turn, and warm it up."""
    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    training = PlainPPO(sizes)
    for _ in range(WARM_UPDATES):
        training.advance()
    return Stepper(training.advance, training.envs.close, facts=lambda: {"threads": torch.get_num_threads()})


def main() -> None:
    options = training_options(__doc__)
    serve(lambda: build_training(Sizes(**options.sizes), threads=options.threads))


if __name__ == "__main__":
    main()
