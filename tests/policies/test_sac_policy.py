"""SAC's policy: squashed actions and their densities, choices with masks, random actions, the NumPy version, memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envfleet.errors import SettingsError
from envfleet.policies.flat import FlatParameters
from envfleet.policies.history_settings import HistorySettings
from envfleet.policies.sac_policy import SACPolicy, build_sac_policy
from envfleet.policies.sac_settings import SACPolicySettings
from envfleet.policies.soft_actions import SoftActions, build_soft_actions
from tests.policies import own_networks

VECTOR = spaces.Box(-1.0, 1.0, (6,), np.float32)
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 6.0], np.float32))
CHOICES = spaces.Discrete(4, start=2)
HISTORY = HistorySettings(
    memory_size=5, action_embedding=3, reward_embedding=2, observation_embedding=4,
    parts={"action": ("", 3, 5), "reward": ("", 5, 6)},
)  # fmt: skip


def policy_of(space: spaces.Space[Any] = BOX, observations: spaces.Space[Any] = VECTOR, **settings: Any) -> SACPolicy:
    return build_sac_policy(observations, space, SACPolicySettings(**{"hidden": (8, 7), **settings}), seed=0)


def seen(rows: int) -> dict[str, torch.Tensor]:
    return {"": torch.randn(rows, 6, generator=torch.Generator().manual_seed(1))}


def test_the_density_of_squashed_actions_is_that_of_torch() -> None:
    actions = build_soft_actions(BOX)
    generator = torch.Generator().manual_seed(0)
    parameters = torch.randn(50, 4, generator=generator, dtype=torch.float64).mul_(0.5).requires_grad_()
    noise = torch.randn(50, 2, generator=generator, dtype=torch.float64)
    choices = actions.choices(parameters, noise, None)
    mean, log_std = parameters.chunk(2, 1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform(cache_size=1)])
    drawn = torch.tanh(mean + log_std.exp() * noise)
    expected = squashed.log_prob(drawn).sum(1, keepdim=True)
    torch.testing.assert_close(choices.actions, drawn)
    torch.testing.assert_close(choices.log_probs, expected)
    upstream = torch.randn(50, 2, generator=generator, dtype=torch.float64)
    found = torch.autograd.grad((choices.actions * upstream).sum() + 0.3 * choices.log_probs.sum(), parameters)
    wanted = torch.autograd.grad((drawn * upstream).sum() + 0.3 * expected.sum(), parameters)
    torch.testing.assert_close(found, wanted)


def test_extreme_parameters_stay_finite_and_are_clamped() -> None:
    actions = build_soft_actions(BOX)
    parameters = torch.tensor([[40.0, -40.0, 30.0, -90.0], [0.0, 0.0, 2.0, -20.0]], requires_grad=True)
    choices = actions.choices(parameters, torch.tensor([[1.0, -1.0], [0.5, 0.5]]), None)
    gradient = torch.autograd.grad(choices.log_probs.sum() + choices.actions.sum(), parameters)[0]
    assert torch.isfinite(choices.log_probs).all() and torch.isfinite(gradient).all()
    assert gradient[0, 2:].tolist() == [0.0, 0.0]  # beyond the range of log_std
    assert (gradient[1, 2:] != 0.0).all()  # at its ends


def test_actions_are_scaled_to_the_bounds_and_back() -> None:
    actions = build_soft_actions(BOX)
    stored = torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 0.5]])
    sent = actions.to_env(stored)
    assert sent.tolist() == [[-2.0, 0.0], [0.0, 3.0], [2.0, 4.5]]
    assert np.array_equal(actions.to_env_in_numpy(stored.numpy()), sent.numpy())
    assert np.array_equal(actions.from_env(sent.numpy()), stored.numpy())
    flat = build_soft_actions(spaces.Box(np.array([1.0, -1.0]), np.array([1.0, 1.0]), dtype=np.float64))
    assert flat.from_env(np.array([[1.0, 5.0]])).tolist() == [[0.0, 1.0]]  # no room, and beyond the bounds
    whole = build_soft_actions(spaces.Box(-3, 3, (2,), np.int32))
    assert whole.to_env(torch.tensor([[0.5, -1.0]])).tolist() == [[2, -3]]
    assert whole.to_env_in_numpy(np.array([[0.5, -1.0]], np.float32)).dtype == np.int32


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([2, 3]), spaces.Box(-np.inf, np.inf, (2,), np.float32)])
def test_other_actions_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(SettingsError, match=r"expected Box or Discrete|expected finite bounds"):
        policy_of(space)


def test_choices_are_exact_and_masks_forbid() -> None:
    actions = build_soft_actions(CHOICES)
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0], [5.0, 1.0, 2.0, 3.0]], requires_grad=True)
    mask = torch.tensor([[True, True, True, True], [True, False, True, False], [False, False, False, False]])
    found = actions.choices(logits, None, mask)
    assert found.actions is None
    torch.testing.assert_close(found.probs[0], torch.softmax(logits[0], 0))
    torch.testing.assert_close(found.probs[1, [0, 2]], torch.softmax(torch.tensor([0.0, 2.0]), 0))
    assert found.probs[1, [1, 3]].tolist() == [0.0, 0.0]
    torch.testing.assert_close(found.probs[2], torch.softmax(logits[2], 0))  # nothing allowed counts as everything
    gradient = torch.autograd.grad((found.probs * found.log_probs).sum(), logits)[0]
    assert torch.isfinite(gradient).all() and gradient[1, [1, 3]].tolist() == [0.0, 0.0]
    target = actions.target_entropy(mask)
    assert isinstance(target, torch.Tensor)
    assert target.tolist() == pytest.approx([0.7 * math.log(4), 0.7 * math.log(2), 0.7 * math.log(4)])
    assert actions.target_entropy(None) == pytest.approx(0.7 * math.log(4))
    assert build_soft_actions(BOX).target_entropy(None) == -2.0


def drawn(policy: SACPolicy, rows: int, mask: torch.Tensor | None = None) -> torch.Tensor:
    noise = torch.from_numpy(policy.draw_noise(np.random.default_rng(0), (rows,)))
    with torch.inference_mode():
        return policy.act({"": torch.zeros(rows, 6)}, torch.zeros(rows, 0), noise, mask).actions


def test_random_actions_are_uniform() -> None:
    box, choices = policy_of(), policy_of(CHOICES)
    for policy in (box, choices):
        policy.actor.head.bias.data.fill_(-3.0)[0] = 9.0  # far from uniform otherwise
        policy.actor.random.fill_(1.0)
    found = drawn(box, 4_000).numpy()
    assert np.abs(np.quantile(found, [0.1, 0.5, 0.9], axis=0).T - [-0.8, 0.0, 0.8]).max() < 0.05
    assert np.bincount(drawn(choices, 4_000).numpy(), minlength=4) / 4_000 == pytest.approx([0.25] * 4, abs=0.03)
    mask = torch.tensor([[False, True, False, True]]).expand(4_000, 4)
    counts = np.bincount(drawn(choices, 4_000, mask).numpy(), minlength=4) / 4_000
    assert counts == pytest.approx([0.0, 0.5, 0.0, 0.5], abs=0.03)
    for policy in (box, choices):
        policy.actor.random.fill_(0.0)
    assert drawn(box, 4_000)[:, 0].min() > 0.9
    assert np.bincount(drawn(choices, 4_000).numpy(), minlength=4)[0] > 3_900


@pytest.mark.parametrize("random", [0.0, 1.0])
@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
@pytest.mark.parametrize("space", [BOX, CHOICES, spaces.Box(-3, 3, (1, 2), np.int64)], ids=["box", "discrete", "whole"])
def test_the_numpy_version_acts_alike(space: spaces.Space[Any], memory: Any, random: float) -> None:
    history = None if memory == "none" else HistorySettings(**{**HISTORY.__dict__, "memory": memory})
    policy, rows = policy_of(space, history=history, normalise_observations=True), 3
    policy.update_normaliser(seen(20))
    FlatParameters(policy.acting_module)
    policy.actor.random.fill_(random)
    in_numpy = policy.numpy_version(rows)
    assert in_numpy is not None
    noise = policy.draw_noise(np.random.default_rng(0), (rows,))
    mask = np.array([[True, False, True, True]] * rows) if space is CHOICES else None
    state = torch.randn(rows, policy.memory_size, generator=torch.Generator().manual_seed(3))
    ours = state.numpy().copy()
    with torch.inference_mode():
        expected = policy.act(
            seen(rows), state, torch.from_numpy(noise), None if mask is None else torch.from_numpy(mask)
        )
    found = in_numpy.act({"": seen(rows)[""].numpy()}, ours, noise, mask)
    np.testing.assert_allclose(found.actions, expected.actions.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.env_actions, policy.to_env(expected.actions).numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours, expected.memory.numpy(), rtol=1e-5, atol=1e-6)
    assert found.actions.shape == (rows, *policy.action_shape)


def test_large_actors_use_torch() -> None:
    assert policy_of(hidden=(256, 256)).numpy_version(8) is None


def test_critics_stay_out_of_what_workers_need() -> None:
    policy = policy_of()
    names = set(policy.acting_module.state_dict())
    assert "random" in names and not any("twins" in name for name in names)
    assert FlatParameters.size_of(policy.acting_module) < FlatParameters.size_of(policy) / 2


@pytest.mark.parametrize("architecture", ["memory", "memory-markov"])
def test_steps_and_sequences_remember_alike(architecture: str) -> None:
    policy = policy_of(history=HISTORY, markov_actor=architecture == "memory-markov")
    assert (policy.memory_size > 0) == (architecture == "memory")
    rows = torch.randn(7, 3, 6, generator=torch.Generator().manual_seed(2))
    for encoder in (policy.actor.encoder, policy.critics.encoder):
        with torch.no_grad():
            whole, memory = encoder(list(rows.flatten(0, 1)[None]), 7), torch.zeros(3, encoder.memory_size)
            for time, observation in enumerate(rows):
                now, memory = encoder.step([observation], memory)
                part = whole.part(slice(3 * time, 3 * time + 3))
                torch.testing.assert_close(now.rows, part.rows)
                if now.remembered is not None:
                    torch.testing.assert_close(now.remembered, part.remembered)


@pytest.mark.parametrize("history", [None, HISTORY])
def test_settings_survive_a_file(history: HistorySettings | None) -> None:
    settings = SACPolicySettings(hidden=(4, 5), layer_norm=True, dropout=0.1, history=history, markov_actor=True)
    assert SACPolicySettings.from_json(settings.to_json()) == settings


IMAGE = spaces.Box(0, 255, (12, 12, 3), np.uint8)
MIXED = spaces.Dict({"image": IMAGE, "vector": spaces.Box(-1, 1, (3,)), "kind": spaces.Discrete(3)})


@pytest.mark.parametrize("space", [IMAGE, MIXED], ids=["image", "dict"])
@pytest.mark.parametrize("actions", [BOX, CHOICES], ids=["box", "discrete"])
def test_images_and_dicts_go_through_encoders_of_their_own(space: Any, actions: Any) -> None:
    policy = policy_of(actions, space)
    rows = {name or "": torch.from_numpy(np.stack([part.sample()] * 2)) for name, part in _leaves(space)}
    noise = torch.from_numpy(policy.draw_noise(np.random.default_rng(0), (2,)))
    with torch.inference_mode():
        acted = policy.act(rows, torch.zeros(2, 0), noise).actions
    assert acted.shape == (2, *policy.action_shape)
    ours = list(policy.actor.encoder.features.parameters())
    theirs = list(policy.critics.encoder.features.parameters())
    assert ours and len(ours) == len(theirs) and not set(map(id, ours)) & set(map(id, theirs))


def _leaves(space: Any) -> list[tuple[str, Any]]:
    return list(space.spaces.items()) if isinstance(space, spaces.Dict) else [("", space)]


def test_a_network_of_your_own_encodes_but_does_not_remember() -> None:
    policy = policy_of(network=own_networks.Doubled)
    assert not policy.actor.encoder.features.plain
    with pytest.raises(SettingsError, match="memory reads the observation as a vector"):
        policy_of(network=own_networks.Doubled, history=HISTORY)


def test_every_kind_of_actions_follows_the_protocol() -> None:
    for space in (BOX, CHOICES):
        actions: SoftActions = build_soft_actions(space)
        noise = actions.draw_noise(np.random.default_rng(0), (3, 2))
        assert noise.shape == (3, 2, actions.noise_size) and noise.dtype == np.float32
