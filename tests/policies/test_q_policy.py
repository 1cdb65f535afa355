"""Q-networks: dueling and noisy heads against their formulas, epsilon-random actions, masks, cells."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envfleet.algorithms.settings import DQN
from envfleet.errors import SettingsError
from envfleet.policies.policy import build_policy
from envfleet.policies.q_policy import QPolicy, build_q_policy
from envfleet.policies.q_settings import QSettings
from envfleet.runs.trained_policy import TrainedPolicy
from tests.policies import own_networks

VECTOR, CHOICES = spaces.Box(-1.0, 1.0, (5,), np.float32), spaces.Discrete(4, start=2)


def policy_of(**settings: Any) -> QPolicy:
    return build_q_policy(VECTOR, CHOICES, QSettings(hidden=(8,), **settings), seed=0)


def observations(rows: int) -> dict[str, torch.Tensor]:
    return {"": torch.randn(rows, 5, generator=torch.Generator().manual_seed(1))}


def test_dueling_values_are_the_state_and_centred_advantages() -> None:
    policy, seen = policy_of(dueling=True), observations(6)
    with torch.no_grad():
        features = policy.network.trunk([seen[""]])
        state = policy.network.state.layer(features)
        advantages = policy.network.advantages.layer(features)
        expected = state + advantages - advantages.mean(1, keepdim=True)
        torch.testing.assert_close(policy.q_values(seen), expected)
    assert "network.state.layer.weight" not in policy_of(dueling=False).state_dict()


def test_a_noisy_head_is_a_layer_whose_weights_were_shaken() -> None:
    policy, seen = policy_of(dueling=False, noisy=True), observations(1)
    noise = torch.randn(1, policy.head_noise, generator=torch.Generator().manual_seed(2))
    head = policy.network.advantages
    with torch.no_grad():
        features = policy.network.trunk([seen[""]])
        into, out = noise[0, : features.shape[1]], noise[0, features.shape[1] :]
        weight = head.mean.weight + head.spread.weight * torch.outer(out, into)
        expected = features @ weight.t() + head.mean.bias + head.spread.bias * out
        torch.testing.assert_close(policy.q_values(seen, noise), expected)
        assert not torch.allclose(policy.q_values(seen), expected)


@pytest.mark.parametrize(("epsilon", "share"), [(0.0, 0.0), (0.3, 0.3), (1.0, 1.0)])
def test_random_actions_come_as_often_as_epsilon_says(epsilon: float, share: float) -> None:
    policy, rows = policy_of(), 4_000
    seen = {"": torch.zeros(rows, 5)}
    with torch.no_grad():
        policy.epsilon.fill_(epsilon)
        noise = torch.from_numpy(policy.draw_noise(np.random.default_rng(0), (rows,)))
        acted = policy.act(seen, torch.zeros(rows, 0), noise)
        best, _ = policy.best_actions(seen, torch.zeros(rows, 0))
    others = float((acted.actions != best).float().mean())
    assert others == pytest.approx(share * 3 / 4, abs=0.03)
    assert policy.to_env(acted.actions).min() >= 2


def test_neither_the_best_nor_a_random_action_is_a_forbidden_one() -> None:
    policy, rows = policy_of(), 500
    mask = torch.zeros(rows, 4, dtype=torch.bool)
    mask[:, 1] = mask[:, 3] = True
    with torch.no_grad():
        for epsilon in (0.0, 1.0):
            policy.epsilon.fill_(epsilon)
            noise = torch.from_numpy(policy.draw_noise(np.random.default_rng(1), (rows,)))
            acted = policy.act(observations(rows), torch.zeros(rows, 0), noise, mask)
            assert set(acted.actions.tolist()) <= {1, 3}


@pytest.mark.parametrize("shape", [(3, 6, 5), (6, 5, 3)])
def test_cells_have_a_value_each(shape: tuple[int, ...]) -> None:
    grid = spaces.Box(0.0, 1.0, shape, np.float32)
    policy = build_q_policy(grid, spaces.Discrete(30), QSettings(network="cells"), seed=0)
    with torch.no_grad():
        assert policy.q_values({"": torch.rand(2, *shape)}).shape == (2, 30)
    with pytest.raises(SettingsError, match=r"but there are 7 actions"):
        build_q_policy(grid, spaces.Discrete(7), QSettings(network="cells"), seed=0)


def test_cells_of_bytes_are_scaled_by_their_upper_bound() -> None:
    settings, actions = QSettings(network="cells"), spaces.Discrete(16)
    of_bytes = build_q_policy(spaces.Box(0, 10, (2, 4, 4), np.uint8), actions, settings, seed=0)
    of_floats = build_q_policy(spaces.Box(0, 1, (2, 4, 4), np.float32), actions, settings, seed=0)
    cells = torch.randint(0, 11, (3, 2, 4, 4), dtype=torch.uint8)
    torch.testing.assert_close(of_bytes.q_values({"": cells}), of_floats.q_values({"": cells.float() / 10.0}))


def test_blocks_of_cells_have_a_value_each() -> None:
    grid = spaces.Box(0.0, 1.0, (9, 8, 8), np.float32)
    cells = build_q_policy(grid, spaces.Discrete(64), QSettings(network="cells", dueling=False), seed=0)
    blocks = build_q_policy(grid, spaces.Discrete(16), QSettings(network="cells", dueling=False), seed=0)
    seen = {"": torch.rand(2, 9, 8, 8)}
    with torch.no_grad():
        each, together = cells.q_values(seen).reshape(2, 8, 8), blocks.q_values(seen).reshape(2, 4, 4)
    assert torch.allclose(together[1, 2, 3], each[1, 4:6, 6:8].mean(), atol=1e-6)


def test_only_a_number_of_actions_can_be_valued() -> None:
    with pytest.raises(SettingsError, match="expected Discrete"):
        build_q_policy(VECTOR, spaces.Box(-1, 1, (2,)), QSettings(), seed=0)


# ---- user-defined networks

OWN = "tests.policies.own_networks"


@pytest.mark.parametrize("given", [own_networks.ActionValues, f"{OWN}:ActionValues"])
def test_a_whole_network_gives_the_values(given: Any) -> None:
    policy, seen = policy_of(policy=given), observations(6)
    with torch.no_grad():
        torch.testing.assert_close(policy.q_values(seen), policy.get_submodule("network.module")(seen[""]))
        best, _ = policy.best_actions(seen, torch.zeros(6, 0))
        assert torch.equal(best, policy.q_values(seen).argmax(1))
    assert "network.module.linear.weight" in policy.state_dict()


@pytest.mark.parametrize("dueling", [True, False])
def test_heads_come_after_an_own_encoder(dueling: bool) -> None:
    policy, seen = policy_of(network=f"{OWN}:Doubled", dueling=dueling), observations(6)
    features = torch.cat([seen[""], seen[""]], dim=1)
    with torch.no_grad():
        advantages = policy.network.advantages.layer(features)
        expected = advantages
        if dueling:
            expected = policy.network.state.layer(features) + advantages - advantages.mean(1, keepdim=True)
        torch.testing.assert_close(policy.q_values(seen), expected)
    noisy = policy_of(network=f"{OWN}:Doubled", dueling=dueling, noisy=True)
    assert noisy.head_noise == 10 + 4 + (1 if dueling else 0)


def test_an_own_network_sees_normalised_observations() -> None:
    policy = policy_of(policy=own_networks.ActionValues, normalise_observations=True)
    policy.update_normaliser({"": torch.tensor([[0.0] * 5, [4.0] * 5])})
    with torch.no_grad():
        expected = policy.get_submodule("network.module")(torch.ones(1, 5))
        torch.testing.assert_close(policy.q_values({"": torch.full((1, 5), 4.0)}), expected)


def test_settings_with_own_networks_go_to_files_by_name() -> None:
    for name, kind in (("network", own_networks.Doubled), ("policy", own_networks.ActionValues)):
        settings = QSettings(**{name: kind})
        assert settings.to_json()[name] == f"{OWN}:{kind.__name__}"
        assert QSettings.from_json(settings.to_json()) == QSettings(**{name: f"{OWN}:{kind.__name__}"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": own_networks.TooManyValues}, r"gave \(2, 5\) for 2 observations, expected values \(2, 4\)"),
        ({"policy": own_networks.WholePolicy}, "the policy gave tuple for 2 observations, expected values"),
        ({"policy": own_networks.Doubled}, r"it is called as Class\(observation_space, action_space\)"),
        ({"policy": f"{OWN}:Nothing"}, "has no 'Nothing'"),
        ({"network": own_networks.BadEncoder}, r"gave \(\) for 2 observations, expected features \(2, n\)"),
        ({"network": own_networks.no_module}, "expected a torch.nn.Module"),
    ],
)
def test_own_networks_that_do_not_fit_say_why(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        policy_of(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "natur"}, "network is 'natur', expected one of auto, mlp, nature, impala, cells, 'module:Class'"),
        ({"policy": "mlp"}, "policy is 'mlp', expected 'module:Class', a class or None"),
        ({"policy": "a:B", "network": "mlp"}, "both policy and network ('mlp') were given"),
        ({"policy": "a:B", "noisy": True}, "noisy is set, but a whole policy has its own heads"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        DQN(**settings)


def test_ranked_actions_are_the_allowed_ones_with_the_largest_values() -> None:
    actions = spaces.Discrete(5, start=3)
    policy = build_q_policy(spaces.Box(-1, 1, (3,)), actions, QSettings(hidden=(8,)), seed=1)
    trained = TrainedPolicy(policy, spaces.Box(-1, 1, (3,)), actions)
    observation = np.array([0.5, -0.2, 0.1], np.float32)
    values = policy.q_values({"": torch.from_numpy(observation[None])})[0].detach().numpy()
    best_first = (np.argsort(-values) + 3).tolist()
    assert trained.ranked(observation, None, 2) == best_first[:2]
    assert trained.ranked(observation, None, 9) == best_first
    mask = np.ones(5, np.int8)
    mask[best_first[0] - 3] = mask[best_first[2] - 3] = 0
    assert trained.ranked(observation, mask, 9) == [best_first[1], *best_first[3:]]


def test_a_policy_that_does_not_rank_actions() -> None:
    space, actions = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
    trained = TrainedPolicy(build_policy(space, actions, seed=1), space, actions)
    with pytest.raises(SettingsError, match="does not rank its actions"):
        trained.ranked(np.zeros(3, np.float32), None, 2)
