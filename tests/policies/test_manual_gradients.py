"""The hand-written backward passes match autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envfleet.policies.copies import Copies
from envfleet.policies.flat import FlatParameters
from envfleet.policies.manual_gradients import AutogradPass, TowersPass, make_gradient_pass
from envfleet.policies.policy import Policy, build_policy
from envfleet.policies.settings import PolicySettings

ROWS = 32
VECTOR = spaces.Box(-1.0, 1.0, (5,), np.float32)
ACTIONS = {
    "discrete": spaces.Discrete(4),
    "box": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-binary": spaces.MultiBinary(3),
}


def _case(action_space: spaces.Space[Any], **settings: Any) -> tuple[Policy, FlatParameters, dict[str, torch.Tensor]]:
    policy = build_policy(VECTOR, action_space, PolicySettings(hidden=(16, 8), **settings), seed=0)
    flat = FlatParameters(policy)
    generator = torch.Generator().manual_seed(1)
    observations = torch.randn(ROWS, 5, generator=generator)
    noise = torch.from_numpy(policy.draw_noise(np.random.default_rng(0), (ROWS,)))
    actions = policy.act({"": observations}, torch.zeros(ROWS, 0), noise).actions.detach().clone()
    upstream = torch.randn(3, ROWS, generator=generator)
    return policy, flat, {"observations": observations, "actions": actions, "upstream": upstream}


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_both_tapes_give_the_gradient_of_autograd(name: str, activation: str) -> None:
    policy, flat, data = _case(ACTIONS[name], activation=activation)
    observations, upstream = {"": data["observations"]}, data["upstream"]
    flat.zero_gradient()
    found = policy.evaluate(observations, data["actions"])
    torch.autograd.backward(
        [part for part in found if part.requires_grad],
        [each for part, each in zip(found, upstream, strict=True) if part.requires_grad],
    )
    expected = flat.gradient.clone()
    assert isinstance(make_gradient_pass(policy.body), TowersPass)
    for gradient_pass in (make_gradient_pass(policy.body), AutogradPass(policy.body)):
        flat.zero_gradient()
        with torch.no_grad():
            parameters, _ = gradient_pass.forward(policy.read(observations), None, None)
            score = policy.distribution.score(parameters, data["actions"], None)
            gradient_pass.backward(score.vjp(upstream[0], upstream[1]), upstream[2])
        torch.testing.assert_close(score.log_probs, found.log_probs.detach())
        torch.testing.assert_close(flat.gradient, expected, rtol=1e-4, atol=2e-5)


def test_nothing_flows_back_to_a_forbidden_choice() -> None:
    policy, _, data = _case(ACTIONS["discrete"])
    mask = torch.ones(ROWS, 4, dtype=torch.bool)
    mask[:, 2] = False
    actions = torch.where(data["actions"] == 2, 0, data["actions"])
    logits = torch.randn(ROWS, 4)
    with torch.no_grad():
        gradient = policy.distribution.score(logits, actions, mask).vjp(data["upstream"][0], data["upstream"][1])
    assert torch.equal(gradient[:, 2], torch.zeros(ROWS)) and gradient[:, 0].abs().max() > 0


@pytest.mark.parametrize("settings", [{"memory": "gru"}, {"shared": True}])
def test_anything_more_than_two_mlps_goes_back_by_autograd(settings: dict[str, Any]) -> None:
    policy = build_policy(VECTOR, ACTIONS["discrete"], PolicySettings(**settings), seed=0)
    assert isinstance(make_gradient_pass(policy.body), AutogradPass)


def test_copies_share_weights_and_add_up_their_gradients() -> None:
    policy, flat, data = _case(ACTIONS["discrete"])
    copies = Copies(policy, flat, 3)
    rows, actions, upstream = data["observations"], data["actions"], data["upstream"]

    def gradient_of(copy: Any, part: torch.Tensor) -> float:
        parameters, _ = copy.gradient_pass.forward(copy.policy.read({"": rows[part]}), None, None)
        score = copy.policy.distribution.score(parameters, actions[part], None)
        copy.gradient_pass.backward(score.vjp(upstream[0][part], None), upstream[2][part])
        return float(score.log_probs.sum())

    everything = torch.arange(ROWS)
    with torch.no_grad():
        whole = copies.work(gradient_of, [everything])
        expected = copies.gradient(1).clone()
        parts = copies.work(gradient_of, everything.tensor_split(3))
        torch.testing.assert_close(copies.gradient(3), expected, rtol=1e-4, atol=2e-5)
    assert len(whole) == 1 and sum(parts) == pytest.approx(whole[0], rel=1e-5)
    with torch.no_grad():
        flat.data.mul_(0.5)
        assert copies.work(gradient_of, everything.tensor_split(3)) != parts  # the copies see the new weights
