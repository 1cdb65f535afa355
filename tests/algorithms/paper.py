"""PPO as in the paper: one loop over rows, one Adam per parameter, no shared parts.

Uses nothing of `envfleet.algorithms`. The policy computes log-probability, entropy and value of one minibatch;
everything else is written out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envfleet.policies.policy import Policy

Array = np.ndarray[Any, Any]


@dataclass
class Paper:
    """Hyperparameters from the paper's table, and the state of the optimiser."""

    learning_rate: float = 1e-3
    clip: float = 0.2
    value_clip: float | None = None
    value_coefficient: float = 0.5
    entropy_coefficient: float = 0.01
    max_norm: float = 0.5
    normalise: bool = True
    steps: int = 0
    moments: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # the terms of the latest loss and its gradient norm

    def loss(self, policy: Policy, rows: dict[str, Any]) -> Tensor:
        if "pieces" in rows:  # with memory, each sequence is evaluated separately
            found = [policy.evaluate(*piece) for piece in rows["pieces"]]
            log_probs, entropy, values = (torch.cat([part[i].flatten() for part in found]) for i in range(3))
        else:
            log_probs, entropy, values = policy.evaluate(rows["observations"], rows["actions"], rows.get("mask"))
        advantages = rows["advantages"].double()
        count = len(advantages)
        if self.normalise:
            mean = advantages.sum() / count
            std = math.sqrt(float(((advantages - mean) ** 2).sum() / (count - 1)))
            advantages = (advantages - mean) / (std + 1e-8)
        policy_loss, value_loss, mean_entropy = (torch.zeros((), dtype=torch.float64) for _ in range(3))
        for i in range(count):
            ratio = torch.exp(log_probs[i].double() - rows["log_probs"][i])
            limited = min(max(ratio.item(), 1 - self.clip), 1 + self.clip)
            unlimited = ratio * advantages[i]
            surrogate = unlimited if unlimited.item() <= limited * advantages[i].item() else limited * advantages[i]
            error = (values[i].double() - rows["returns"][i]) ** 2
            if self.value_clip is not None:
                step = values[i].double() - rows["values"][i]
                inside = torch.clamp(step, -self.value_clip, self.value_clip)
                error = torch.maximum(error, (rows["values"][i] + inside - rows["returns"][i]) ** 2)
            policy_loss = policy_loss - surrogate / count
            value_loss = value_loss + error / count
            mean_entropy = mean_entropy + entropy[i].double() / count
        self.metrics = {
            "policy_gradient_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": mean_entropy.item(),
        }
        return policy_loss + self.value_coefficient * value_loss - self.entropy_coefficient * mean_entropy

    def step(self, policy: Policy, rows: dict[str, Any]) -> float:
        """Take one gradient step and return the loss before it; its terms are then in `metrics`."""
        for parameter in policy.parameters():
            parameter.grad = None
        loss = self.loss(policy, rows)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in policy.named_parameters()
        }
        norm = math.sqrt(sum(float((gradient.double() ** 2).sum()) for gradient in gradients.values()))
        factor = min(1.0, self.max_norm / (norm + 1e-6))
        self.metrics |= {"loss": float(loss.detach()), "gradient_norm": norm}
        self.steps += 1
        with torch.no_grad():
            for name, parameter in policy.named_parameters():
                self._adam(name, parameter, gradients[name].double() * factor)
        return self.metrics["loss"]

    def _adam(self, name: str, parameter: Tensor, gradient: Tensor) -> None:
        """Kingma and Ba, algorithm 1, with the epsilon of the original PPO implementation."""
        zero = torch.zeros_like(gradient)
        first, second = self.moments.get(name, (zero, zero))
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        self.moments[name] = (first, second)
        unbiased, spread = first / (1 - 0.9**self.steps), second / (1 - 0.999**self.steps)
        parameter -= (self.learning_rate * unbiased / (spread.sqrt() + 1e-5)).float()


def advantages_of(
    rewards: Array, values: Array, terminated: Array, truncated: Array, final: Array, gamma: float, lam: float
) -> Array:
    """Generalized advantages of rollouts without lost steps, computed one environment at a time."""
    steps, envs = rewards.shape
    advantages = np.zeros((steps, envs))
    for env in range(envs):
        running = 0.0
        for t in reversed(range(steps)):
            following = final[t, env] if truncated[t, env] else values[t + 1, env]
            ends = terminated[t, env] or truncated[t, env]
            delta = rewards[t, env] + gamma * (0.0 if terminated[t, env] else following) - values[t, env]
            running = delta + (0.0 if ends else gamma * lam * running)
            advantages[t, env] = running
    return advantages
