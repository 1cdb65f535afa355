"""The policy as the fleet and the learner use it."""

from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import leaves_of, pick
from envfleet.policies.body import ActorCritic
from envfleet.policies.encoders import GridCNN
from envfleet.policies.flat import FlatParameters
from envfleet.policies.policy import Policy, build_policy
from envfleet.policies.protocol import Acted
from envfleet.policies.settings import PolicySettings
from tests.policies import own_networks

VECTOR = spaces.Box(-3, 3, (4,))
PICTURE = spaces.Box(0, 255, (10, 10, 2), np.uint8)
FLAGS = spaces.Box(0, 1, (10, 10, 4), np.bool_)  # as in MinAtar
MIXED = spaces.Dict({"picture": PICTURE, "vector": spaces.Box(-3, 3, (2,)), "choice": spaces.Discrete(3)})
ACTIONS = [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2), spaces.Box(-1, 1, (2,))]


def _observations(space: spaces.Space[Any], *shape: int, seed: int = 0) -> dict[str, Tensor]:
    space = copy.deepcopy(space)
    space.seed(seed)
    samples = [space.sample() for _ in range(math.prod(shape))]
    stacked = {leaf.name: np.stack([pick(one, leaf.path) for one in samples]) for leaf in leaves_of(space)}
    return {name: torch.from_numpy(rows.reshape(*shape, *rows.shape[1:])) for name, rows in stacked.items()}


def _act(policy: Policy, observations: dict[str, Tensor], *, seed: int = 0, mask: Tensor | None = None) -> Acted:
    rows = len(next(iter(observations.values())))
    noise = torch.from_numpy(policy.draw_noise(np.random.default_rng(seed), (rows,)))
    with torch.inference_mode():
        acted = policy.act(observations, policy.initial_memory(rows), noise, mask)
    actions, memory, *recorded = (
        torch.from_numpy(part.numpy().copy()) for part in (acted.actions, acted.memory, *acted.recorded)
    )
    return Acted(actions, memory, tuple(recorded))


@pytest.mark.parametrize("action_space", ACTIONS, ids=str)
@pytest.mark.parametrize(
    "observation_space", [VECTOR, PICTURE, FLAGS, MIXED], ids=["vector", "picture", "flags", "mixed"]
)
@pytest.mark.parametrize("shared", [True, False])
def test_evaluate_and_values_say_what_act_said(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], shared: bool
) -> None:
    policy = build_policy(observation_space, action_space, PolicySettings(shared=shared), seed=1, record_values=True)
    observations = _observations(observation_space, 8)
    acted = _act(policy, observations)
    assert acted.actions.shape == (8, *policy.action_shape) and acted.actions.numpy().dtype == policy.action_dtype
    assert acted.memory.shape == (8, 0)
    assert list(policy.recorded) == (["log_probs", "values"] if shared else ["log_probs"])  # values only if almost free
    found = policy.evaluate(observations, acted.actions)
    expected = (found.log_probs, found.values) if shared else (found.log_probs,)
    torch.testing.assert_close(acted.recorded, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(policy.values(observations), found.values, rtol=0, atol=1e-5)
    assert found.entropy.shape == (8,)
    sent = policy.to_env(acted.actions).numpy()
    assert all(action_space.contains(row) for row in sent)
    (found.log_probs.sum() + found.values.sum() + found.entropy.sum()).backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())


def test_grids_of_flags_are_images() -> None:
    policy = build_policy(FLAGS, spaces.Discrete(3), PolicySettings(), seed=1)
    (encoder,) = (module for module in policy.modules() if isinstance(module, GridCNN))
    flags = _observations(FLAGS, 8)[""]
    assert flags.dtype == torch.bool and flags.any() and not flags.all()
    assert _act(policy, {"": flags}).actions.shape == (8,)
    assert torch.equal(encoder(flags), encoder(flags.float()))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("observation_space", [VECTOR, MIXED], ids=["vector", "mixed"])
