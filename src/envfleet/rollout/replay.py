"""Replay: the newest experience of all environments, each observation stored once.

A ring of rows, `[row, env, ...]`: row r + 1 of an environment is where its step in row r led, so nothing is stored
twice. Only where an episode was truncated is the observation it ended with kept aside. The row behind the newest
step holds the observation that the next one will begin with. n-step returns are added up when they are drawn, so n can
differ and nothing is wrong at the edge: a chain ends with its episode, at a step that never happened, or at the
newest row, and is bootstrapped from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.errors import ResourceError
from envfleet.fleet.spaces import leaves_of
from envfleet.machine import available_memory
from envfleet.rollout.arrays import Rollout

__all__ = ["Experience", "Replay", "ReplayPlan", "joined"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Experience:
    """A batch that was drawn: n-step transitions."""

    entries: Array  # [batch]: where they lie, to give them new priorities
    observations: dict[str, Array]  # [batch, ...]
    actions: Array  # [batch, ...]
    returns: Array  # [batch]: discounted rewards of the n steps
    following: dict[str, Array]  # [batch, ...]: the observation to bootstrap from
    discounts: Array  # [batch]: of its value; 0 where the episode terminated
    masks: Array | None  # [batch, action]: allowed actions there
    demonstrated: int = 0  # how many of them, the first ones, were demonstrated


def joined(parts: Sequence[Experience]) -> Experience:
    """Several batches as one, in order."""
    first = parts[0]
    if len(parts) == 1:
        return first
    width = next((part.masks.shape[1] for part in parts if part.masks is not None), 0)
    everything = [np.ones((len(part.entries), width), np.bool_) for part in parts]
    masks = [free if part.masks is None else part.masks for part, free in zip(parts, everything, strict=True)]

    def together(name: str) -> dict[str, Array]:
        return {leaf: np.concatenate([getattr(part, name)[leaf] for part in parts]) for leaf in getattr(first, name)}

    return Experience(
        np.concatenate([part.entries for part in parts]),
        together("observations"),
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.returns for part in parts]),
        together("following"),
        np.concatenate([part.discounts for part in parts]),
        np.concatenate(masks) if width else None,
        first.demonstrated,
    )


@dataclass(frozen=True)
class ReplayPlan:
    """How large a replay will be."""

    rows: int
    n_envs: int
    bytes: int

    @property
    def text(self) -> str:
        entries = (self.rows - 1) * self.n_envs
        return f"{entries:,} steps of {self.n_envs} environments in {self.bytes / 2**20:,.0f} MiB"

    def refuse_too_large(self) -> None:
        free = available_memory()
        if self.bytes > 0.9 * free:
            fits = int(0.8 * free / self.bytes * self.rows * self.n_envs)
            raise ResourceError(
                f"the replay needs {self.bytes / 2**30:.1f} GiB for {self.rows * self.n_envs:,} steps, but only "
                f"{free / 2**30:.1f} GiB of memory are available",
                hint=f"about {fits:,} steps fit; store smaller observations (uint8 instead of float32), or keep fewer",
            )


class Replay:
    """The newest `capacity` steps of all environments."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action: tuple[tuple[int, ...], Any],  # shape and type of one action
        *,
        capacity: int,
        n_envs: int,
        mask_size: int = 0,
    ) -> None:
        self._leaves = leaves_of(observation_space)
        self.n_envs = n_envs
        self.rows = max(2, -(-capacity // n_envs) + 1)  # one row holds where the newest step led
        shape = (self.rows, n_envs)
        self.plan = self._planned(observation_space, action, self.rows, n_envs, mask_size)
        self.plan.refuse_too_large()
        self._observations = {leaf.name: np.zeros((*shape, *leaf.shape), leaf.dtype) for leaf in self._leaves}
        self._actions = np.zeros((*shape, *action[0]), action[1])
        self._rewards = np.zeros(shape, np.float32)
        self._terminated = np.zeros(shape, np.bool_)
        self._truncated = np.zeros(shape, np.bool_)
        self._valid = np.zeros(shape, np.bool_)
        self._masks = np.zeros((*shape, mask_size), np.bool_)
        self._masked = False
        self._finals = _Finals({leaf.name: (leaf.shape, leaf.dtype) for leaf in self._leaves}, shape)
        self.head = 0  # the row that the next step goes to
        self.filled = 0  # rows that hold a step

    @staticmethod
    def _planned(space: Any, action: Any, rows: int, n_envs: int, mask_size: int) -> ReplayPlan:
        seen = sum(int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize for leaf in leaves_of(space))
        acted = int(np.prod(action[0], dtype=np.int64)) * np.dtype(action[1]).itemsize
        return ReplayPlan(rows, n_envs, rows * n_envs * (seen + acted + mask_size + 4 + 3 + 4))

    def __len__(self) -> int:
        """Steps it holds, those that never happened among them."""
        return self.filled * self.n_envs

    # --- writing

    def add(self, rollout: Rollout) -> Array:
        """Stores a rollout; the entries it filled."""
        steps = len(rollout.rewards)
        first = max(0, steps - (self.rows - 1))  # a rollout longer than the ring leaves its end
        kept = np.arange(first, steps)
        at = (self.head + np.arange(len(kept))) % self.rows
        behind = (self.head + len(kept)) % self.rows
        self._finals.drop(at)
        for name, array in rollout.observations.items():
            self._observations[name][at] = array[kept]
            self._observations[name][behind] = array[steps]
        self._actions[at] = rollout.columns["actions"][kept]
        self._rewards[at], self._terminated[at] = rollout.rewards[kept], rollout.terminated[kept]
        self._truncated[at], self._valid[at] = rollout.truncated[kept], rollout.valid[kept]
        self._valid[behind] = False
        self._finals.drop(np.array([behind]))
        if rollout.masks is not None:
            self._masked = True
            self._masks[at], self._masks[behind] = rollout.masks[kept], rollout.masks[steps]
        time, env, k = rollout.final_rows()
        for t, i, number in zip(time.tolist(), env.tolist(), k.tolist(), strict=True):
            if t >= first:
                row = (self.head + t - first) % self.rows
                self._finals.put(row, i, {name: array[number, i] for name, array in rollout.finals.items()})
        self.head = int(behind)
        self.filled = min(self.filled + len(kept), self.rows - 1)
        return (at[:, None] * self.n_envs + np.arange(self.n_envs)).reshape(-1)

    # --- drawing

    def uniform_entries(self, generator: np.random.Generator, count: int) -> Array:
        """Entries drawn evenly among the steps that happened."""
        found = np.empty(0, np.int64)
        while len(found) < count:
            row = (self.head - 1 - generator.integers(self.filled, size=count)) % self.rows
            env = generator.integers(self.n_envs, size=count)
            happened = self._valid[row, env]
            found = np.concatenate([found, (row * self.n_envs + env)[happened]])
        return found[:count]

    def happened(self, entries: Array) -> Array:
        """Whether the steps of these entries happened and are still there."""
        row, env = np.divmod(entries, self.n_envs)
        found: Array = self._valid[row, env]
        return found

    def take(self, entries: Array, *, steps: int, gamma: float) -> Experience:
        """The transitions of `steps` steps that begin at these entries."""
        row, env = np.divmod(entries, self.n_envs)
        returns = np.zeros(len(entries), np.float32)
        discounts = np.ones(len(entries), np.float32)
        at = row.copy()  # the last step of each chain so far
        open_ = np.ones(len(entries), np.bool_)  # the chain goes on
        for k in range(steps):
            step = (row + k) % self.rows
            if k:
                open_ &= self._valid[step, env]  # neither lost nor the row behind the newest step
            returns += np.where(open_, gamma**k * self._rewards[step, env], 0.0)
            discounts = np.where(open_, gamma ** (k + 1), discounts).astype(np.float32)
            at = np.where(open_, step, at)
            open_ &= ~(self._terminated[step, env] | self._truncated[step, env])
            if not open_.any():
                break
        discounts[self._terminated[at, env]] = 0.0
        after = (at + 1) % self.rows
        following = {name: array[after, env] for name, array in self._observations.items()}
        cut = np.flatnonzero(self._truncated[at, env] & ~self._terminated[at, env])
        for i in cut.tolist():
            self._finals.read(int(at[i]), int(env[i]), following, i)
        masks = None
        if self._masked:
            masks = self._masks[after, env]
            masks[cut] = True  # what was allowed after the last step of an episode is not known
        return Experience(
            entries,
            {name: array[row, env] for name, array in self._observations.items()},
            self._actions[row, env],
            returns,
            following,
            discounts,
            masks,
        )

    # --- state: rows since a mark, so that a checkpoint writes only what is new

    def rows_since(self, rows_ago: int) -> dict[str, Array]:
        """The newest rows (and the one behind them) as plain arrays, oldest first."""
        at = (self.head - np.arange(rows_ago, -1, -1)) % self.rows
        finals = [(k, env) for k, row in enumerate(at.tolist()) for env in self._finals.envs_of(row)]
        return {
            **{f"observations/{name}": array[at] for name, array in self._observations.items()},
            "actions": self._actions[at],
            "rewards": self._rewards[at],
            "terminated": self._terminated[at],
            "truncated": self._truncated[at],
            "valid": self._valid[at],
            "masks": self._masks[at],
            "finals_at": np.array(finals, np.int64).reshape(-1, 2),
            **{f"finals/{leaf.name}": self._finals.stack(leaf.name, at, finals) for leaf in self._leaves},
        }

    def put_rows(self, piece: dict[str, Array]) -> None:
        """Appends rows that `rows_since` gave."""
        count = len(piece["rewards"]) - 1
        at = (self.head + np.arange(count + 1)) % self.rows
        self._finals.drop(at)
        for name in self._observations:
            self._observations[name][at] = piece[f"observations/{name}"]
        self._actions[at], self._rewards[at] = piece["actions"], piece["rewards"]
        self._terminated[at], self._truncated[at] = piece["terminated"], piece["truncated"]
        self._valid[at], self._masks[at] = piece["valid"], piece["masks"]
        for number, (k, env) in enumerate(piece["finals_at"].tolist()):
            values = {name: piece[f"finals/{name}"][number] for name in self._observations}
            self._finals.put(int(at[k]), env, values)
        self.head = int(at[-1])
        self.filled = min(self.filled + count, self.rows - 1)

    def set_masked(self, masked: bool) -> None:
        """Whether environments give masks, for a replay that was put back."""
        self._masked = masked

    @property
    def masked(self) -> bool:
        return self._masked


class _Finals:
    """Observations that truncated episodes ended with, by row and environment; room grows with their number."""

    def __init__(self, leaves: dict[str, tuple[tuple[int, ...], Any]], shape: tuple[int, int]) -> None:
        self._values = {name: np.zeros((8, *each[0]), each[1]) for name, each in leaves.items()}
        self._slot: list[dict[int, int]] = [{} for _ in range(shape[0])]  # row -> environment -> slot
        self._free = list(range(8))

    def put(self, row: int, env: int, values: dict[str, Array]) -> None:
        if not self._free:
            size = len(next(iter(self._values.values())))
            self._values = {name: np.concatenate([array, np.zeros_like(array)]) for name, array in self._values.items()}
            self._free = list(range(size, 2 * size))
        slot = self._free.pop()
        self._slot[row][env] = slot
        for name, value in values.items():
            self._values[name][slot] = value

    def read(self, row: int, env: int, into: dict[str, Array], i: int) -> None:
        slot = self._slot[row][env]
        for name, array in into.items():
            array[i] = self._values[name][slot]

    def drop(self, rows: Array) -> None:
        for row in rows.tolist():
            if self._slot[row]:
                self._free += self._slot[row].values()
                self._slot[row] = {}

    def envs_of(self, row: int) -> list[int]:
        return sorted(self._slot[row])

    def stack(self, name: str, at: Array, places: Sequence[tuple[int, int]]) -> Array:
        slots = [self._slot[int(at[k])][env] for k, env in places]
        return self._values[name][slots]
