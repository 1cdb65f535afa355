"""What PPO's loss would cost if autograd differentiated it: `python -m benchmarks.ppo.losses`.

PPO writes out the derivative of its loss (`algorithms/ppo.py`). Here the same gradient is also computed from the loss,
written as a loss, with the networks as one node of the graph. Both get the same minibatches in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from envfleet.algorithms.ppo import PPOLearner, _Minibatch
from envfleet.algorithms.ppo_batch import Batch
from envfleet.algorithms.ppo_metrics import Rates
from envfleet.algorithms.settings import PPO
from envfleet.policies.copies import PolicyCopy

OBSERVATION = 17
SPACES = {"Discrete": spaces.Discrete(2), "Box": spaces.Box(-1.0, 1.0, (6,), np.float32)}
SIZES = (64, 256, 2048)
ROUNDS, REPEATS = 41, 10


class _Networks(torch.autograd.Function):
    """The policy's networks as one node; its backward pass writes to the `.grad` of the weights."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, copy: PolicyCopy, part: Batch) -> tuple[Tensor, Tensor]:
        ctx.copy = copy
        return copy.gradient_pass.forward(part.parts(copy.policy), None, None)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.copy.gradient_pass.backward(*gradients)
        return None, None, None


def gradient_of_loss(settings: PPO, copy: PolicyCopy, part: Batch, minibatch: _Minibatch) -> None:
    """Add the gradient of the loss to the copy's gradient, by autograd."""
    log_probs, advantages, returns, _ = part.collected
    advantages = (advantages - minibatch.mean) / minibatch.std
    clip, rates = minibatch.rates.clip, minibatch.rates
    with torch.enable_grad():
        outputs: Any = _Networks.apply(torch.zeros((), requires_grad=True), copy, part)  # type: ignore[no-untyped-call]
        parameters, values = outputs
        new, entropy = copy.policy.distribution.evaluate(parameters, part.actions, part.mask)
        ratio = (new - log_probs).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(1.0 - clip, 1.0 + clip) * advantages)
        error = (values - returns).square()
        loss = (settings.value_coefficient * error - gain - rates.entropy * entropy).sum() * minibatch.share
    loss.backward()  # type: ignore[no-untyped-call]


def learner_with(action_space: Any, rows: int) -> tuple[PPOLearner, Batch, _Minibatch]:
    """Return a learner and a minibatch of random numbers."""
    settings = PPO(entropy_coefficient=0.01, learner_threads=1, hidden=(64, 64))
    space = spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
    learner = settings.build_learner(space, action_space, n_envs=8, seed=1, device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    actions = (
        torch.randint(0, int(action_space.n), (rows,), generator=generator)
        if isinstance(action_space, spaces.Discrete)
        else torch.randn(rows, *action_space.shape, generator=generator)
    )
    collected = torch.randn(4, rows, generator=generator)
    seen = {"0": torch.randn(rows, OBSERVATION, generator=generator)}
    batch = Batch(seen, actions, collected, None, torch.ones(rows, dtype=torch.bool))
    return learner, batch, _Minibatch(Rates(learning=3e-4, clip=0.2, entropy=0.01), 1.0 / rows)


def compare(action_space: Any, rows: int) -> tuple[float, float]:
    """Return the CPU seconds of a minibatch's gradient: written out, and by autograd."""
    learner, batch, minibatch = learner_with(action_space, rows)
    (copy,) = learner._copies._copies

    def written_out() -> None:
        learner._gradient(copy, batch, minibatch)

    def by_autograd() -> None:
        gradient_of_loss(learner._settings, copy, batch, minibatch)

    ways: tuple[Callable[[], None], ...] = (written_out, by_autograd)
    gradients = []
    with torch.no_grad():
        for way in ways:
            copy.flat.zero_gradient()
            way()
            gradients.append(copy.flat.gradient.clone())
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)
        seconds: list[list[float]] = [[], []]
        for round_ in range(ROUNDS):
            for which in (0, 1) if round_ % 2 else (1, 0):
                began = process_time()
                for _ in range(REPEATS):
                    ways[which]()
                seconds[which].append((process_time() - began) / REPEATS)
    return median(seconds[0]), median(seconds[1])


def main() -> None:
    torch.set_num_threads(1)
    print("| actions | rows | µs, written out | µs, by autograd | ratio |\n|---|---:|---:|---:|---:|")
    for name, space in SPACES.items():
        for size in SIZES:
            ours, theirs = compare(space, size)
            print(f"| {name} | {size:,} | {ours * 1e6:,.0f} | {theirs * 1e6:,.0f} | {theirs / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