@pytest.mark.parametrize("action_space", ACTIONS, ids=str)
def test_a_recurrent_policy_evaluates_sequences_as_it_acted(
    kind: Any, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> None:
    time, envs = 12, 4
    settings = PolicySettings(memory=kind, memory_size=6)
    policy = build_policy(observation_space, action_space, settings, seed=3, record_values=True)
    assert policy.memory_size == (6 if kind == "gru" else 12)
    random = np.random.default_rng(4)
    observations = _observations(observation_space, time, envs)
    starts = torch.from_numpy(random.random((time, envs)) < 0.3)
    assert starts.any(dim=1).sum() > 2 and not starts.all(dim=1).any()
    noise = torch.from_numpy(policy.draw_noise(random, (time, envs)))
    first = torch.from_numpy(random.normal(size=(envs, policy.memory_size)).astype(np.float32))
    memory, steps = first, []
    with torch.no_grad():
        for step in range(time):
            memory = memory.masked_fill(starts[step].unsqueeze(1), 0.0)
            now = {name: value[step] for name, value in observations.items()}
            steps.append(policy.act(now, memory, noise[step]))
            memory = steps[-1].memory
    actions = torch.stack([step.actions for step in steps])
    log_probs, values = (torch.stack([step.recorded[part] for step in steps]) for part in range(2))
    found = policy.evaluate(observations, actions, None, first, starts)
    torch.testing.assert_close(found.log_probs, log_probs, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.values, values, rtol=0, atol=1e-5)
    torch.testing.assert_close(policy.values(observations, first, starts), values, rtol=0, atol=1e-5)
    assert found.entropy.shape == (time, envs)
    untouched = policy.evaluate(observations, actions, None, first)
    assert not torch.allclose(untouched.values, values, rtol=0, atol=1e-5)  # the starts make a difference


def test_a_sequence_without_a_given_memory_begins_with_zeros() -> None:
    policy = build_policy(VECTOR, ACTIONS[0], PolicySettings(memory="lstm"), seed=0)
    observations = _observations(VECTOR, 3, 2)
    assert torch.equal(policy.values(observations), policy.values(observations, policy.initial_memory(2)))


def test_masks_reach_the_distribution_with_and_without_memory() -> None:
    mask = torch.tensor([[False, True, False], [True, False, False]])
    for memory in ("none", "gru"):
        policy = build_policy(VECTOR, spaces.Discrete(3), PolicySettings(memory=memory), seed=0)  # type: ignore[arg-type]
        observations = _observations(VECTOR, 2)
        acted = _act(policy, observations, mask=mask)
        assert acted.actions.tolist() == [1, 0] and acted.recorded[0].tolist() == [0.0, 0.0]
        best, _ = policy.best_actions(observations, policy.initial_memory(2), mask)
        assert best.tolist() == [1, 0] and policy.mask_size == 3
        if memory == "none":
            found = policy.evaluate(observations, acted.actions, mask)
        else:
            sequence = {name: value.unsqueeze(0) for name, value in observations.items()}
            found = policy.evaluate(sequence, acted.actions.unsqueeze(0), mask.unsqueeze(0))
        assert not found.log_probs.any() and not found.entropy.any()


@pytest.mark.parametrize(
    ("action_space", "noise", "mask"),
    [(ACTIONS[0], 3, 3), (ACTIONS[1], 6, 5), (ACTIONS[2], 2, 2), (ACTIONS[3], 2, 0)],
    ids=str,
)
def test_sizes(action_space: spaces.Space[Any], noise: int, mask: int) -> None:
    policy = build_policy(VECTOR, action_space, seed=0)
    assert (policy.noise_size, policy.mask_size, policy.memory_size) == (noise, mask, 0)
    drawn = policy.draw_noise(np.random.default_rng(0), (5, 2))
    assert drawn.shape == (5, 2, noise) and drawn.dtype == np.float32


def test_values_are_only_computed_when_asked_for() -> None:
    policy = build_policy(VECTOR, ACTIONS[0], PolicySettings(shared=True), seed=0)
    assert list(policy.recorded) == ["log_probs"]
    assert len(_act(policy, _observations(VECTOR, 4)).recorded) == 1


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_the_best_action_is_the_mode(memory: Any) -> None:
    policy = build_policy(VECTOR, ACTIONS[3], PolicySettings(memory=memory), seed=0)
    observations, held = _observations(VECTOR, 4), policy.initial_memory(4)
    best, after = policy.best_actions(observations, held)
    acted = policy.act(observations, held, torch.zeros(4, 2))
    assert torch.equal(best, acted.actions) and torch.equal(after, acted.memory)


@pytest.mark.parametrize("settings", [PolicySettings(), PolicySettings(memory="lstm", normalise_observations=True)])
def test_the_same_seed_gives_the_same_bytes_and_leaves_the_generator_of_torch_alone(settings: PolicySettings) -> None:
    torch.manual_seed(11)
    wanted = torch.rand(3)
    torch.manual_seed(11)
    one = build_policy(MIXED, ACTIONS[0], settings, seed=5)
    assert torch.equal(torch.rand(3), wanted)
    other = build_policy(MIXED, ACTIONS[0], settings, seed=5)  # the global generator has advanced since
    assert FlatParameters(one).numpy().tobytes() == FlatParameters(other).numpy().tobytes()
    acted = [_act(policy, _observations(MIXED, 4)) for policy in (one, other)]
    for part in zip(*((each.actions, each.memory, *each.recorded) for each in acted), strict=True):
        assert part[0].numpy().tobytes() == part[1].numpy().tobytes()
    third = build_policy(MIXED, ACTIONS[0], settings, seed=6)
    assert FlatParameters(third).numpy().tobytes() != FlatParameters(one).numpy().tobytes()


def test_threads_that_build_at_the_same_time_get_the_same_weights() -> None:
    wanted = FlatParameters(build_policy(VECTOR, ACTIONS[0], seed=5)).numpy().tobytes()
    before = torch.default_generator.get_state()
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda _: build_policy(VECTOR, ACTIONS[0], seed=5), range(12)))
    assert all(FlatParameters(policy).numpy().tobytes() == wanted for policy in built)
    assert torch.equal(torch.default_generator.get_state(), before)


