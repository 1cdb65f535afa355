"""One PPO update matches the paper's to the fifth digit, and its options do what they say."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from envfleet.algorithms.ppo import PPOLearner, clipped_errors
from envfleet.algorithms.ppo_metrics import explained_variance
from envfleet.errors import TrainingError
from envfleet.policies import encoders
from envfleet.policies.encoders import NatureCNN
from envfleet.policies.manual_gradients import AutogradPass
from envfleet.policies.policy import Policy, build_policy
from envfleet.rollout.arrays import Rollout
from envfleet.seeding import stream
from tests.algorithms.paper import Paper, advantages_of
from tests.algorithms.rollouts import (
    ACTIONS,
    ENVS,
    SEED,
    STEPS,
    a_copy,
    learner_of,
    parameters,
    policy_of,
    rollout_of,
    settings_of,
)

Array = np.ndarray[Any, Any]
SPACES = {
    "discrete": spaces.Discrete(4),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
}
PICTURE = spaces.Box(0, 255, (36, 36, 3), np.uint8)


def values_of(policy: Any, observations: Array) -> Array:
    """Return values [time, env], computed one row of environments at a time."""
    with torch.no_grad():
        return np.stack([policy.values({"": torch.from_numpy(row)}).numpy() for row in observations]).astype(np.float64)


def paper_rows(settings: Any, policy: Any, rollout: Rollout) -> dict[str, Any]:
    """Return the rollout as rows `[time * env]`, with advantages computed from the definition."""
    values = values_of(policy, rollout.observations[""])
    final = np.zeros_like(values[:-1])
    for t, env, k in zip(*rollout.final_rows(), strict=True):
        final[t, env] = values_of(policy, rollout.finals[""][k, env][None, None])[0, 0]
    advantages = advantages_of(
        rollout.rewards, values, rollout.terminated, rollout.truncated, final, settings.gamma, settings.lam
    )

    def flat(array: Array) -> torch.Tensor:
        return torch.from_numpy(array.reshape(STEPS * ENVS, *array.shape[2:]))

    rows = {
        "observations": {"": flat(rollout.observations[""][:-1])},
        "actions": flat(rollout.columns["actions"]),
        "log_probs": flat(rollout.columns["log_probs"]).double(),
        "advantages": flat(advantages),
        "returns": flat(advantages + values[:-1]),
        "values": flat(values[:-1]),
    }
    if rollout.masks is not None:
        rows["mask"] = flat(rollout.masks[:-1])
    return rows


def chosen(rows: dict[str, Any], index: Array) -> dict[str, Any]:
    picked = torch.from_numpy(index)
    return {
        name: {leaf: value[picked] for leaf, value in part.items()} if name == "observations" else part[picked]
        for name, part in rows.items()
    }


def assert_as_in_the_paper(settings: Any, paper: Paper, action_space: Any, *, masked: bool = False) -> None:
    """Uses two rollouts, so that Adam's moments matter too."""
    rollouts = [
        rollout_of(settings, action_space=action_space, masked=masked, number=number, seed=number)
        for number in range(2)
    ]
    assert_same_updates(
        settings, paper, learner_of(settings, action_space), policy_of(settings, action_space), rollouts
    )


