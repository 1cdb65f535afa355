"""With memory, an update matches the paper's over whole sequences, and lost rows are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from envfleet.algorithms.ppo import PPOLearner
from envfleet.algorithms.values import RolloutValues
from envfleet.rollout.arrays import Rollout
from tests.algorithms.paper import Paper, advantages_of
from tests.algorithms.rollouts import (
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
LENGTH = 4
MEMORIES = pytest.mark.parametrize("memory", ["gru", "lstm"])


def values_of(policy: Any, rollout: Rollout) -> tuple[Array, Array]:
    """Return values [time + 1, env] and values of final observations, computed one env and one step at a time."""
    values, final = np.zeros((STEPS + 1, ENVS)), np.zeros((STEPS, ENVS))
    finals = {(t, env): k for t, env, k in zip(*rollout.final_rows(), strict=True)}

    def value(observation: Array, memory: torch.Tensor) -> float:
        return float(policy.values({"": torch.from_numpy(observation)[None, None]}, memory))

    with torch.no_grad():
        for env in range(ENVS):
            memory = policy.initial_memory(1)
            for t in range(STEPS + 1):
                if t % LENGTH == 0:
                    memory = torch.from_numpy(rollout.memory[t // LENGTH][env][None])
                observation = rollout.observations[""][t, env]
                values[t, env] = value(observation, memory)
                if (t, env) in finals:
                    k = finals[t, env]
                    held = torch.from_numpy(rollout.final_memory[k, env][None])
                    final[t, env] = value(rollout.finals[""][k, env], held)
                _, memory = policy.best_actions({"": torch.from_numpy(observation)[None]}, memory)
                if t < STEPS and rollout.ended[t, env]:
                    memory = policy.initial_memory(1)
    return values, final


def pieces_of(rollout: Rollout) -> tuple[list[tuple[Any, ...]], list[tuple[slice, int]]]:
    """Return the arguments of `evaluate` for each piece of each environment, and the piece's position."""
    pieces, places = [], []
    for env in range(ENVS):
        for start in range(0, STEPS, LENGTH):
            part = slice(start, start + LENGTH)
            begins = [t > start and bool(rollout.ended[t - 1, env]) for t in range(start, start + LENGTH)]
            if start and rollout.ended[start - 1, env]:
                assert not rollout.memory[start // LENGTH][env].any()
            pieces.append(
                (
                    {"": torch.from_numpy(rollout.observations[""][part, env][:, None])},
                    torch.from_numpy(rollout.columns["actions"][part, env][:, None]),
                    None,
                    torch.from_numpy(rollout.memory[start // LENGTH][env][None]),
                    torch.tensor(begins)[:, None],
                )
            )
            places.append((part, env))
    return pieces, places


@MEMORIES
def test_one_update_is_that_of_the_paper(memory: str) -> None:
    settings = settings_of(memory=memory, sequence_length=LENGTH)
    learner, plain, paper = learner_of(settings), policy_of(settings), Paper()
    before = parameters(plain)
    for number in range(2):
        rollout = rollout_of(settings, number=number, seed=number)
        values, final = values_of(plain, rollout)
        advantages = advantages_of(
            rollout.rewards, values, rollout.terminated, rollout.truncated, final, settings.gamma, settings.lam
        )
        pieces, places = pieces_of(rollout)

        def rows(array: Array, places: list[tuple[slice, int]] = places) -> torch.Tensor:
            return torch.from_numpy(np.concatenate([array[part, env] for part, env in places]))

        loss = paper.step(
            plain,
            {
                "pieces": pieces,
                "log_probs": rows(rollout.columns["log_probs"]).double(),
                "advantages": rows(advantages),
                "returns": rows(advantages + values[:-1]),
                "values": rows(values[:-1]),
            },
        )
        metrics = learner.learn(rollout, 0.0)
        assert metrics["train/loss"] == pytest.approx(loss, abs=1e-5)
        assert metrics["train/n_updates"] == number + 1
    for name, expected in parameters(plain).items():
        found = dict(learner.policy.named_parameters())[name].detach().numpy()
        assert np.abs(expected - before[name]).max() > 1e-4, name
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("at_once", [1, 9])  # rows: one piece of one environment, or two
@MEMORIES
def test_a_batch_taken_apart_gives_the_same_update(memory: str, at_once: int) -> None:
    """Images are passed a few at a time; here, the same is asked of vectors."""
    settings = settings_of(memory=memory, sequence_length=LENGTH, minibatch_size=40)
    whole, policy = learner_of(settings), policy_of(settings)
    policy.rows_at_once = at_once
    apart = PPOLearner(settings, policy, seed=SEED, device=torch.device("cpu"))
    before, rollout = whole.weights().copy(), rollout_of(settings)
    rollout.valid[3, 1] = False
    metrics, expected = apart.learn(rollout, 0.0), whole.learn(rollout, 0.0)
    assert metrics == pytest.approx(expected, abs=1e-5)
    assert np.abs(whole.weights() - before).max() > 1e-4
    np.testing.assert_allclose(apart.weights(), whole.weights(), atol=1e-5)
    of_pieces, of_all = (
        RolloutValues(learner.policy, LENGTH, torch.device("cpu")).of(rollout) for learner in (apart, whole)
    )
    for found, value in zip(of_pieces, of_all, strict=True):
        np.testing.assert_allclose(found, value, atol=1e-4)


@MEMORIES
def test_minibatches_are_whole_pieces(memory: str) -> None:
    """16 pieces of 4 steps; a minibatch of 20 steps is 5 pieces, so the pieces are split into 4 nearly equal parts."""
    settings = settings_of(memory=memory, sequence_length=LENGTH, minibatch_size=20, epochs=3)
    learner = learner_of(settings)
    assert learner.learn(rollout_of(settings), 0.0)["train/n_updates"] == 3 * 4


@MEMORIES
def test_what_a_lost_row_holds_changes_nothing(memory: str) -> None:
    settings = settings_of(memory=memory, sequence_length=LENGTH, minibatch_size=16)
    rollout = rollout_of(settings)
    lost = [(0, 1), (6, 2), (STEPS - 1, 0)]
    for t, env in lost:
        rollout.valid[t, env] = False
        rollout.rewards[t, env] = 0.0
    other = a_copy(rollout)
    for t, env in lost:
        other.rewards[t, env] = 5.0
        other.columns["actions"][t, env] = 3 - other.columns["actions"][t, env]
        other.columns["log_probs"][t, env] = -1.5
    one, two = learner_of(settings), learner_of(settings)
    metrics, other_metrics = one.learn(rollout, 0.0), two.learn(other, 0.0)
    assert one.weights().tobytes() == two.weights().tobytes()
    assert metrics == other_metrics
    whole = learner_of(settings)
    rollout.valid[...] = True
    whole.learn(rollout, 0.0)
    assert whole.weights().tobytes() != one.weights().tobytes()  # the weights did change before


@MEMORIES
def test_a_rollout_with_lost_rows_gives_the_update_of_one_without_them(memory: str) -> None:
    """The last environment never stepped, so the update equals that of the other three alone."""
    settings = settings_of(memory=memory, sequence_length=LENGTH, minibatch_size=1000)
    rollout = rollout_of(settings)
    rollout.valid[:, -1] = False
    rollout.rewards[:, -1] = 0.0
    fewer = settings.but(n_envs=ENVS - 1)
    without = Rollout(
        **{
            name: {key: array[:, :-1] for key, array in value.items()}
            if isinstance(value, dict)
            else value[:, :-1]
            if isinstance(value, np.ndarray) and name != "seconds"
            else value
            for name, value in vars(rollout).items()
        }
    )
    one, two = learner_of(settings), learner_of(fewer)
    metrics, expected = one.learn(rollout, 0.0), two.learn(without, 0.0)
    assert metrics == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(one.weights(), two.weights(), atol=1e-5)
