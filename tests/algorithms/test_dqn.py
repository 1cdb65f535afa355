"""DQN: one update against written-out formulas, with each extra on and off; exploration; the number of updates."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envfleet.algorithms.dqn import DQNLearner
from envfleet.algorithms.dqn_metrics import DQNUpdateMetrics
from envfleet.algorithms.settings import DQN
from envfleet.errors import SettingsError
from envfleet.policies.q_manual_gradients import _AutogradQPass
from envfleet.policies.q_policy import build_q_policy
from envfleet.policies.weights import load_weights
from envfleet.rollout.replay import Experience
from tests.rollout.test_replay import World, lost_rollout

ENVS = 3
SPACE = spaces.Box(-np.inf, np.inf, (2,), np.float64)
ACTIONS = spaces.Discrete(4)


def learner_of(**changes: Any) -> DQNLearner:
    base: dict[str, Any] = {
        "n_envs": ENVS,
        "rollout_steps": 4,
        "replay_size": 200,
        "learning_starts": 8,
        "minibatch_size": 16,
        "hidden": (8,),
        "seed": 3,
    }
    settings = DQN(**{**base, **changes})
    policy = build_q_policy(SPACE, ACTIONS, settings.policy_settings(), seed=3)
    return DQNLearner(settings, policy, SPACE, n_envs=ENVS, seed=3, device=torch.device("cpu"))


def experience(rows: int = 16, *, masked: bool = False) -> Experience:
    generator = np.random.default_rng(0)
    return Experience(
        np.arange(rows),
        {"": generator.normal(size=(2 * rows, 2))},
        generator.integers(4, size=rows),
        generator.normal(size=rows).astype(np.float32),
        np.where(generator.random(rows) < 0.3, 0.0, 0.97).astype(np.float32),
        generator.random((rows, 4)) < 0.6 if masked else None,
    )


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("loss", ["huber", "mse"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("network", ["one layer", "two layers", "autograd", "noisy"])
def test_one_update_is_that_of_the_formulas(double: bool, loss: str, masked: bool, dueling: bool, network: str) -> None:
    """With noisy heads, each of the three passes has separate noise: values, choice, and value of the choice."""
    hidden, noisy = (8, 6) if network == "two layers" else (8,), network == "noisy"
    settings = {"double": double, "loss": loss, "dueling": dueling, "hidden": hidden, "noisy": noisy}
    learner = learner_of(**settings, max_gradient_norm=0.7, learning_rate=0.01)
    if network == "autograd":  # the path for networks other than an MLP
        learner._gradient_pass, learner._target_pass = _AutogradQPass(learner.policy), _AutogradQPass(learner._target)
    with torch.no_grad():
        learner._target_flat.data.mul_(1.1)  # makes the two networks differ
    online, target = copy.deepcopy(learner.policy), copy.deepcopy(learner._target)
    of_values, of_choice, of_target = learner._head_noise(16)
    if noisy:
        assert of_values is not None and of_choice is not None and of_target is not None
        assert len({part.numpy().tobytes() for part in (of_values, of_choice, of_target)}) == 3
    taken = experience(masked=masked)
    importance_weights = np.linspace(0.2, 1.0, 16).astype(np.float32)
    update_metrics = DQNUpdateMetrics()
    with torch.no_grad():
        learner._step(taken, importance_weights, 0.01, update_metrics)

    following = torch.from_numpy(taken.following[""]).float()
    with torch.no_grad():
        values = target.q_values({"": following}, of_target)
        chooser = online.q_values({"": following}, of_choice) if double else values.clone()
        if taken.masks is not None:
            for row, allowed in enumerate(taken.masks):
                if allowed.any():
                    chooser[row, ~torch.from_numpy(allowed)] = -torch.inf
        best = values[torch.arange(16), chooser.argmax(1)]
        targets = torch.from_numpy(taken.returns) + torch.from_numpy(taken.discounts) * best
    optimiser = torch.optim.Adam(online.parameters(), lr=0.01, eps=1.5e-4 if noisy else 1e-8)
    found = online.q_values({"": torch.from_numpy(taken.observations[""])}, of_values)
    chosen = found[torch.arange(16), taken.actions]
    error = chosen - targets
    each = torch.where(error.abs() < 1.0, 0.5 * error**2, error.abs() - 0.5) if loss == "huber" else error**2
    expected_loss = (each * torch.from_numpy(importance_weights)).mean()
    expected_loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(online.parameters(), 0.7)
    optimiser.step()
    metrics = update_metrics.means(loss)
    assert metrics["train/loss"] == pytest.approx(expected_loss.item(), rel=1e-5)
    assert metrics["train/q_value"] == pytest.approx(chosen.mean().item(), rel=1e-5)
    assert metrics["train/gradient_norm"] == pytest.approx(norm.item(), rel=1e-4)
    for (name, parameter), expected in zip(learner.policy.named_parameters(), online.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-6, msg=name)


def test_where_nothing_that_follows_counts_the_reward_is_all() -> None:
    """A discount of zero skips the target network; a discount near zero evaluates it, with the same result."""
    zero, nearly = learner_of(gamma=0.0, n_step=1), learner_of(gamma=0.5, n_step=1)
    with torch.no_grad():
        zero._target_flat.data.fill_(torch.nan)  # shows up if the target network is used
        zero._step(replace(experience(), discounts=np.zeros(16, np.float32)), None, 0.01, DQNUpdateMetrics())
        nearly._step(replace(experience(), discounts=np.full(16, 1e-9, np.float32)), None, 0.01, DQNUpdateMetrics())
    assert np.allclose(zero.weights(), nearly.weights(), atol=1e-5) and np.isfinite(zero.weights()).all()


@pytest.mark.parametrize("masked", [True, False])
def test_the_margin_lifts_demonstrated_actions_as_the_formula_says(masked: bool) -> None:
    """The margin applies to all other allowed actions. A demonstrated action counts even if its mask forbids it."""
    learner = learner_of(demonstrations="some.npz", margin=0.8, max_gradient_norm=1e9, gamma=0.0)
    rivals = np.random.default_rng(1).random((6, 4)) < 0.5 if masked else None
    policy, taken = copy.deepcopy(learner.policy), replace(experience(), demonstrated=6, allowed=rivals)
    update_metrics = DQNUpdateMetrics()
    with torch.no_grad():
        learner._step(replace(taken, discounts=np.zeros(16, np.float32)), None, 0.0, update_metrics)
    values = policy.q_values({"": torch.from_numpy(taken.observations[""])})
    chosen = values[torch.arange(16), taken.actions]
    shown = values[:6] + 0.8 * (1.0 - torch.nn.functional.one_hot(torch.from_numpy(taken.actions[:6]), 4))
    if rivals is not None:
        assert rivals.any(1).all() and not rivals[np.arange(6), taken.actions[:6]].all()
        rivals[np.arange(6), taken.actions[:6]] = True
        free, shown = shown.argmax(1), shown.masked_fill(torch.from_numpy(~rivals), -torch.inf)
        assert not torch.equal(free, shown.argmax(1))
    loss = torch.nn.functional.smooth_l1_loss(chosen, torch.from_numpy(taken.returns))
    loss = loss + (shown.max(1).values - chosen[:6]).mean()
    loss.backward()
    assert update_metrics.means("huber")["train/loss"] == pytest.approx(loss.item(), rel=1e-5)
    for (name, found), expected in zip(learner.policy.named_parameters(), policy.parameters(), strict=True):
        assert found.grad is not None and expected.grad is not None
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_the_target_follows_all_at_once_or_a_little() -> None:
    hard, soft = learner_of(target_update_frequency=2), learner_of(target_rate=0.25)
    for learner in (hard, soft):
        with torch.no_grad():
            learner._flat.data.add_(1.0)
    before = soft._target_flat.data.clone()
    soft._follow()
    torch.testing.assert_close(soft._target_flat.data, before + 0.25 * (soft._flat.data - before))
    hard.updates = 1
    hard._follow()
    assert not torch.equal(hard._target_flat.data, hard._flat.data)
    hard.updates = 2
    hard._follow()
    assert torch.equal(hard._target_flat.data, hard._flat.data)


@pytest.mark.parametrize("follows", [{"target_rate": 0.05}, {"target_update_frequency": 1_000}])
def test_both_networks_read_observations_normalised_alike(follows: dict[str, Any]) -> None:
    learner, world = learner_of(normalise_observations=True, **follows), World(0, choices=4)
    for _ in range(2):
        learner.learn(world.rollout(4), 0.0)
        online, target = (policy.inputs.normaliser_of("") for policy in (learner.policy, learner._target))
        assert online is not None and target is not None and online.mean.all()
        assert torch.equal(target.mean, online.mean) and torch.equal(target.inverse_std, online.inverse_std)
    assert learner.updates


def test_it_learns_in_proportion_to_what_was_collected() -> None:
    learner, world = learner_of(train_frequency=5, gradient_steps=2, learning_starts=24), World(0, choices=4)
    learner.learn(world.rollout(4), 0.0)  # 12 steps: too few to start
    assert learner.updates == 0
    learner.learn(world.rollout(4), 0.0)  # 24 steps: the last 12 allow 4.8 updates
    assert learner.updates == 4
    learner.learn(world.rollout(4), 0.0)
    assert learner.updates == 9  # 9.6 rounded down


@pytest.mark.parametrize("prioritised", [True, False])
def test_lost_steps_alone_are_nothing_to_learn_from(prioritised: bool) -> None:
    learner = learner_of(learning_starts=1, train_frequency=4, prioritised=prioritised)
    world = World(0, choices=4)
    assert np.isnan(learner.learn(lost_rollout(world), 0.0)["train/loss"]) and learner.updates == 0
    learner.learn(world.rollout(4), 0.0)
    assert learner.updates == 3  # none are due for the lost steps


def test_exploration_falls_linearly_or_by_a_factor() -> None:
    learner, world = learner_of(initial_epsilon=0.9, epsilon_min=0.1, exploration_fraction=0.5), World(0, choices=4)
    learner.learn(world.rollout(2), 0.25)
    assert float(learner.policy.epsilon) == pytest.approx(0.5)
    learner.learn(world.rollout(2), 0.9)
    assert float(learner.policy.epsilon) == pytest.approx(0.1)
    other, world = (
        learner_of(initial_epsilon=0.8, epsilon_decay=0.5, epsilon_min=0.15, train_frequency=6),
        World(0, choices=4),
    )
    other.learn(world.rollout(4), 0.0)  # 12 steps: two rounds of training
    assert float(other.policy.epsilon) == pytest.approx(0.2)
    other.learn(world.rollout(4), 0.0)
    assert float(other.policy.epsilon) == pytest.approx(0.15)


def test_a_run_that_starts_from_another_explores_by_its_own_settings() -> None:
    first, learner = learner_of(), learner_of(initial_epsilon=0.8)
    first._set_epsilon(1.0)
    load_weights(learner.policy, first.policy.state_dict(), "another run")
    learner.start_from(first.state())
    assert float(learner.policy.epsilon) == pytest.approx(0.8)


def test_priorities_follow_the_errors_and_never_name_a_step_that_did_not_happen() -> None:
    learner, world = learner_of(prioritised=True, train_frequency=1, replay_size=60), World(5, choices=4)
    for _ in range(12):
        learner.learn(world.rollout(4), 0.0)
    tree, everything = learner.experience.priorities, np.arange(learner.experience.replay.rows * ENVS)
    priorities, happened = tree.state(), learner.experience.replay.happened(everything)
    assert (priorities[~happened] == 0.0).all() and (priorities[happened] > 0.0).all()
    ((taken, importance_weights),) = learner.experience.batches(1, learner.updates)
    assert importance_weights is not None and importance_weights.max() == 1.0
    with torch.no_grad():
        learner._step(taken, importance_weights, 0.001, DQNUpdateMetrics())
    distinct = np.flatnonzero(np.bincount(taken.entries) == 1)
    assert len(np.unique(tree.state()[distinct])) > 4


def test_a_learner_put_back_goes_on_as_if_nothing_had_been() -> None:
    settings: dict[str, Any] = {
        "prioritised": True,
        "noisy": True,
        "normalise_observations": True,
        "train_frequency": 4,
    }
    learner, world = learner_of(**settings), World(7, choices=4)
    pieces: dict[str, Any] = {}
    for _ in range(5):
        learner.learn(world.rollout(4), 0.1)
        named = learner.pieces()
        pieces = {name: content or pieces[name] for name, content in named.items()}
    other = learner_of(**settings)
    other.policy.load_state_dict(learner.policy.state_dict())
    other.restore(copy.deepcopy(learner.state()), pieces)
    other._set_epsilon(0.1)
    following = world.rollout(4)
    learner.learn(following, 0.2)
    other.learn(following, 0.2)
    assert np.array_equal(learner.weights(), other.weights())


def test_fresh_episodes_are_saved_as_such() -> None:
    """Pieces saved before the resume do not record that their last episodes were cut."""
    settings: dict[str, Any] = {"learning_starts": 6, "n_step": 3, "train_frequency": 4}
    learner, world = learner_of(**settings), World(7, choices=4)
    learner.learn(world.rollout(4), 0.1)
    assert list(learner.pieces()) == ["rows-0-4"]
    learner.begin_fresh_episodes()
    learner.learn(world.rollout(4), 0.1)
    pieces = learner.pieces()
    assert list(pieces) == ["rows-0-8"]
    other = learner_of(**settings)
    other.policy.load_state_dict(learner.policy.state_dict())
    other.restore(copy.deepcopy(learner.state()), pieces)
    following = world.rollout(4)
    learner.learn(following, 0.2)
    other.learn(following, 0.2)
    assert np.array_equal(learner.weights(), other.weights())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"replay_size": 100, "n_envs": 64, "rollout_steps": 16}, "at least one rollout"),
        ({"learning_starts": 10_000, "replay_size": 5_000}, "at most replay_size"),
        ({"noisy": True, "network": "cells"}, "no noisy head"),
        ({"learner_threads": 2}, "learner_threads is 2, expected 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        DQN(**settings)