def assert_same_updates(
    settings: Any, paper: Paper, learner: PPOLearner, plain: Policy, rollouts: list[Rollout]
) -> None:
    """The learner and the paper, which updates `plain`, learn the same from the rollouts and report the same losses."""
    before = parameters(plain)
    for rollout in rollouts:
        rows = paper_rows(settings, plain, rollout)
        steps = []
        for epoch in range(settings.epochs):
            order = stream(SEED, 12, rollout.number, epoch).permutation(STEPS * ENVS)
            for part in np.array_split(order, -(-STEPS * ENVS // settings.minibatch_size)):
                paper.step(plain, chosen(rows, part))
                steps.append(paper.metrics)
        metrics = learner.learn(rollout, 0.0)
        for name in ("loss", "policy_gradient_loss", "value_loss", "entropy", "gradient_norm"):
            assert metrics[f"train/{name}"] == pytest.approx(np.mean([step[name] for step in steps]), abs=1e-5), name
    for name, expected in parameters(plain).items():
        found = dict(learner.policy.named_parameters())[name].detach().numpy()
        assert np.abs(expected - before[name]).max() > 1e-4, name  # the weights changed
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)


def rollout_of_pictures(settings: Any, policy: Policy, number: int) -> Rollout:
    """Return a synthetic rollout of 36 x 36 noise images; log-probabilities of its actions come from the policy."""
    rollout, generator = rollout_of(settings, number=number, seed=number), np.random.default_rng(number)
    observations = generator.integers(0, 256, (STEPS + 1, ENVS, *PICTURE.shape), np.uint8)
    finals = generator.integers(0, 256, (STEPS, ENVS, *PICTURE.shape), np.uint8)
    actions = rollout.columns["actions"]
    with torch.no_grad():
        seen = {"": torch.from_numpy(observations[:-1]).flatten(0, 1)}
        log_probs = policy.evaluate(seen, torch.from_numpy(actions).flatten())[0].numpy().reshape(STEPS, ENVS)
    moved = log_probs + 0.3 * generator.normal(size=(STEPS, ENVS)).astype(np.float32)
    columns = {"actions": actions, "log_probs": moved}
    return dataclasses.replace(rollout, observations={"": observations}, finals={"": finals}, columns=columns)


def test_a_value_that_is_not_clipped_has_a_gradient_whatever_its_rounding() -> None:
    """In float32, -0.1 + (0.05 - -0.1) is above 0.05. The others are clipped; the last one's own error is larger."""
    values, old_values = torch.tensor([0.05, 0.5, -0.5, 0.5]), torch.tensor([-0.1, 0.1, 0.1, 0.1])
    returns = torch.tensor([0.0, 1.0, -0.6, -1.0])
    errors, counted = clipped_errors(values, old_values, returns, 0.2)
    torch.testing.assert_close(errors, torch.tensor([0.05, 0.7, 0.5, 1.5]))
    torch.testing.assert_close(counted, torch.tensor([0.05, 0.0, 0.0, 1.5]))


@pytest.mark.parametrize("kind", list(SPACES))
def test_one_update_is_that_of_the_paper(kind: str) -> None:
    assert_as_in_the_paper(settings_of(), Paper(), SPACES[kind])


@pytest.mark.parametrize(
    ("changes", "paper"),
    [
        ({"epochs": 2, "minibatch_size": 20}, Paper()),
        ({"clip_range_values": 0.1}, Paper(value_clip=0.1)),
        ({"clip_range": 0.05}, Paper(clip=0.05)),
        ({"entropy_coefficient": 0.3}, Paper(entropy_coefficient=0.3)),
        ({"value_coefficient": 0.1, "max_gradient_norm": 100.0}, Paper(value_coefficient=0.1, max_norm=100.0)),
        ({"max_gradient_norm": 1e-3}, Paper(max_norm=1e-3)),
        ({"normalise_advantages": False, "gamma": 0.9, "lam": 0.5}, Paper(normalise=False)),
        ({"learning_rate": 1e-2}, Paper(learning_rate=1e-2)),
        ({"shared": True}, Paper()),
        ({"activation": "relu", "hidden": (8, 8)}, Paper()),
        ({"hidden": (8, 8), "learner_threads": 3, "minibatch_size": 20}, Paper()),
        ({"shared": True, "learner_threads": 2, "clip_range_values": 0.1}, Paper(value_clip=0.1)),
    ],
    ids=[
        "minibatches",
        "value clip",
        "clip",
        "entropy",
        "value",
        "gradient norm",
        "advantages",
        "rate",
        "shared",
        "relu",
        "three threads",
        "two threads",
    ],
)
def test_every_knob_does_what_the_paper_says(changes: dict[str, Any], paper: Paper) -> None:
    assert_as_in_the_paper(settings_of(**changes), paper, SPACES["discrete"])


@pytest.mark.parametrize("at_once", [5, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_one_update_from_images_is_that_of_the_paper(
    threads: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = 32 * 8 * 8  # numbers in the output of the first convolution of the Nature CNN
    monkeypatch.setattr(encoders, "_CACHED", at_once * largest)
    settings = settings_of(minibatch_size=32, learner_threads=threads)

    def policy() -> Policy:
        return build_policy(PICTURE, ACTIONS, settings.policy_settings(), seed=SEED)

    assert any(isinstance(module, NatureCNN) for module in policy().modules())
    learner = PPOLearner(settings, policy(), seed=SEED, device=torch.device("cpu"))
    passes, forward = [], AutogradPass.forward

    def count(self: AutogradPass, parts: list[Any], *others: Any) -> tuple[Tensor, Tensor]:
        passes.append(len(parts[0]))
        return forward(self, parts, *others)

    monkeypatch.setattr(AutogradPass, "forward", count)
    rollouts = [rollout_of_pictures(settings, policy(), number) for number in range(2)]
    assert_same_updates(settings, Paper(), learner, policy(), rollouts)
    assert max(passes) == min(at_once, 32 // threads)
    assert sum(passes) == len(rollouts) * settings.epochs * STEPS * ENVS


@pytest.mark.parametrize("kind", ["discrete", "multi_discrete", "multi_binary"])
def test_masks_reach_the_loss(kind: str) -> None:
    assert_as_in_the_paper(settings_of(), Paper(), SPACES[kind], masked=True)


def test_actions_squashed_by_tanh() -> None:
    assert_as_in_the_paper(settings_of(bounds="tanh"), Paper(), SPACES["box"])


def test_the_entropy_bonus_keeps_the_choice_open() -> None:
    def entropy_after(coefficient: float) -> float:
        settings = settings_of(entropy_coefficient=coefficient, epochs=30, learning_rate=1e-2)
        learner = learner_of(settings)
        rollout = rollout_of(settings, moved=0.0)
        learner.learn(rollout, 0.0)
        return learner.learn(rollout, 0.0)["train/entropy"]

    assert entropy_after(1.0) > entropy_after(0.0) + 0.05


def test_the_update_stops_where_the_policy_has_moved_too_far() -> None:
    settings = settings_of(epochs=10, minibatch_size=16, learning_rate=1e-2, target_kl=0.01)
    without = settings_of(epochs=10, minibatch_size=16, learning_rate=1e-2)
    rollout = rollout_of(settings, moved=0.0)
    stopped, whole = learner_of(settings), learner_of(without)
    metrics, metrics_whole = stopped.learn(rollout, 0.0), whole.learn(rollout, 0.0)
    assert metrics["train/early_stop"] == 1.0
    assert metrics_whole["train/early_stop"] == 0.0
    assert 1 <= stopped.updates < whole.updates == 40
    assert metrics["train/n_updates"] == stopped.updates
    far = learner_of(settings_of(epochs=10, minibatch_size=16, learning_rate=1e-2, target_kl=1e3))
    assert far.learn(rollout, 0.0)["train/early_stop"] == 0.0
    assert far.weights().tobytes() == whole.weights().tobytes()


def test_schedules_fall_in_a_line() -> None:
    schedules = dict.fromkeys(("learning_rate", "clip_range", "entropy_coefficient"), "linear")
    settings = settings_of(**{f"{name}_schedule": schedule for name, schedule in schedules.items()})
    learner, rollout = learner_of(settings), rollout_of(settings)
    for progress, left in ((0.0, 1.0), (0.25, 0.75), (1.0, 0.0), (1.5, 0.0)):
        before = learner.weights().copy()
        metrics = learner.learn(rollout, progress)
        assert metrics["train/learning_rate"] == pytest.approx(1e-3 * left)
        assert metrics["train/clip_range"] == pytest.approx(0.2 * left)
        assert metrics["train/entropy_coefficient"] == pytest.approx(0.01 * left)
        assert np.array_equal(before, learner.weights()) == (left == 0.0)
    constant = learner_of(settings_of()).learn(rollout, 0.9)
    assert constant["train/learning_rate"] == pytest.approx(1e-3)
    assert constant["train/clip_range"] == pytest.approx(0.2)
    assert constant["train/entropy_coefficient"] == pytest.approx(0.01)


def test_the_scheduled_weight_of_the_entropy_is_the_one_that_counts() -> None:
    falling = learner_of(settings_of(entropy_coefficient=0.4, entropy_coefficient_schedule="linear"))
    quarter, full = (learner_of(settings_of(entropy_coefficient=each)) for each in (0.1, 0.4))
    rollout = rollout_of(settings_of())
    for learner in (falling, quarter, full):
        learner.learn(rollout, 0.75)
    assert falling.weights().tobytes() == quarter.weights().tobytes() != full.weights().tobytes()


def test_the_same_rollout_gives_the_same_bytes_and_another_number_another_shuffle() -> None:
    settings = settings_of(minibatch_size=16)
    one, two, other = learner_of(settings), learner_of(settings), learner_of(settings)
    one.learn(rollout_of(settings), 0.0)
    two.learn(rollout_of(settings), 0.0)
    other.learn(rollout_of(settings, number=1), 0.0)
    assert one.weights().tobytes() == two.weights().tobytes() != other.weights().tobytes()


def test_a_learner_leaves_the_rollout_as_it_was() -> None:
    settings = settings_of(normalise_rewards=True, normalise_observations=True)
    rollout = rollout_of(settings)
    before = a_copy(rollout)
    learner_of(settings).learn(rollout, 0.0)
    for name in ("rewards", "terminated", "truncated", "valid"):
        assert np.array_equal(getattr(rollout, name), getattr(before, name))
    assert np.array_equal(rollout.observations[""], before.observations[""])
    assert np.array_equal(rollout.columns["log_probs"], before.columns["log_probs"])


def test_diagnostics_of_an_update_that_moves_nothing() -> None:
    """The learning rate is almost zero, so the policy stays the one that collected."""
    settings = settings_of(learning_rate=1e-12, minibatch_size=16)
    metrics = learner_of(settings).learn(rollout_of(settings, moved=0.0), 0.0)
    assert metrics["train/approx_kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["train/clip_fraction"] == 0.0
    assert metrics["train/n_updates"] == 4
    shifted = learner_of(settings).learn(rollout_of(settings, moved=0.5), 0.0)
    assert shifted["train/approx_kl"] > 0.01
    assert 0.3 < shifted["train/clip_fraction"] < 0.9


def test_explained_variance() -> None:
    returns = np.array([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(np.full(4, 9.0), returns) == 0.0
    assert explained_variance(-returns, returns) == -3.0
    assert explained_variance(np.array([1.0, 2.0, 2.0, 3.0]), returns) == pytest.approx(1 - 0.25 / 1.25)
    assert np.isnan(explained_variance(returns, np.ones(4)))


def test_weights_that_are_no_numbers_are_refused() -> None:
    settings = settings_of()
    rollout = rollout_of(settings)
    rollout.rewards[3, 1] = np.nan
    with pytest.raises(TrainingError, match="no longer numbers") as refusal:
        learner_of(settings).learn(rollout, 0.0)
    assert "rollout 0" in str(refusal.value)


def test_a_restored_learner_goes_on_to_the_same_bytes() -> None:
    settings = settings_of(minibatch_size=16, epochs=2, normalise_rewards=True, normalise_observations=True)
    first, second = rollout_of(settings), rollout_of(settings, number=1, seed=1)
    whole = learner_of(settings)
    whole.learn(first, 0.1)
    weights = {name: value.clone() for name, value in whole.policy.state_dict().items()}
    state = whole.state()
    metrics = whole.learn(second, 0.2)
    resumed: PPOLearner = learner_of(settings)
    resumed.policy.load_state_dict(weights)
    resumed.restore(state, {})
    assert resumed.learn(second, 0.2) == metrics
    assert resumed.weights().tobytes() == whole.weights().tobytes()
