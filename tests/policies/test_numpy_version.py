"""Small networks in NumPy choose the same actions as torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envfleet.algorithms.policy_actor import PolicyActor
from envfleet.policies.flat import FlatParameters
from envfleet.policies.policy import Policy, build_policy
from envfleet.policies.q_policy import QPolicy, build_q_policy
from envfleet.policies.q_settings import QSettings
from envfleet.policies.settings import PolicySettings

Array = np.ndarray[Any, Any]
ROWS = 4
VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float32)
ACTIONS: list[spaces.Space[Any]] = [
    spaces.Discrete(3),
    spaces.Discrete(4, start=2),
    spaces.Box(-0.3, 0.5, (2,), np.float32),
    spaces.Box(-1.0, 1.0, (2, 3), np.float64),
    spaces.Box(-3, 4, (2,), np.int64),
    spaces.Box(0, 10, (2,), np.uint8),
]


def moved(policy: Policy | QPolicy) -> Policy | QPolicy:
    """Return the policy with its weights in one array, as in training, and none of them zero."""
    flat = FlatParameters(policy)
    random = np.random.default_rng(3)
    flat.numpy()[...] += random.normal(size=len(flat.numpy())).astype(np.float32) * 0.2
    return policy


def assert_decides_alike(
    policy: Policy | QPolicy, *, masked: bool, dtype: Any = np.float32, atol: float = 2e-6
) -> None:
    """Act with NumPy and with torch on the same rows, and compare all results."""
    random = np.random.default_rng(7)
    in_numpy = policy.numpy_version(ROWS)
    assert in_numpy is not None
    for _ in range(20):
        observations = random.normal(size=(ROWS, 5)).astype(dtype)
        memory = random.normal(size=(ROWS, policy.memory_size)).astype(np.float32)
        noise = policy.draw_noise(random, (ROWS,))
        mask = random.random((ROWS, policy.mask_size)) < 0.5 if masked else None
        with torch.inference_mode():
            expected = policy.act(
                {"": torch.from_numpy(observations)},
                torch.from_numpy(memory.copy()),
                torch.from_numpy(noise),
                None if mask is None else torch.from_numpy(mask),
            )
            sent = policy.to_env(expected.actions).numpy()
        acted = in_numpy.act({"": observations}, memory, noise, mask)
        np.testing.assert_allclose(acted.actions, expected.actions, atol=atol)
        np.testing.assert_allclose(acted.env_actions, sent, atol=atol)
        np.testing.assert_allclose(memory, expected.memory, atol=atol)
        assert len(acted.recorded) == len(policy.recorded)
        for found, wanted in zip(acted.recorded, expected.recorded, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("action_space", ACTIONS, ids=str)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_an_actor_decides_as_torch_does(action_space: spaces.Space[Any], activation: Any, memory: Any) -> None:
    settings = PolicySettings(hidden=(16, 8), activation=activation, memory=memory, memory_size=6)
    policy = moved(build_policy(VECTOR, action_space, settings, seed=1, record_values=True))
    assert ("values" in policy.recorded) == (memory == "gru")
    assert_decides_alike(policy, masked=False)


def test_a_gru_may_have_any_size() -> None:
    settings = PolicySettings(hidden=(16,), memory="gru", memory_size=256)
    assert_decides_alike(moved(build_policy(VECTOR, spaces.Discrete(3), settings, seed=1)), masked=False, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_masks_and_a_shared_network(shared: bool) -> None:
    settings = PolicySettings(hidden=(16,), shared=shared)
    policy = moved(build_policy(VECTOR, spaces.Discrete(4), settings, seed=1, record_values=True))
    assert ("values" in policy.recorded) == shared
    assert_decides_alike(policy, masked=True)


def test_normalised_observations_of_another_width() -> None:
    wide = spaces.Box(-np.inf, np.inf, (5,), np.float64)
    policy = build_policy(wide, spaces.Discrete(3), PolicySettings(normalise_observations=True), seed=1)
    FlatParameters(policy)
    rows = torch.from_numpy(np.random.default_rng(0).normal(3.0, [0.01, 0.1, 1.0, 2.0, 5.0], (64, 5)))
    policy.update_normaliser({"": rows})
    assert_decides_alike(policy, masked=False, dtype=np.float64)


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_values_of_actions_choose_as_torch_does(dueling: bool, masked: bool) -> None:
    policy = build_q_policy(VECTOR, spaces.Discrete(4, start=1), QSettings(hidden=(16, 8), dueling=dueling), seed=1)
    moved(policy)
    policy.epsilon.fill_(0.4)
    assert_decides_alike(policy, masked=masked)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_weights_that_arrive_later_are_used(memory: Any) -> None:
    policy = moved(build_policy(VECTOR, spaces.Discrete(3), PolicySettings(memory=memory), seed=1))
    actor, observations = PolicyActor(policy), {"": np.ones((ROWS, 5), np.float32)}
    noise = np.zeros((ROWS, 3), np.float32)
    remembered = np.zeros((ROWS, policy.memory_size), np.float32)
    bound = actor.bind(observations, remembered, np.ones((ROWS, 0), np.bool_))
    weights = FlatParameters(policy).numpy().copy()
    found = []
    for scale in (1.0, 3.0, 1.0):
        actor.load(np.float32(scale) * weights)
        remembered[...] = 0.0
        log_probs = bound.act(noise, masked=False).columns[1].copy()
        found.append((log_probs, remembered.copy()))
    (before, memory_before), (changed, memory_changed), (again, memory_again) = found
    assert not np.allclose(before, changed)
    assert (memory == "none") == np.array_equal(memory_before, memory_changed)
    assert np.array_equal(before, again) and np.array_equal(memory_before, memory_again)


@pytest.mark.parametrize(
    ("space", "settings", "rows"),
    [
        (spaces.Box(0, 255, (64, 64, 3), np.uint8), PolicySettings(), ROWS),
        (spaces.Dict(a=VECTOR, b=VECTOR), PolicySettings(), ROWS),
        (VECTOR, PolicySettings(memory="lstm"), ROWS),
        (VECTOR, PolicySettings(hidden=(256, 256)), ROWS),  # large: torch is as fast, and limits its threads
        (VECTOR, PolicySettings(hidden=(128, 128)), 1),
    ],
)
def test_everything_else_is_left_to_torch(space: spaces.Space[Any], settings: PolicySettings, rows: int) -> None:
    assert build_policy(space, spaces.Discrete(3), settings, seed=1).numpy_version(rows) is None
