"""Lost steps do not affect what PPO learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envfleet.rollout.arrays import Rollout
from tests.algorithms.rollouts import ENVS, STEPS, a_copy, learner_of, rollout_of, settings_of


def without_env(rollout: Rollout, env: int) -> Rollout:
    """Return the rollout without one of its environments."""

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: np.delete(array, env, axis=1) for name, array in value.items()}
        return np.delete(value, env, axis=1) if isinstance(value, np.ndarray) and value.shape[1:2] == (ENVS,) else value

    return Rollout(**{name: cut(value) for name, value in vars(rollout).items()})


def lose(rollout: Rollout, t: Any, env: Any) -> None:
    rollout.valid[t, env] = False
    rollout.rewards[t, env] = 0.0


@pytest.mark.parametrize("normalise_observations", [False, True])
def test_a_rollout_with_lost_rows_gives_the_update_of_one_without_them(normalise_observations: bool) -> None:
    settings = settings_of(minibatch_size=1000, normalise_observations=normalise_observations)
    rollout = rollout_of(settings)
    lose(rollout, slice(None), 2)
    one, two = learner_of(settings), learner_of(settings.but(n_envs=ENVS - 1))
    for _ in range(2):
        metrics, expected = one.learn(rollout, 0.0), two.learn(without_env(rollout, 2), 0.0)
        assert metrics == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(one.weights(), two.weights(), atol=1e-5)


def test_lost_rows_stay_out_of_the_scale_of_rewards() -> None:
    settings = settings_of(minibatch_size=1000, normalise_rewards=True)
    rollout = rollout_of(settings)
    lose(rollout, slice(None), 2)
    one, two = learner_of(settings), learner_of(settings.but(n_envs=ENVS - 1))
    one.learn(rollout, 0.0)
    two.learn(without_env(rollout, 2), 0.0)
    one_scale, two_scale = (learner.state()["reward_scaler"] for learner in (one, two))
    assert one_scale["count"] == two_scale["count"] == STEPS * (ENVS - 1)
    np.testing.assert_allclose(one_scale["var"], two_scale["var"], rtol=1e-6)


def test_the_step_before_a_lost_one_is_worth_the_state_it_led_to() -> None:
    """A rollout whose last step was lost equals one that is a step shorter."""
    settings = settings_of(minibatch_size=1000)
    rollout = rollout_of(settings, often=0.0)
    lose(rollout, STEPS - 1, slice(None))
    shorter = settings.but(rollout_steps=STEPS - 1)
    cut = Rollout(
        **{
            **vars(rollout),
            "observations": {"": rollout.observations[""][:-1]},
            "columns": {name: array[:-1] for name, array in rollout.columns.items()},
            **{name: getattr(rollout, name)[:-1] for name in ("rewards", "terminated", "truncated", "valid")},
        }
    )
    one, two = learner_of(settings), learner_of(shorter)
    assert one.learn(rollout, 0.0) == pytest.approx(two.learn(cut, 0.0), abs=1e-5)
    np.testing.assert_allclose(one.weights(), two.weights(), atol=1e-5)


def test_what_a_lost_row_holds_changes_nothing() -> None:
    settings = settings_of(minibatch_size=16, epochs=2)
    rollout = rollout_of(settings)
    rows = [(0, 1), (6, 2), (STEPS - 1, 0)]
    for t, env in rows:
        lose(rollout, t, env)
    other = a_copy(rollout)
    for t, env in rows:
        other.rewards[t, env] = 5.0
        other.columns["actions"][t, env] = 3 - other.columns["actions"][t, env]
        other.columns["log_probs"][t, env] = np.nan
    one, two = learner_of(settings), learner_of(settings)
    assert one.learn(rollout, 0.0) == two.learn(other, 0.0)
    assert one.weights().tobytes() == two.weights().tobytes()


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_rollout_in_which_nothing_happened_teaches_nothing(memory: str) -> None:
    """All steps of the rollout are lost."""
    settings = settings_of(memory=memory)
    rollout = rollout_of(settings)
    lose(rollout, slice(None), slice(None))
    learner = learner_of(settings)
    before = learner.weights().copy()
    learner.learn(rollout, 0.0)
    assert np.array_equal(learner.weights(), before)
