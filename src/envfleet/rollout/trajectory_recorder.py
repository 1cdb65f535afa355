"""Turns the rows that a vector environment returns into trajectories.

A row is not always a transition. With next-step autoreset, the row after the end of an episode only resets
the environment. With same-step autoreset, the row that ends an episode already shows the first observation
of the next one; its own last observation is in `infos["final_obs"]`. If `infos["restarted"]` is set, the
environment was lost during the step: nothing in that row belongs to the episode that was cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet.fleet.spaces import flat_mask
from envfleet.rollout.columns import Columns
from envfleet.rollout.trajectories import Collection, Trajectory, summarise

__all__ = ["TrajectoryRecorder"]

Array = np.ndarray[Any, Any]
REWARD = spaces.Box(-np.inf, np.inf, (), np.float64)


class TrajectoryRecorder:
    """Turns the rows of a vector environment into trajectories, whatever its autoreset mode."""

    def __init__(self, fleet: VectorEnv[Any, Any, Any], mode: AutoresetMode, quota: Array | None) -> None:
        n_envs = fleet.num_envs
        self._mode, self._quota = mode, quota
        self._observations = Columns(fleet.single_observation_space, n_envs)
        self._actions = Columns(fleet.single_action_space, n_envs)
        self._rewards = Columns(REWARD, n_envs)
        self._lengths = np.zeros(n_envs, np.int64)  # steps of the unfinished episode
        self._resetting = np.zeros(n_envs, np.bool_)  # the next row only resets (next-step autoreset)
        self._recording = np.ones(n_envs, np.bool_) if quota is None else quota > 0
        self._tasks: list[Any] = [None] * n_envs
        self._masks: list[dict[int, Array]] = [{} for _ in range(n_envs)]  # by index of the observation
        self._trajectories: list[Trajectory] = []
        self.episodes = np.zeros(n_envs, np.int64)  # complete ones
        self.restarts = 0
        self.steps = 0

    def begin(self, rows: Array, observations: Any, infos: dict[str, Any]) -> None:
        """Start an episode in `rows` with their observations."""
        envs = np.flatnonzero(rows & self._recording)
        self._lengths[envs] = 0
        self._observations.write(envs, self._lengths[envs], observations)
        has_task = infos.get("_task")
        for env in envs:
            self._tasks[env] = infos["task"][env] if has_task is not None and has_task[env] else None
            self._masks[env] = {}
        self._keep_masks(envs, infos)

    def record(
        self,
        observations: Any,
        actions: Any,
        rewards: Array,
        terminations: Array,
        ended: Array,
        infos: dict[str, Any],
    ) -> None:
        """Add one row of every environment: a transition, a reset, or the loss of an environment."""
        restarted = np.asarray(infos.get("restarted", np.zeros(len(ended))), np.bool_)
        in_episode = self._recording & ~self._resetting
        stepped = in_episode & ~restarted

        envs = np.flatnonzero(stepped)
        self._actions.write(envs, self._lengths[envs], actions)
        self._rewards.write(envs, self._lengths[envs], rewards)
        self._lengths[envs] += 1
        self.steps += len(envs)
        self._observations.write(envs, self._lengths[envs], observations)
        if self._mode is AutoresetMode.SAME_STEP:  # ended rows hold the first observation of the next episode
            self._keep_masks(np.flatnonzero(stepped & ~ended), infos)
            self._keep_masks(np.flatnonzero(stepped & ended), infos.get("final_info", {}))
            for env in np.flatnonzero(stepped & ended).tolist():
                self._observations.write_one(env, int(self._lengths[env]), infos["final_obs"][env])
        else:
            self._keep_masks(envs, infos)

        for env in np.flatnonzero(in_episode & ended).tolist():
            lost = bool(restarted[env])
            self._close(env, terminated=bool(terminations[env]), ended=True, restarted=lost)
        if self._mode is AutoresetMode.SAME_STEP:
            self.begin(ended, observations, infos)
        elif self._mode is AutoresetMode.NEXT_STEP:
            self.begin(self._resetting & ~ended, observations, infos)
            self._resetting = ended

    def _keep_masks(self, envs: Array, infos: dict[str, Any]) -> None:
        """Store the masks of the newest observations of `envs`, if there are any."""
        given = infos.get("_action_mask")
        for env in () if given is None else envs[given[envs]].tolist():
            self._masks[env][int(self._lengths[env])] = flat_mask(infos["action_mask"][env]).reshape(-1)

    def _masks_of(self, env: int, length: int) -> Array | None:
        """Masks [length + 1, action]; an observation without a mask allows all actions. None if there are no masks."""
        kept = self._masks[env]
        if not kept:
            return None
        masks = np.ones((length + 1, len(next(iter(kept.values())))), np.bool_)
        for place, mask in kept.items():
            masks[place] = mask
        return masks

    def _close(self, env: int, *, terminated: bool, ended: bool, restarted: bool) -> None:
        """Store the running episode of one environment as a trajectory."""
        complete = ended and not restarted
        self.restarts += restarted
        length = int(self._lengths[env])
        if complete:
            self.episodes[env] += 1
        if self._quota is not None:
            self._recording[env] = self.episodes[env] < self._quota[env]
        if length and (complete or self._quota is None):
            self._trajectories.append(
                Trajectory(
                    env_index=env,
                    observations=self._observations.cut(env, length + 1),
                    actions=self._actions.cut(env, length),
                    rewards=self._rewards.cut(env, length),
                    terminated=terminated,
                    truncated=ended and not terminated,
                    complete=complete,
                    restarted=restarted,
                    task=self._tasks[env],
                    masks=self._masks_of(env, length),
                )
            )

    def finish(self, seconds: float) -> Collection:
        if self._quota is None:  # unfinished episodes count too
            for env in np.flatnonzero(~self._resetting):
                self._close(int(env), terminated=False, ended=False, restarted=False)
        trajectories = sorted(self._trajectories, key=lambda trajectory: trajectory.env_index)
        return Collection(trajectories, summarise(trajectories, self.restarts, seconds))