def test_heads_begin_with_the_gains_of_published_results() -> None:
    body = build_policy(VECTOR, spaces.Discrete(3), seed=0).body
    assert isinstance(body, ActorCritic)
    weight = body.policy_head.weight
    torch.testing.assert_close(weight @ weight.T, 1e-4 * torch.eye(3), rtol=0, atol=1e-8)
    assert body.value_head.weight.norm().item() == pytest.approx(1.0, abs=1e-5)
    assert not body.policy_head.bias.any() and not body.value_head.bias.any()


def test_the_standard_deviation_begins_where_the_settings_say() -> None:
    policy = build_policy(VECTOR, ACTIONS[3], PolicySettings(initial_log_std=-0.5), seed=0)
    assert policy.state_dict()["distribution.log_std"].tolist() == [-0.5, -0.5]


def test_observations_are_normalised_once_per_update_and_images_never() -> None:
    policy = build_policy(MIXED, ACTIONS[0], PolicySettings(normalise_observations=True), seed=0)
    assert list(policy.normaliser_state()) == ["vector"]
    rollout = _observations(MIXED, 6, 4)
    valid = torch.ones(6, 4, dtype=torch.bool)
    valid[2, 1] = False
    before = policy.values(_observations(MIXED, 4))
    policy.update_normaliser(rollout, valid)
    rows = rollout["vector"].numpy().astype(np.float64)[valid.numpy()]
    state = policy.normaliser_state()["vector"]
    np.testing.assert_allclose(state["mean"], rows.mean(0))
    np.testing.assert_allclose(state["var"], rows.var(0))
    after = policy.values(_observations(MIXED, 4))
    assert not torch.equal(before, after)
    joined = policy.inputs({name: value.flatten(0, 1) for name, value in rollout.items()})[0]
    seen = joined[:, 3:]  # after the one-hot choice, in the order of the space
    expected = torch.from_numpy((rollout["vector"].flatten(0, 1).numpy() - rows.mean(0)) / rows.std(0))
    torch.testing.assert_close(seen.double(), expected, rtol=1e-5, atol=1e-5)


def test_normalisers_go_on_from_a_checkpoint() -> None:
    settings = PolicySettings(normalise_observations=True)
    one, other = (build_policy(VECTOR, ACTIONS[0], settings, seed=0) for _ in range(2))
    one.update_normaliser(_observations(VECTOR, 6))
    other.restore_normaliser(one.normaliser_state())
    for policy in (one, other):
        policy.update_normaliser(_observations(VECTOR, 6, seed=1))
    assert FlatParameters(one).numpy().tobytes() == FlatParameters(other).numpy().tobytes()
    with pytest.raises(SettingsError, match="normaliser statistics"):
        other.restore_normaliser({"other": {}})


def test_without_normalisation_an_update_does_nothing() -> None:
    policy = build_policy(VECTOR, ACTIONS[0], seed=0)
    policy.update_normaliser(_observations(VECTOR, 6))
    assert policy.normaliser_state() == {} and not list(policy.inputs.buffers())


@pytest.mark.parametrize("way", ["copy", "pickle", "state"])
def test_a_policy_can_be_copied_and_goes_its_own_way(way: str) -> None:
    settings = PolicySettings(memory="gru", normalise_observations=True)
    policy = build_policy(MIXED, ACTIONS[3], settings, seed=0)
    policy.update_normaliser(_observations(MIXED, 6))
    if way == "state":
        other = build_policy(MIXED, ACTIONS[3], settings, seed=1)
        other.load_state_dict(policy.state_dict(), assign=True)  # replaces the parameter objects
    else:
        other = copy.deepcopy(policy) if way == "copy" else pickle.loads(pickle.dumps(policy))
    observations = _observations(MIXED, 4)
    before = _act(policy, observations)
    assert torch.equal(before.actions, _act(other, observations).actions)
    if way != "state":  # with "state" the two share their parameters
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(0.5)
        assert torch.equal(before.actions, _act(policy, observations).actions)
        assert not torch.equal(before.actions, _act(other, observations).actions)


