"""Normalisation by running statistics: of observations (inside a policy) and of rewards.

Statistics are kept in float64 and updated once per rollout, in a fixed order, so that they do not depend on which
worker collected which rows. The networks use float32 copies, published together with the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from envfleet.policies.weights import buffers_of

__all__ = ["ObservationNormaliser", "RewardScaler", "RunningMoments"]

Array = np.ndarray[Any, Any]
_EPSILON = 1e-8
LIMIT = 10.0  # values are clipped at ten standard deviations


class RunningMoments:
    """Mean and variance of all rows seen so far; 0 and 1 before the first row."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0.0
        self.mean: Array = np.zeros(shape, np.float64)
        self.var: Array = np.ones(shape, np.float64)

    def update(self, batch: Array) -> None:
        """Add the rows of `batch` [rows, ...] by the parallel formula of Chan, Golub and LeVeque."""
        rows = float(len(batch))
        if not rows:
            return
        batch = np.asarray(batch, np.float64)
        mean, var = batch.mean(axis=0), batch.var(axis=0)
        if not self.count:
            self.count, self.mean, self.var = rows, np.asarray(mean), np.asarray(var)
            return
        total = self.count + rows
        difference = mean - self.mean
        squares = self.var * self.count + var * rows + difference**2 * (self.count * rows / total)
        self.mean = np.asarray(self.mean + difference * (rows / total))
        self.var = np.asarray(squares / total)
        self.count = total

    def state(self) -> dict[str, Array]:
        """Return the state as plain arrays."""
        return {"count": np.asarray(self.count), "mean": self.mean.copy(), "var": self.var.copy()}

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the result of `state`."""
        self.count = float(state["count"])
        self.mean = np.array(state["mean"], np.float64)
        self.var = np.array(state["var"], np.float64)


class ObservationNormaliser(nn.Module):
    """Normalises one leaf by its running moments, clipped to ±10; `forward` never updates them."""

    mean: Tensor
    inverse_std: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.moments = RunningMoments(shape)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("inverse_std", torch.ones(shape))

    def forward(self, values: Tensor) -> Tensor:
        """Return `values` [batch, *shape] float32, normalised."""
        held = buffers_of(self)
        return torch.sub(values, held["mean"]).mul_(held["inverse_std"]).clamp_(-LIMIT, LIMIT)

    def update(self, rows: Array) -> None:
        """Add `rows` [rows, *shape] to the moments and update the buffers in place."""
        self.moments.update(rows)
        self._renew()

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the result of `moments.state()`."""
        self.moments.restore(state)
        self._renew()

    def _renew(self) -> None:
        if self.moments.count:
            with torch.no_grad():
                self.mean.copy_(torch.from_numpy(self.moments.mean))
                self.inverse_std.copy_(torch.from_numpy(1.0 / np.sqrt(self.moments.var + _EPSILON)))


class RewardScaler:
    """Divides rewards by the standard deviation of the discounted return, so that all tasks have the same scale."""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.moments = RunningMoments()
        self._returns: Array | None = None  # [env], float64: the discounted return of each running episode

    def scale(self, rewards: Array, ended: Array, valid: Array | None = None, env_ids: Array | None = None) -> Array:
        """Return scaled `rewards` [time, env] of one rollout; `ended` marks the last steps of episodes.

        The variance is updated once before, with all returns of the rollout in the order of environments. Rows that
        are not `valid` (of a restarted environment) are left out and reset the running return. `env_ids` has the
        environment of each column, if they are not in order; a later column continues an earlier one of the same.
        """
        steps, envs = rewards.shape
        if self._returns is None:
            self._returns = np.zeros(envs, np.float64)
        returns: Array = np.empty((steps, envs), np.float64)
        stops = ended if valid is None else ended | ~valid
        parts: list[Any] = [slice(None)] if env_ids is None else _in_turn(env_ids)
        for columns in parts:
            rows = columns if env_ids is None else env_ids[columns]
            running = self._returns[rows]
            for step in range(steps):
                running = running * self.gamma + rewards[step, columns]
                returns[step, columns] = running
                running[stops[step, columns]] = 0.0
            self._returns[rows] = running
        in_order = returns.T.reshape(-1) if valid is None else returns.T[valid.T]
        self.moments.update(in_order)
        scaled = rewards / np.sqrt(self.moments.var + _EPSILON)
        return np.clip(scaled, -LIMIT, LIMIT).astype(np.float32)

    def begin_fresh_episodes(self) -> None:
        """Forget the returns of running episodes."""
        self._returns = None

    def state(self) -> dict[str, Array]:
        """Return the state as plain arrays."""
        running = np.zeros(0) if self._returns is None else self._returns.copy()
        return {**self.moments.state(), "returns": running}

    def restore(self, state: dict[str, Array]) -> None:
        """Restore the result of `state`."""
        self.moments.restore(state)
        running = np.array(state["returns"], np.float64)
        self._returns = running if len(running) else None


def _in_turn(env_ids: Array) -> list[Array]:
    """Columns of environments [env], in parts that have each environment at most once: its first columns come first."""
    turns = np.zeros(len(env_ids), np.int64)
    seen: dict[int, int] = {}
    for column, env in enumerate(env_ids.tolist()):
        turns[column] = seen.get(env, 0)
        seen[env] = turns[column] + 1
    return [np.flatnonzero(turns == turn) for turn in range(turns.max(initial=0) + 1)]
