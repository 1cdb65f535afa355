"""Settings of a cluster that a run on one machine would ignore."""

from __future__ import annotations

import pytest

from envfleet.algorithms.settings import DQN, PPO, SAC


@pytest.mark.parametrize("algorithm", [PPO, DQN, SAC])
def test_a_run_says_that_it_uses_no_cluster(algorithm: type[PPO | DQN | SAC]) -> None:
    (notice,) = algorithm(env="CartPole-v1", address="auto", overcommit=True, backend="processes").notices()
    assert notice == "the backend is 'processes'; only 'ray' uses --address and --overcommit (add --backend ray)"
    assert not algorithm(env="CartPole-v1", address="auto", overcommit=True, backend="ray").notices()
    assert not algorithm(env="CartPole-v1", backend="processes").notices()