def test_a_network_of_the_user_sees_the_observation_as_its_space_has_it() -> None:
    settings = PolicySettings(network=own_networks.Encoder, normalise_observations=True, memory="gru")
    policy = build_policy(MIXED, ACTIONS[0], settings, seed=0)
    policy.update_normaliser({"vector": torch.tensor([[0.0, 0.0], [4.0, 2.0]])})
    acted = _act(policy, {**_observations(MIXED, 4), "vector": torch.tensor([[4.0, 1.0]] * 4)})
    encoder = policy.body.get_submodule("actor.encoders.0")
    assert isinstance(encoder, own_networks.Encoder)
    assert encoder.seen["picture"].dtype == torch.uint8 and encoder.seen["picture"].shape == (4, 10, 10, 2)
    assert encoder.seen["choice"].dtype == torch.int64 and encoder.seen["choice"].shape == (4,)
    torch.testing.assert_close(torch.tensor(encoder.seen["vector"].tolist()), torch.tensor([[1.0, 0.0]] * 4))
    assert acted.memory.shape == (4, 128)


@pytest.mark.parametrize("start", [1, 0, -9])
def test_a_network_of_the_user_is_tried_with_numbers_of_its_space(start: int) -> None:
    """An observation of zeros is none of Discrete(5, start=1)."""
    space = spaces.Discrete(5, start=start)
    policy = build_policy(space, ACTIONS[0], PolicySettings(network=own_networks.Embedded), seed=0)
    assert _act(policy, _observations(space, 4)).actions.shape == (4,)


def test_a_network_is_imported_by_name() -> None:
    settings = PolicySettings(network="tests.policies.own_networks:Encoder", shared=False)
    policy = build_policy(MIXED, ACTIONS[0], settings, seed=0)
    assert type(policy.body.get_submodule("critic.encoders.0")).__name__ == "Encoder"


def test_a_whole_policy_of_the_user() -> None:
    for action_space in (spaces.Discrete(3), spaces.Box(-1, 1, (3,))):
        settings = PolicySettings(policy=own_networks.WholePolicy)
        policy = build_policy(VECTOR, action_space, settings, seed=0, record_values=True)
        observations = _observations(VECTOR, 4)
        acted = _act(policy, observations)
        found = policy.evaluate(observations, acted.actions)
        torch.testing.assert_close(acted.recorded, (found.log_probs, found.values), rtol=0, atol=1e-5)
        torch.testing.assert_close(policy.values(observations), found.values, rtol=0, atol=1e-5)
        assert policy.memory_size == 0


def test_a_whole_policy_may_give_its_own_standard_deviation() -> None:
    settings = PolicySettings(policy="tests.policies.own_networks:WithOwnDeviation")
    policy = build_policy(VECTOR, spaces.Box(-1, 1, (2,)), settings, seed=0)
    observations = _observations(VECTOR, 4)
    acted = _act(policy, observations)
    found = policy.evaluate(observations, acted.actions)
    with torch.no_grad():
        mean, log_std = policy.body.get_submodule("module")(observations[""])[0].chunk(2, dim=1)
    wanted = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    torch.testing.assert_close(found.log_probs, wanted.log_prob(acted.actions), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.entropy, wanted.entropy())
    assert "distribution.log_std" not in policy.state_dict()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "nature"}, "network is 'nature', but the observation has no image"),
        ({"network": "tests.policies.no_such:Encoder"}, "there is no module 'tests.policies.no_such'"),
        ({"network": "tests.policies.own_networks:Encodr"}, "has no 'Encodr'"),
        ({"network": "tests.policies.own_networks:NOT_CALLABLE"}, "NOT_CALLABLE is int, expected a class or function"),
        ({"network": own_networks.no_module}, "expected a torch.nn.Module"),
        ({"network": own_networks.BadEncoder}, r"gave \(\) for 2 observations, expected features \(2, n\)"),
        ({"policy": own_networks.BadEncoder}, "takes 2 positional arguments"),
        ({"policy": own_networks.ValuesWithTwoDimensions}, r"gave \(2, 3\), \(2, 1\) for 2 observations"),
    ],
)
def test_what_cannot_be_built_says_why(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build_policy(VECTOR, spaces.Discrete(3), PolicySettings(**settings), seed=0)


def test_images_as_vectors_when_the_settings_say_mlp() -> None:
    policy = build_policy(PICTURE, ACTIONS[0], PolicySettings(network="mlp"), seed=0)
    assert not any(isinstance(module, nn.Conv2d) for module in policy.modules())
    assert _act(policy, _observations(PICTURE, 4)).actions.shape == (4,)
