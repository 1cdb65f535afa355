"""The surface of pomdp-baselines' parallel collection: environments, rollouts assigned in advance, agents."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from envfleet.adapters import meta_rl
from envfleet.adapters.meta_rl import (
    AGENT_ARCHS,
    ParallelEnvManager,
    VariBadWrapper,
    collect_rollouts_parallel,
    make_env,
    make_parallel_env,
)
from envfleet.adapters.meta_rl.agents import acting
from envfleet.errors import ProtocolError, SettingsError
from envfleet.fleet.make import make
from envfleet.policies.settings import PolicySettings
from envfleet.runs.trained_policy import TrainedPolicy
from tests.waiting import gone, wait_until

SPARSE = "PointRobotSparse-v0"
DOCS = Path(__file__).parents[2] / "docs" / "coming-from.md"


def threaded(num_workers: int, seed: int = 5, **kwargs: Any) -> ParallelEnvManager:
    return make_parallel_env(SPARSE, 2, num_workers, seed=seed, backend="threads", **kwargs)


def pids(manager: ParallelEnvManager) -> list[int]:
    return [worker.pid for worker in manager.fleet.statistics().workers]


# ---- the environment


def test_every_name_has_a_row_in_coming_from() -> None:
    page = DOCS.read_text()
    assert [name for name in meta_rl.__all__ if f"`{name}" not in page and f".{name}" not in page] == []


def test_the_observation_of_varibad() -> None:
    env = make_env(SPARSE, 2, seed=1)
    seen, info = env.reset(task=[1.0, 0.0])
    assert seen.shape == (3,) and seen[-1] == 0.0 and info["task"].tolist() == [1.0, 0.0]
    steps = [env.step([0.0, 0.0]) for _ in range(120)]
    assert [step[0][-1] for step in steps] == [0.0] * 59 + [1.0] + [0.0] * 59 + [1.0]
    assert [step[4]["done_mdp"] for step in steps] == [step[0][-1] == 1.0 for step in steps]
    assert [step[3] for step in steps] == [False] * 119 + [True]
    assert not np.array_equal(steps[58][0][:2], steps[59][0][:2]), "the state is the first of the next episode"
    assert np.array_equal(steps[59][0][:2], steps[60][0][:2]), "and the agent acts on it"
    assert env.observation_space.contains(seen)


def test_the_observation_of_an_oracle_and_of_one_episode() -> None:
    env = make_env(SPARSE, 2, seed=1, oracle=True)
    assert env.reset(task=[0.6, 0.8])[0][2:] == pytest.approx([0.6, 0.8, 0.0])
    assert make_env(SPARSE, 1, seed=1).observation_space.shape == (2,)
    own = VariBadWrapper(gymnasium.make("envfleet/Wind-v0"), episodes_per_task=3)
    assert own.reset(seed=1)[0].shape == (3,) and own.episodes_per_task == 3


def test_settings_and_seeds_of_make_env() -> None:
    one, other = (make_env(SPARSE, 2, seed=4, num_train_tasks=3) for _ in range(2))
    tasks = [one.reset()[1]["task"].tolist() for _ in range(12)]
    assert tasks == [other.reset()[1]["task"].tolist() for _ in range(12)]
    assert len({tuple(task) for task in tasks}) == 3
    with pytest.raises(SettingsError, match="did you mean num_train_tasks"):
        make_env(SPARSE, 2, num_train_task=3)
    with pytest.raises(SettingsError, match="has no tasks"):
        make_env("CartPole-v1", 2)


# ---- environments at their own pace


def test_remotes_step_and_reset_one_by_one() -> None:
    manager = threaded(3)
    goals = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
    observations, infos = manager.reset(goals)
    assert observations.shape == (3, 3) and [info["task"].tolist() for info in infos] == goals
    first, second, _ = manager.remotes
    first.send(("step", [1.0, 0.0]))
    second.send(("step", [0.0, 1.0]))
    moved, _, terminated, truncated, _ = second.recv()
    assert moved[:2] - observations[1][:2] == pytest.approx([0.0, 0.1]) and not (terminated or truncated)
    second.send(("reset", {"task": [0.6, 0.8]}))  # while the first one steps
    assert second.recv()[1]["task"].tolist() == [0.6, 0.8]
    assert first.recv()[0][:2] - observations[0][:2] == pytest.approx([0.1, 0.0])
    for _ in range(119):
        first.send(("step", [0.0, 0.0]))
        last = first.recv()
    assert last[3] is True
    with pytest.raises(ProtocolError, match="has ended"):
        first.send(("step", [0.0, 0.0]))
    manager.close()


def test_wrong_commands_are_refused() -> None:
    manager = threaded(2)
    for message, error in ((("step", [0, 0]), "has ended, or was never reset"), (("jump", 1), "command 'jump'")):
        with pytest.raises((ProtocolError, SettingsError), match=error):
            manager.remotes[0].send(message)
    with pytest.raises(ProtocolError, match="was sent nothing"):
        manager.remotes[0].recv()
    manager.remotes[0].send(("reset", {}))
    with pytest.raises(ProtocolError, match="was not received"):
        manager.remotes[0].send(("reset", {}))
    with pytest.raises(SettingsError, match="one per environment: 2"):
        manager.reset([1])
    manager.close()
    with make(SPARSE, 2, backend="sequential") as fleet, pytest.raises(SettingsError, match="group_size=1"):
        ParallelEnvManager(fleet)


def test_deleting_the_manager_ends_its_processes() -> None:
    manager = make_parallel_env(SPARSE, 2, 2, seed=1)
    manager.reset()
    workers = pids(manager)
    assert workers and not gone(workers)
    del manager
    assert wait_until(lambda: gone(workers))


# ---- rollouts


def same(one: meta_rl.Rollouts, other: meta_rl.Rollouts) -> bool:
    pairs = list(zip(one.trajectories, other.trajectories, strict=True))
    return all(
        np.array_equal(getattr(a, part), getattr(b, part))
        for a, b in pairs
        for part in ("observations", "actions", "rewards", "task", "terminated", "truncated")
    )


def test_rollouts_depend_neither_on_the_number_of_environments_nor_on_the_fallback() -> None:
    sequential = make_env(SPARSE, 2, seed=5)
    managers = [threaded(1), threaded(2), threaded(7)]
    for count in (5, 2):  # the second call continues
        expected = collect_rollouts_parallel(count, True, train_env=sequential)
        assert expected.env_steps == 120 * count
        for manager in managers:
            assert same(expected, collect_rollouts_parallel(count, random_actions=True, parallel_env=manager))
    for manager in managers:
        manager.close()
    starts = [each.observations[0].tobytes() for each in expected.trajectories]
    assert len(set(starts)) == 2, "every rollout has its own seed"


def test_a_task_for_each_rollout() -> None:
    goals = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
    manager = threaded(2)
    found = collect_rollouts_parallel(3, random_actions=True, parallel_env=manager, tasks=goals)
    assert [each.task.tolist() for each in found.trajectories] == goals
    manager.close()
    again = collect_rollouts_parallel(3, True, train_env=make_env(SPARSE, 2, seed=5), tasks=goals)
    assert same(found, again)


def test_a_killed_worker_costs_nothing_but_time() -> None:
    class Killer:
        """Always moves right, and kills a worker process once."""

        killed = False

        def act(self, observation: Any, deterministic: bool) -> Any:
            if not self.killed and observation[0, -1] == 1.0:  # in the middle of a rollout
                self.killed = True
                os.kill(pids(manager)[-1], signal.SIGKILL)
            return torch.tensor([[1.0, 0.0]]), None, None, None

    manager = make_parallel_env(SPARSE, 2, 4, seed=5)
    agent = Killer()
    found = collect_rollouts_parallel(8, parallel_env=manager, agent=agent)
    assert agent.killed and sum(worker.restarts for worker in manager.fleet.statistics().workers) == 1
    manager.close()
    assert same(found, collect_rollouts_parallel(8, train_env=make_env(SPARSE, 2, seed=5), agent=agent))


def test_wrong_arguments_are_refused() -> None:
    env = make_env(SPARSE, 2, seed=1)
    for arguments, message in (
        ({}, "neither parallel_env nor train_env"),
        ({"train_env": env}, "agent is NoneType, expected an agent with a method act"),
        ({"train_env": env, "tasks": [1, 2], "random_actions": True}, "one per rollout: 3"),
        (
            {"train_env": env, "agent": env, "agent_arch": "transformer"},
            "expected one of markov, memory-markov, memory",
        ),
    ):
        with pytest.raises(SettingsError, match=message):
            collect_rollouts_parallel(3, **arguments)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="num_rollouts is 0"):
        collect_rollouts_parallel(0, True, train_env=env)


# ---- agents


class Remembering:
    """An agent as pomdp-baselines has them; its state is the sum of all it was shown."""

    def get_initial_info(self) -> Any:
        return torch.zeros(1, 2), torch.zeros(1, 1), torch.zeros(1)

    def act(self, prev_internal_state: Any, prev_action: Any, reward: Any, obs: Any, deterministic: bool) -> Any:
        assert reward.shape == (1, 1) and obs.shape == (1, 3) and prev_action.shape == (1, 2) and not deterministic
        state = prev_internal_state + prev_action.sum() + 10 * reward.sum() + obs.sum()
        action = torch.stack([state.sin(), state.cos()], dim=1)
        return (action, None, None, None), state


def test_agents_with_memory_keep_one_for_each_rollout() -> None:
    manager = threaded(3)
    memory = {"agent": Remembering(), "agent_arch": AGENT_ARCHS.Memory}
    found = collect_rollouts_parallel(4, parallel_env=manager, **memory)
    manager.close()
    assert same(found, collect_rollouts_parallel(4, train_env=make_env(SPARSE, 2, seed=5), **memory))
    each = found.trajectories[1]
    state, action, reward = torch.zeros(1), torch.zeros(1, 2), torch.zeros(1, 1)
    for step in range(len(each)):
        seen = torch.as_tensor(each.observations[step])[None]
        (action, *_), state = Remembering().act(state, action, reward, seen, deterministic=False)
        assert np.array_equal(each.actions[step], action[0].numpy())
        reward = torch.tensor([[each.rewards[step]]], dtype=torch.float32)


def test_archs_are_text_and_a_recurrent_critic_does_not_act() -> None:
    assert AGENT_ARCHS.Memory == "memory" and AGENT_ARCHS("memory-markov") is AGENT_ARCHS.Memory_Markov
    seen = []

    class Choosing:
        def act(self, observation: Any, deterministic: bool) -> Any:
            seen.append(observation.shape)
            return torch.eye(5)[[3]], None, None, None  # one-hot, as there

    env = make_env("envfleet/Bandit-v0", 1, seed=1)
    found = collect_rollouts_parallel(1, train_env=env, agent=Choosing(), agent_arch=AGENT_ARCHS.Memory_Markov)
    assert found.trajectories[0].actions.tolist() == [3] * 10 and set(seen) == {(1, 1)}
    assert found.trajectories[0].terminated


def test_one_hot_actions_begin_where_the_space_does() -> None:
    class Choosing:
        def act(self, observation: Any, deterministic: bool) -> Any:
            return torch.eye(3)[[0]], None, None, None

    agent = acting(Choosing(), "markov", Discrete(3, start=-1), random=False, deterministic=True, seed=1)
    assert agent(np.zeros(2), {}) == -1


def test_a_trained_policy_with_memory_acts_for_several_environments() -> None:
    env = make_env(SPARSE, 2, seed=5)
    settings = PolicySettings(memory="gru", memory_size=8, hidden=(8,))
    policy = settings.build(env.observation_space, env.action_space, seed=1)
    trained = TrainedPolicy(policy, env.observation_space, env.action_space)
    given = {"agent": trained, "agent_arch": "memory", "deterministic": True}
    manager = threaded(3)
    found = collect_rollouts_parallel(4, parallel_env=manager, **given)
    manager.close()
    assert same(found, collect_rollouts_parallel(4, train_env=env, **given))
