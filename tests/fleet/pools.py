"""Pools: a batched CartPole, and a counter with one fault each. Importable by workers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode

from envfleet import PoolMaker
from tests.rollout.envs import Fault, length_of

Array = np.ndarray[Any, Any]


class CartPolePool:
    """Gymnasium's CartPole-v1 in NumPy, all environments at once."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    spec = gymnasium.spec("CartPole-v1")  # training chooses the same preset

    def __init__(self, n_envs: int, limit: int = 500) -> None:
        self.rules = CartPoleEnv()
        self.single_observation_space = self.rules.observation_space
        self.single_action_space = self.rules.action_space
        self.limit = limit
        self.states = np.zeros((n_envs, 4))
        self.steps = np.zeros(n_envs, np.int64)
        self.generators = [np_random()[0] for _ in range(n_envs)]

    def reset(self, *, seed: list[int | None] | None, options: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
        for i in np.flatnonzero(options["reset_mask"]):
            if seed is not None and seed[i] is not None:
                self.generators[i] = np_random(seed[i])[0]
            self.states[i] = self.generators[i].uniform(-0.05, 0.05, 4)
            self.steps[i] = 0
        return self.states.astype(np.float32), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        rules = self.rules
        x, x_dot, theta, theta_dot = self.states.T
        force = np.where(actions == 1, rules.force_mag, -rules.force_mag)
        cosine, sine = np.cos(theta), np.sin(theta)
        temp = (force + rules.polemass_length * np.square(theta_dot) * sine) / rules.total_mass
        pull = rules.length * (4.0 / 3.0 - rules.masspole * np.square(cosine) / rules.total_mass)
        theta_acc = (rules.gravity * sine - cosine * temp) / pull
        x_acc = temp - rules.polemass_length * theta_acc * cosine / rules.total_mass
        moved = (x + rules.tau * x_dot, x_dot + rules.tau * x_acc, theta + rules.tau * theta_dot)
        self.states = np.stack([*moved, theta_dot + rules.tau * theta_acc], axis=1)
        self.steps += 1
        terminated = (abs(self.states[:, 0]) > rules.x_threshold) | (
            abs(self.states[:, 2]) > rules.theta_threshold_radians
        )
        return self.states.astype(np.float32), np.ones(len(actions)), terminated, self.steps >= self.limit, {}

    def close(self) -> None:
        self.rules.close()


class CounterPool:
    """The counter of the rollout tests as a pool: observes (seed, episode, step), and fails as `fault` says."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    single_observation_space: spaces.Space[Any] = spaces.Box(0, 1e6, (3,), np.float32)
    single_action_space: spaces.Space[Any] = spaces.Discrete(4, start=1)

    def __init__(self, n_envs: int, fault: Fault | None = None) -> None:
        self.fault = fault
        self.seeds, self.episodes, self.times, self.lives = (np.zeros(n_envs, np.int64) for _ in range(4))

    def observe(self) -> Array:
        return np.stack([self.seeds, self.episodes, self.times], axis=1).astype(np.float32)

    def reset(self, *, seed: list[int | None] | None, options: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
        mask = options["reset_mask"]
        self.episodes[mask] += 1
        self.times[mask] = 0
        for i, given in enumerate(seed or []):
            if given is not None and mask[i]:
                self.seeds[i], self.episodes[i] = given % 1000, 0
        observations = self.observe()
        observations[~mask] = np.nan  # nobody may read these rows
        return observations, {"began": self.episodes * 1, "_began": mask.copy()}

    def step(self, actions: Array) -> Any:
        lengths = length_of(self.seeds, self.episodes)  # type: ignore[arg-type]  # of all environments
        waiting = self.times >= lengths
        hit = self.hit()
        if hit.any() and self.fault is not None and self.fault.kind in ("raise", "kill", "hang"):
            self.fault.strike()
        self.times += 1
        self.lives += 1
        ended, even = self.times >= lengths, (self.seeds + self.episodes) % 2 == 0
        observations, rewards = self.observe(), 1000.0 * self.seeds + 10 * self.episodes + self.times
        observations[waiting], rewards[waiting] = np.nan, np.nan  # nobody may read these rows
        infos = {"time": self.times.copy(), "late": self.times * 2, "_late": self.times > 2}
        return observations, rewards, ended & even, ended & ~even, infos

    def hit(self) -> Array:
        """The environment whose turn it is to fail."""
        if self.fault is None:
            return np.zeros(len(self.seeds), np.bool_)
        return np.asarray((self.seeds == self.fault.seed) & (self.lives == self.fault.step))

    def close(self) -> None:
        """Nothing to close."""


class SpoilingPool(CounterPool):
    """Returns something wrong in the step of its fault, always."""

    def step(self, actions: Array) -> Any:
        hit = self.hit()
        observations, rewards, terminated, truncated, infos = super().step(actions)
        kind = "" if self.fault is None or not hit.any() else self.fault.kind
        if kind == "nan":
            observations[hit, 1] = np.nan
        if kind == "bounds":
            observations[hit, 1] = -5
        if kind == "shape":
            observations = observations[:, :2]
        if kind == "rows":
            observations = observations[:-1]
        if kind == "nan reward":
            rewards[hit] = np.nan
        if kind == "rewards":
            rewards = rewards[:-1]
        if kind == "flags":
            terminated = terminated.astype(np.float64)
        return (observations,) if kind == "result" else (observations, rewards, terminated, truncated, infos)


class BrokenResetPool(CounterPool):
    """Raises at the first autoreset of the pool with the fault's environment."""

    def reset(self, *, seed: list[int | None] | None, options: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
        if self.fault is not None and self.lives.any() and self.fault.seed in self.seeds:
            self.fault.strike()
        return super().reset(seed=seed, options=options)


cart_pole = PoolMaker(CartPolePool)  # tests.fleet.pools:cart_pole
