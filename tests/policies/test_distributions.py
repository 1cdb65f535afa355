"""Distributions against torch.distributions, and sampled frequencies against probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch import distributions as reference

from envfleet.errors import SettingsError
from envfleet.policies.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    build_distribution,
)
from envfleet.policies.distributions.bounds import Bounds


def _noise(distribution: Distribution, rows: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(distribution.draw_noise(np.random.default_rng(seed), (rows,)))


def _logits(rows: int, size: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).normal(0.0, 2.0, (rows, size)).astype(np.float32))


def _check_that_sample_and_evaluate_agree(distribution: Distribution, parameters: Tensor) -> Tensor:
    with torch.no_grad():
        actions, log_probs = distribution.sample(parameters, _noise(distribution, len(parameters)), None)
    assert actions.shape == (len(parameters), *distribution.action_shape)
    assert actions.numpy().dtype == distribution.action_dtype
    again = distribution.evaluate(parameters, actions, None)[0]
    torch.testing.assert_close(again, log_probs, rtol=0, atol=1e-6)
    return actions


def test_categorical_is_that_of_torch() -> None:
    distribution, logits = Categorical(spaces.Discrete(5)), _logits(64, 5)
    actions = _check_that_sample_and_evaluate_agree(distribution, logits)
    log_probs, entropy = distribution.evaluate(logits, actions, None)
    wanted = reference.Categorical(logits=logits)
    torch.testing.assert_close(log_probs, wanted.log_prob(actions))
    torch.testing.assert_close(entropy, wanted.entropy())
    assert torch.equal(distribution.mode(logits, None), logits.argmax(1))


def test_categorical_has_the_numbers_of_the_textbook() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    log_probs, entropy = Categorical(spaces.Discrete(3)).evaluate(logits, torch.tensor([1]), None)
    assert log_probs.item() == pytest.approx(math.log(0.25), abs=1e-6)
    assert entropy.item() == pytest.approx(1.5 * math.log(2.0), abs=1e-6)


@pytest.mark.parametrize("sizes", [[3, 2, 4], [3, 3]])
def test_multicategorical_is_a_product_of_those_of_torch(sizes: list[int]) -> None:
    distribution, logits = MultiCategorical(spaces.MultiDiscrete(sizes)), _logits(64, sum(sizes))
    actions = _check_that_sample_and_evaluate_agree(distribution, logits)
    log_probs, entropy = distribution.evaluate(logits, actions, None)
    wanted = [reference.Categorical(logits=part) for part in logits.split(sizes, dim=1)]
    torch.testing.assert_close(log_probs, sum(one.log_prob(actions[:, i]) for i, one in enumerate(wanted)))
    torch.testing.assert_close(entropy, sum(one.entropy() for one in wanted))
    best = torch.stack([part.argmax(1) for part in logits.split(sizes, dim=1)], dim=1)
    assert torch.equal(distribution.mode(logits, None), best)


def test_multicategorical_keeps_the_shape_of_its_space() -> None:
    distribution = MultiCategorical(spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 5], [0, 0]]))
    actions = _check_that_sample_and_evaluate_agree(distribution, _logits(6, 11))
    assert distribution.action_shape == (2, 2)
    assert torch.equal(distribution.to_env(actions), actions + torch.tensor([[0, 5], [0, 0]]))


def test_bernoulli_is_that_of_torch() -> None:
    distribution, logits = Bernoulli(spaces.MultiBinary([2, 2])), _logits(64, 4)
    actions = _check_that_sample_and_evaluate_agree(distribution, logits)
    log_probs, entropy = distribution.evaluate(logits, actions, None)
    wanted = reference.Independent(reference.Bernoulli(logits=logits), 1)
    torch.testing.assert_close(log_probs, wanted.log_prob(actions.flatten(1).float()))
    torch.testing.assert_close(entropy, wanted.entropy())
    assert torch.equal(distribution.mode(logits, None).flatten(1).bool(), logits > 0)


def test_gaussian_is_that_of_torch() -> None:
    distribution, mean = Gaussian(spaces.Box(-1, 1, (2, 2)), "clip", -0.7), _logits(64, 4)
    actions = _check_that_sample_and_evaluate_agree(distribution, mean)
    log_probs, entropy = distribution.evaluate(mean, actions, None)
    wanted = reference.Independent(reference.Normal(mean, math.exp(-0.7)), 1)
    torch.testing.assert_close(log_probs, wanted.log_prob(actions.flatten(1)))
    torch.testing.assert_close(entropy, wanted.entropy())
    assert torch.equal(distribution.mode(mean, None).flatten(1), mean)
    assert torch.equal(distribution.to_env(actions), actions.clamp(-1, 1))


def test_a_squashed_gaussian_is_that_of_torch() -> None:
    space = spaces.Box(np.array([-1.0, 2.0], np.float32), np.array([3.0, 2.5], np.float32))
    distribution, mean = Gaussian(space, "tanh", -0.5), _logits(64, 2).clamp(-2, 2)
    actions = _check_that_sample_and_evaluate_agree(distribution, mean)
    log_probs, entropy = distribution.evaluate(mean, actions, None)
    normal = reference.Normal(mean.double(), math.exp(-0.5))
    wanted = reference.TransformedDistribution(normal, [reference.TanhTransform()])
    expected = wanted.log_prob(torch.tanh(actions.double())).sum(1)
    torch.testing.assert_close(log_probs.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy, normal.entropy().sum(1).float())
    sent = distribution.to_env(actions).numpy()
    assert all(row in space for row in sent)
    np.testing.assert_allclose(
        sent, space.low + (np.tanh(actions.numpy()) + 1) / 2 * (space.high - space.low), atol=1e-6
    )
    ends = distribution.to_env(torch.tensor([[-50.0, -50.0], [50.0, 50.0]])).numpy()
    np.testing.assert_allclose(ends, [space.low, space.high])
    far = distribution.evaluate(torch.zeros(1, 2), torch.full((1, 2), 50.0), None)[0]
    assert torch.isfinite(far).all()


def test_squashing_needs_finite_bounds() -> None:
    with pytest.raises(SettingsError, match="no finite bounds"):
        build_distribution(spaces.Box(-np.inf, 1.0, (2,)), "tanh", 0.0)


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_the_environment_gets_the_type_and_the_exact_bounds_of_its_space(dtype: type) -> None:
    space = spaces.Box(-3, 3, (2,), dtype) if dtype is np.int32 else spaces.Box(-0.1, 0.1, (2,), dtype)
    for bounds in ("clip", "tanh"):
        sent = Gaussian(space, bounds, 0.0).to_env(torch.tensor([[-90.0, 90.0], [0.6, 0.02]])).numpy()
        assert all(row in space for row in sent)
        assert sent[0].tolist() == [space.low[0], space.high[0]]


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(0, 10, (2,), np.uint8), [[0, 10], [0, 10], [3, 4]]),
        (spaces.Box(-5, 5, (2,), np.int8), [[-1, 5], [-5, 5], [3, 4]]),
    ],
    ids=str,
)
def test_whole_numbers_that_their_dtype_cannot_hold_become_the_nearer_bound(
    space: spaces.Box, expected: list[list[int]]
) -> None:
    actions, bounds = torch.tensor([[-1.0, 300.0], [-200.0, 11.4], [2.6, 4.4]]), Bounds(space)
    for sent in (bounds.clipped(actions).numpy(), bounds.clipped_in_numpy(actions.numpy())):
        assert sent.dtype == space.dtype and sent.tolist() == expected


def test_discrete_actions_begin_where_the_space_begins() -> None:
    distribution = Categorical(spaces.Discrete(3, start=-1, dtype=np.int32))
    sent = distribution.to_env(torch.tensor([0, 1, 2]))
    assert sent.tolist() == [-1, 0, 1] and sent.dtype == torch.int32


def test_masks_leave_the_distribution_of_what_is_allowed() -> None:
    distribution, logits = Categorical(spaces.Discrete(4)), _logits(32, 4)
    mask = torch.from_numpy(np.random.default_rng(2).random((32, 4)) < 0.5)
    mask[:, 2] = True
    wanted = reference.Categorical(logits=logits.masked_fill(~mask, -torch.inf))
    actions, log_probs = distribution.sample(logits, _noise(distribution, 32), mask.to(torch.int8))
    assert mask.gather(1, actions.unsqueeze(1)).all()
    again, entropy = distribution.evaluate(logits, actions, mask)
    torch.testing.assert_close(log_probs, wanted.log_prob(actions))
    torch.testing.assert_close(again, log_probs)
    probabilities = wanted.probs
    torch.testing.assert_close(entropy, -torch.special.xlogy(probabilities, probabilities).sum(1))
    assert mask.gather(1, distribution.mode(logits, mask).unsqueeze(1)).all()


def test_masks_of_several_choices() -> None:
    distribution, logits = MultiCategorical(spaces.MultiDiscrete([2, 3])), _logits(1, 5)
    mask = torch.tensor([[True, False, False, True, True]])
    wanted = reference.Categorical(logits=logits[:, 3:])
    for seed in range(20):
        actions, log_probs = distribution.sample(logits, _noise(distribution, 1, seed), mask)
        assert actions[0, 0] == 0 and actions[0, 1] in (1, 2)
        torch.testing.assert_close(log_probs, wanted.log_prob(actions[:, 1] - 1))
    torch.testing.assert_close(distribution.evaluate(logits, actions, mask)[1], wanted.entropy())


def test_masks_of_switches() -> None:
    """Forbidden switches always stay off; the others behave as without a mask."""
    distribution, logits = Bernoulli(spaces.MultiBinary([2, 2])), _logits(64, 4) + 3.0
    mask = torch.from_numpy(np.random.default_rng(2).random((64, 4)) < 0.5)
    mask[0] = False
    wanted = reference.Bernoulli(logits=logits)
    actions, log_probs = distribution.sample(logits, _noise(distribution, 64), mask.to(torch.int8))
    switches = actions.flatten(1).float()
    assert actions.shape == (64, 2, 2) and not switches[~mask].any() and switches[mask].any()
    torch.testing.assert_close(log_probs, (wanted.log_prob(switches) * mask).sum(1))
    again, entropy = distribution.evaluate(logits, actions, mask)
    torch.testing.assert_close(again, log_probs)
    torch.testing.assert_close(entropy, (wanted.entropy() * mask).sum(1))
    assert torch.equal(distribution.mode(logits, mask).flatten(1).bool(), mask & (logits > 0.0))


@pytest.mark.parametrize(
    ("distribution", "actions"),
    [(Categorical(spaces.Discrete(5)), [2]), (MultiCategorical(spaces.MultiDiscrete([2, 3])), [[1, 2]])],
)
def test_a_row_that_forbids_everything_is_treated_as_if_it_allowed_everything(
    distribution: Distribution, actions: list[int]
) -> None:
    logits = _logits(1, 5).requires_grad_()
    nothing = torch.zeros(1, 5, dtype=torch.bool)
    free, masked = (distribution.evaluate(logits, torch.tensor(actions), mask) for mask in (None, nothing))
    assert torch.equal(free[0], masked[0]) and torch.equal(free[1], masked[1])


def test_gradients_stay_finite_under_masks() -> None:
    for distribution, actions in (
        (Categorical(spaces.Discrete(5)), torch.tensor([2])),
        (MultiCategorical(spaces.MultiDiscrete([2, 3])), torch.tensor([[0, 0]])),
        (Bernoulli(spaces.MultiBinary(5)), torch.tensor([[1, 0, 0, 0, 0]])),
    ):
        logits = _logits(1, 5).requires_grad_()
        log_probs, entropy = distribution.evaluate(logits, actions, torch.tensor([[1, 0, 1, 0, 0]]))
        (log_probs + entropy).sum().backward()
        assert logits.grad is not None and torch.isfinite(logits.grad).all()


def test_drawn_frequencies_are_the_probabilities() -> None:
    rows = 40_000
    limit = 4.5 / (2 * math.sqrt(rows))  # more than four standard deviations of any frequency
    logits = torch.tensor([[1.0, -0.5, 0.0]]).expand(rows, 3)
    one = Categorical(spaces.Discrete(3))
    drawn = one.sample(logits, _noise(one, rows), None)[0]
    frequencies = torch.bincount(drawn, minlength=3) / rows
    assert (frequencies - torch.softmax(logits[0], 0)).abs().max() < limit

    several = MultiCategorical(spaces.MultiDiscrete([2, 3]))
    logits = torch.tensor([[0.7, 0.0, 1.0, -0.5, 0.0]]).expand(rows, 5)
    drawn = several.sample(logits, _noise(several, rows), None)[0]
    joint = torch.bincount(drawn[:, 0] * 3 + drawn[:, 1], minlength=6) / rows
    wanted = torch.outer(torch.softmax(logits[0, :2], 0), torch.softmax(logits[0, 2:], 0)).flatten()
    assert (joint - wanted).abs().max() < limit

    switches = Bernoulli(spaces.MultiBinary(2))
    logits = torch.tensor([[1.5, -1.0]]).expand(rows, 2)
    drawn = switches.sample(logits, _noise(switches, rows), None)[0]
    assert (drawn.float().mean(0) - torch.sigmoid(logits[0])).abs().max() < limit

    gaussian = Gaussian(spaces.Box(-1, 1, (1,)), "clip", math.log(0.5))
    with torch.no_grad():
        drawn = gaussian.sample(torch.full((rows, 1), 2.0), _noise(gaussian, rows), None)[0]
    assert drawn.mean().item() == pytest.approx(2.0, abs=0.012) and drawn.std().item() == pytest.approx(0.5, abs=0.01)


class _Zeros:
    """Generator that always draws the worst case, 0."""

    def random(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        return np.zeros(shape, dtype)


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)])
def test_noise_is_finite_even_for_a_draw_of_zero(space: spaces.Space) -> None:
    distribution = build_distribution(space, "clip", 0.0)
    noise = distribution.draw_noise(_Zeros(), (7, 2))  # type: ignore[arg-type]
    assert np.isfinite(noise).all()
    assert noise.dtype == np.float32 and noise.shape == (7, 2, distribution.noise_size)


def test_other_action_spaces_are_refused() -> None:
    with pytest.raises(SettingsError, match="the action space is Dict"):
        build_distribution(spaces.Dict({"a": spaces.Discrete(2)}), "clip", 0.0)
