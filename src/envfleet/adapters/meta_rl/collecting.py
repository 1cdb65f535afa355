"""Whole rollouts of an agent, in parallel or in one environment: the same either way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envfleet.adapters.meta_rl.agents import AGENT_ARCHS, acting
from envfleet.adapters.meta_rl.envs import VariBadWrapper, rollout_seed
from envfleet.adapters.meta_rl.manager import ParallelEnvManager
from envfleet.errors import SettingsError
from envfleet.rollout.trajectories import Trajectory

__all__ = ["Rollouts", "collect_rollouts_parallel"]


@dataclass(frozen=True)
class Rollouts:
    """Collected rollouts, in the order of their numbers."""

    trajectories: list[Trajectory]

    @property
    def env_steps(self) -> int:
        """Steps of all rollouts together, which is what pomdp-baselines returns."""
        return sum(map(len, self.trajectories))


def collect_rollouts_parallel(
    num_rollouts: int,
    random_actions: bool = False,
    parallel_env: ParallelEnvManager | None = None,
    *,
    train_env: VariBadWrapper | None = None,
    agent: Any = None,
    agent_arch: AGENT_ARCHS | str = AGENT_ARCHS.Markov,
    tasks: Sequence[Any] | None = None,
    deterministic: bool = False,
) -> Rollouts:
    """Collect rollouts in the environments of `parallel_env`, or one after the other in `train_env` if it is None.

    Rollout i goes to environment i modulo their number, whichever is faster. The rollouts of a call continue those of
    the call before: each has its own seed, derived from the seed of the environments. `tasks` has one task per
    rollout; without it, environments draw their own. `agent` is an agent of pomdp-baselines, or a trained policy
    (`envfleet.Run.load(folder).policy`); an agent that samples with a global generator makes the result depend on the
    order of the calls. A rollout that is cut because its environment was lost is played again.
    """
    env = train_env if parallel_env is None else parallel_env
    if env is None:
        raise SettingsError(
            "received neither parallel_env nor train_env, expected one of them",
            hint="make_parallel_env(...), or make_env(...) to collect sequentially",
        )
    if num_rollouts < 1:
        raise SettingsError(f"num_rollouts is {num_rollouts}, expected at least 1")
    if tasks is not None and len(tasks) != num_rollouts:
        raise SettingsError(f"received {len(tasks)} tasks, expected one per rollout: {num_rollouts}")
    plans = []
    for place in range(num_rollouts):
        seed = rollout_seed(env.seed, env.rollouts_begun + place)
        act = acting(
            agent, agent_arch, env.action_space, random=random_actions, deterministic=deterministic, seed=seed >> 1
        )
        plans.append(_Plan(seed, None if tasks is None else tasks[place], act))
    env.rollouts_begun += num_rollouts
    if isinstance(env, ParallelEnvManager):
        _play_in_parallel(env, plans)
    else:
        for plan in plans:
            _play(env, plan)
    return Rollouts([plan.trajectory(env_index=i) for i, plan in enumerate(plans)])


@dataclass
class _Plan:
    """A rollout to play, and what was recorded of it."""

    seed: int
    task: Any
    act: Any
    observations: list[Any] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    played_task: Any = None

    def begin(self, observation: Any, info: dict[str, Any]) -> None:
        self.observations, self.actions, self.rewards = [np.array(observation)], [], []
        self.played_task = info.get("task")
        self.act.reset()

    def next_action(self, info: dict[str, Any]) -> Any:
        reward = self.rewards[-1] if self.rewards else 0.0
        self.actions.append(self.act(self.observations[-1], {**info, "reward": reward}))
        return self.actions[-1]

    def add(self, observation: Any, reward: Any, terminated: bool) -> None:
        self.observations.append(np.array(observation))
        self.rewards.append(float(reward))
        self.terminated = terminated

    def trajectory(self, env_index: int) -> Trajectory:
        return Trajectory(
            env_index=env_index,
            observations=np.stack(self.observations),
            actions=np.stack([np.asarray(action) for action in self.actions]),
            rewards=np.array(self.rewards, np.float64),
            terminated=self.terminated,
            truncated=not self.terminated,
            complete=True,
            restarted=False,
            task=self.played_task,
        )


def _play(env: VariBadWrapper, plan: _Plan) -> None:
    observation, info = env.reset(seed=plan.seed, task=plan.task)
    plan.begin(observation, info)
    ended = False
    while not ended:
        observation, reward, terminated, truncated, info = env.step(plan.next_action(info))
        plan.add(observation, reward, terminated)
        ended = terminated or truncated


def _play_in_parallel(env: ParallelEnvManager, plans: Sequence[_Plan]) -> None:
    streams, some_action = env.streams, np.zeros_like(env.action_space.sample())
    left = {i: list(plans[i :: env.num_workers]) for i in range(min(env.num_workers, len(plans)))}
    streams.begin({i: _assignments(own) for i, own in left.items()})
    resetting: set[int] = set(left)  # environments whose next answer begins a rollout
    while left:
        for i, answer in streams.receive_first().items():
            info = answer[-1]
            plan = left[i][0]
            if info.get("restarted"):  # the environment was lost, and its assignments with it
                streams.begin({i: _assignments(left[i])})
                resetting.add(i)
                continue
            if i in resetting:
                resetting.remove(i)
                plan.begin(answer[0], info)
            else:
                observation, reward, terminated, truncated, info = answer
                plan.add(observation, reward, terminated)
                if terminated or truncated:
                    left[i].pop(0)
                    if left[i]:
                        resetting.add(i)
                        streams.go_on(i, some_action)
                    else:
                        del left[i]
                    continue
            streams.go_on(i, plan.next_action(info))


def _assignments(plans: Sequence[_Plan]) -> list[tuple[int, Any]]:
    return [(plan.seed, plan.task) for plan in plans]
