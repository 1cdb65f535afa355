"""PPO with the schedule async: V-trace targets from the newest weights; on-policy it equals PPO with sync."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.algorithms.rollouts import a_copy, learner_of, rollout_of, settings_of
from tests.rollout.test_vtrace import by_definition

KINDS = [{}, {"memory": "gru"}, {"masked": True}, {"memory": "gru", "masked": True}]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_on_policy_it_learns_what_it_learns_with_sync(kind: dict[str, Any]) -> None:
    masked = kind.get("masked", False)
    settings = settings_of(memory=kind.get("memory", "none"), epochs=2, minibatch_size=16)
    rollout = rollout_of(settings, masked=masked, moved=0.0)
    one, other = learner_of(settings), learner_of(settings.but(schedule="async"))
    expected, found = one.learn(rollout, 0.0), other.learn(rollout, 0.0)
    assert found == pytest.approx(expected, abs=1e-4)
    np.testing.assert_allclose(other.weights(), one.weights(), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_off_policy_its_targets_are_those_of_vtrace(kind: dict[str, Any]) -> None:
    """The recorded log-probabilities were moved by known amounts, which are the ratios."""
    masked = kind.get("masked", False)
    settings = settings_of(memory=kind.get("memory", "none"), schedule="async")
    moved, exact = (rollout_of(settings, masked=masked, moved=by) for by in (0.5, 0.0))
    learner = learner_of(settings)
    values, final_values = learner._values.of(moved)
    data = {
        "rewards": moved.rewards,
        "values": values,
        "terminated": moved.terminated,
        "truncated": moved.truncated,
        "valid": moved.valid,
        "final_values": final_values,
        "log_ratios": exact.columns["log_probs"] - moved.columns["log_probs"],
    }
    assert np.abs(data["log_ratios"]).max() > 0.5
    targets, advantages = by_definition(data, settings.gamma, settings.lam, 1.0, 1.0)
    _, returns, batch = learner._targets(moved)
    np.testing.assert_allclose(returns, targets, atol=1e-4)
    pieces = batch.collected[1].numpy()
    np.testing.assert_allclose(np.sort(pieces.reshape(-1)), np.sort(advantages.reshape(-1)), atol=1e-4)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_what_a_lost_row_holds_changes_nothing(memory: str) -> None:
    settings = settings_of(schedule="async", memory=memory, minibatch_size=16)
    rollout = rollout_of(settings)
    rollout.valid[3, 1] = False
    rollout.rewards[3, 1] = 0.0
    other = a_copy(rollout)
    other.columns["log_probs"][3, 1] = -50.0
    one, two = learner_of(settings), learner_of(settings)
    assert one.learn(rollout, 0.0) == two.learn(other, 0.0)
    assert one.weights().tobytes() == two.weights().tobytes()
