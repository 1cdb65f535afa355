"""An update of recurrent SAC in the way of pomdp-baselines (Ni et al. 2022), as the peer of ours.

Written from the published description and the order of operations in `policies/policy_rnn.py` of that project: actor
and critic have their own embeddings and memory, both critics share one memory, and an update

1. encodes the trials with the actor (for the next actions) and with the target critic, without gradients,
2. encodes them with the critic and makes a step on its loss,
3. encodes them with the actor again, and with the critic again. The actor's loss goes back through both memories; what
   it leaves at the critic is thrown away.

That is five passes forward through a memory and three back.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.sac.workloads import RecurrentSizes

LOG_STD_RANGE = (-20.0, 2.0)


def _embedding(inputs: int, size: int) -> nn.Module | None:
    return nn.Sequential(nn.Linear(inputs, size), nn.ReLU()) if size else None


def _mlp(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


class _Encoder(nn.Module):
    """Embeddings of previous action, reward and observation, then a GRU or LSTM."""

    def __init__(self, sizes: RecurrentSizes) -> None:
        super().__init__()
        of_action, of_reward, of_observation = sizes.embeddings
        self.action = _embedding(sizes.action, of_action)
        self.reward = _embedding(1, of_reward)
        self.observation = _embedding(sizes.observation, of_observation)
        kind: Any = nn.GRU if sizes.memory == "gru" else nn.LSTM
        self.memory = kind(sum(sizes.embeddings), sizes.units)

    def forward(self, actions: Tensor, rewards: Tensor, observations: Tensor) -> Tensor:
        pairs = ((self.action, actions), (self.reward, rewards), (self.observation, observations))
        outputs: Tensor = self.memory(torch.cat([embed(part) for embed, part in pairs if embed is not None], dim=-1))[0]
        return outputs


class _Actor(nn.Module):
    def __init__(self, sizes: RecurrentSizes) -> None:
        super().__init__()
        self.encoder = _Encoder(sizes)
        self.current = _embedding(sizes.observation, sizes.embeddings[2])
        self.head = _mlp(sizes.units + sizes.embeddings[2], sizes.hidden, 2 * sizes.action)

    def forward(self, actions: Tensor, rewards: Tensor, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return new actions and their log-probabilities, [time, batch, ...]."""
        remembered = self.encoder(actions, rewards, observations)
        assert self.current is not None
        mean, log_std = self.head(torch.cat([remembered, self.current(observations)], dim=-1)).chunk(2, dim=-1)
        std = log_std.clamp(*LOG_STD_RANGE).exp()
        noise = torch.randn_like(mean)
        drawn = mean + std * noise
        log_probs = -0.5 * noise.square() - std.log() - 0.5 * math.log(2.0 * math.pi)
        log_probs = log_probs - 2.0 * (math.log(2.0) - drawn - functional.softplus(-2.0 * drawn))
        return torch.tanh(drawn), log_probs.sum(-1, keepdim=True)


class _Critic(nn.Module):
    def __init__(self, sizes: RecurrentSizes) -> None:
        super().__init__()
        self.encoder = _Encoder(sizes)
        inputs = sum(sizes.embeddings)
        self.current = _embedding(sizes.observation + sizes.action, inputs)
        self.heads = nn.ModuleList(_mlp(sizes.units + inputs, sizes.hidden, 1) for _ in range(2))

    def forward(self, actions: Tensor, rewards: Tensor, observations: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values of the chosen actions by both critics."""
        remembered = self.encoder(actions, rewards, observations)
        assert self.current is not None
        joined = torch.cat([remembered, self.current(torch.cat([observations, chosen], dim=-1))], dim=-1)
        first, second = (head(joined) for head in self.heads)
        return first, second


class Agent:
    """Actor, critics and temperature, with their optimisers and a replay buffer of random trials."""

    def __init__(self, sizes: RecurrentSizes) -> None:
        torch.manual_seed(0)
        self._sizes = sizes
        self._actor, self._critic = _Actor(sizes), _Critic(sizes)
        self._target = copy.deepcopy(self._critic)
        self._log_alpha = torch.zeros(1, requires_grad=True)
        rate = sizes.learning_rate
        self._actor_adam = torch.optim.Adam(self._actor.parameters(), rate)
        self._critic_adam = torch.optim.Adam(self._critic.parameters(), rate)
        self._alpha_adam = torch.optim.Adam([self._log_alpha], rate)
        self._generator = np.random.default_rng(0)
        shape = (sizes.trials, sizes.length)
        normal = self._generator.standard_normal
        self._observations = normal((sizes.trials, sizes.length + 1, sizes.observation)).astype(np.float32)
        self._actions = np.tanh(normal((*shape, sizes.action))).astype(np.float32)
        self._rewards = self._generator.random((*shape, 1)).astype(np.float32)

    def _draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return previous actions and rewards, with zeros first, observations [time + 1, batch, n], and the mask."""
        chosen = self._generator.integers(0, self._sizes.trials, self._sizes.batch)
        actions, rewards = (
            np.concatenate([np.zeros_like(part[:1]), part])
            for part in (self._actions[chosen].swapaxes(0, 1), self._rewards[chosen].swapaxes(0, 1))
        )
        observations = np.ascontiguousarray(self._observations[chosen].swapaxes(0, 1))
        return (
            torch.from_numpy(actions),
            torch.from_numpy(rewards),
            torch.from_numpy(observations),
            torch.ones(self._sizes.length, self._sizes.batch, 1),
        )

    def update(self) -> None:
        """Make one update of critic, actor, target critic and temperature."""
        sizes = self._sizes
        actions, rewards, observations, mask = self._draw()
        valid, alpha = mask.sum(), self._log_alpha.exp().item()
        with torch.no_grad():
            following, log_probs = self._actor(actions, rewards, observations)
            values = torch.min(*self._target(actions, rewards, observations, following)) - alpha * log_probs
            targets = (rewards + sizes.gamma * values)[1:]  # trials end by the clock: never terminated
        both = self._critic(actions[:-1], rewards[:-1], observations[:-1], actions[1:])
        loss = torch.stack([((each - targets) * mask).square().sum() / valid for each in both]).sum()
        self._critic_adam.zero_grad()
        loss.backward()
        self._critic_adam.step()

        chosen, log_probs = self._actor(actions, rewards, observations)
        values = torch.min(*self._critic(actions, rewards, observations, chosen))
        loss = ((alpha * log_probs - values)[:-1] * mask).sum() / valid
        self._actor_adam.zero_grad()
        loss.backward()
        self._actor_adam.step()

        with torch.no_grad():
            for mine, target in zip(self._critic.parameters(), self._target.parameters(), strict=True):
                target.lerp_(mine, sizes.target_rate)
            entropy = -(log_probs[:-1] * mask).sum() / valid
        loss = -(self._log_alpha.exp() * (-float(sizes.action) - entropy)).sum()
        self._alpha_adam.zero_grad()
        loss.backward()
        self._alpha_adam.step()
