"""Runs the policy for one group of environments and records its steps.

Both acting modes use this module: a worker with its own copy of the policy, and a caller that acts for all groups.
They pass the same rows to the same functions, with the same batch shape and memory alignment. So both give the same
bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from envfleet.errors import EnvContext, EnvError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.memory import aligned
from envfleet.fleet.spaces import flat_mask, leaves_of
from envfleet.rollout.arrays import Column
from envfleet.seeding import stream

__all__ = ["Actor", "ActorMaker", "BoundPolicy", "Decision", "EpisodeStatistics", "RolloutRecorder", "RolloutRequest"]

Array = np.ndarray[Any, Any]
_NOISE = 11  # key of the random streams for action noise


class Decision(NamedTuple):
    """The actions for one group, and the values that the policy records of the step."""

    env_actions: Array  # [env, ...]
    columns: tuple[Array, ...]  # in the order of `Actor.columns`


class BoundPolicy(Protocol):
    """A policy bound to one group: it reads the group's buffers and updates the memory in place."""

    def act(self, noise: Array, *, masked: bool) -> Decision: ...


class Actor(Protocol):
    """A policy as collectors see it."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """The values recorded at every step, in the order of `Decision.columns`."""

    @property
    def memory_size(self) -> int: ...

    @property
    def mask_size(self) -> int: ...

    @property
    def weights_size(self) -> int: ...

    def load(self, weights: Array) -> None:
        """Load the published weights."""

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        """Sample the random numbers for `[time, env]` actions."""

    def bind(self, observations: dict[str, Array], memory: Array, mask: Array) -> BoundPolicy: ...


class ActorMaker(Protocol):
    """Builds the policy; it is pickled and sent to workers that run the policy themselves."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that building the policy needs."""

    def __call__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> Actor: ...


@dataclass(frozen=True)
class RolloutRequest:
    """A request for one rollout: its number in the run, its buffer, the seed of its noise, its deadline, weights."""

    number: int
    buffer: int
    steps: int
    seed: int
    until: float = math.inf  # see `envfleet.clock`
    each_step: Callable[[], None] | None = None  # called after every step if the caller itself steps the fleet
    weights: int = 0  # which of the published weights to act with


class EpisodeStatistics(NamedTuple):
    """Statistics of the episodes that ended in a step."""

    returns: Array  # [env]
    lengths: Array  # [env]
    numbers: Array  # [env, key of log_info]

    @classmethod
    def of(cls, arrays: FleetArrays, rows: slice) -> EpisodeStatistics:
        """Statistics of some environments, as views."""
        return cls(arrays.episode_return[rows], arrays.episode_length[rows], arrays.episode_numbers[rows])


class RolloutRecorder:
    """Chooses the actions of one group and records its steps in the rollout."""

    def __init__(
        self,
        actor: Actor,
        arrays: Mapping[str, Array],
        rows: range,
        *,
        group: int,
        piece_length: int,
        observation_space: spaces.Space[Any],
    ) -> None:
        self._actor, self._group, self._piece_length = actor, group, piece_length
        self._arrays = arrays
        self._rows = part = slice(rows.start, rows.stop)
        self._size = len(rows)
        leaves = leaves_of(observation_space)
        self._scratch = {leaf.name: aligned((len(rows), *leaf.shape), leaf.dtype) for leaf in leaves}
        self._memory = aligned((len(rows), actor.memory_size), np.dtype(np.float32))
        self._mask = arrays["allowed"][part]  # actions that are allowed now
        self._mask[...] = True
        self._final_mask = np.ones(self._mask.shape, np.bool_)  # actions allowed in final observations of this step
        self._bound_policy = actor.bind(self._scratch, self._memory, self._mask)
        self._carried = arrays["carried"][part]
        self._masked = arrays["masked"]
        self._progress = arrays["progress"]
        self._views = [
            _BufferViews(arrays, buffer, group, part, self._scratch, actor.columns)
            for buffer in range(arrays["rewards"].shape[0])
        ]

    @property
    def remembers(self) -> bool:
        """Whether the policy has memory."""
        return self._actor.memory_size > 0

    # --- a rollout

    def begin(self, request: RolloutRequest, *, fresh: bool) -> int:
        """Start a rollout and return its first step, which is above 0 if a worker died after it had begun.

        `request.steps` means that only the call of `finish` is missing; more means that the rollout is complete.
        """
        self._now = views = self._views[request.buffer]
        self._actor.load(self._arrays["weights"][request.weights])
        begun = int(self._progress[self._group])
        self._noise = self._actor.draw_noise(
            stream(request.seed, _NOISE, self._group, request.number), (request.steps, self._size)
        )
        if begun == 0:
            views.seconds[:] = 0.0
            views.terminated[...] = False
            views.truncated[...] = False
            views.valid[...] = True
        self._steps = request.steps
        self._finals = views.finals_before(min(begun, request.steps))
        self._memory[...] = 0.0 if fresh else self._carried
        return begun

    def observe(self, t: int, observations: Mapping[str, Array]) -> None:
        """Store the observations before step t (or after the last step)."""
        views = self._now
        for name, scratch in self._scratch.items():
            rows = observations[name]
            scratch[...] = rows
            views.observations[name][t] = rows
        if self._masked[0]:
            np.logical_not(self._mask, out=views.forbidden[t])

    def decide(self, t: int) -> Array:
        """Return the actions of step t."""
        views = self._now
        if self._actor.memory_size and t % self._piece_length == 0:
            views.memory[t // self._piece_length] = self._memory
        masked = bool(self._masked[0])
        decision = self._bound_policy.act(self._noise[t], masked=masked)
        if masked:
            self._mask[...] = True  # an info without a mask allows all actions
        for column, values in zip(views.columns, decision.columns, strict=True):
            column[t] = values
        return decision.env_actions

    def see_info(self, i: int, info: dict[str, Any]) -> None:
        """Record the action masks of environment i of the group: for its next step, and at the end of an episode."""
        final = info.get("final_info")
        if isinstance(final, dict) and self._actor.mask_size and final.get("action_mask") is not None:
            self._final_mask[i] = self._checked_mask(i, final["action_mask"])
        mask = info.get("action_mask")
        if mask is not None and self._actor.mask_size:
            self._mask[i] = self._checked_mask(i, mask)
            self._masked[0] = 1

    def _checked_mask(self, i: int, mask: Any) -> Array:
        flat, size = flat_mask(mask).reshape(-1), self._actor.mask_size
        if len(flat) != size:  # a single entry would apply to all actions
            raise EnvError(
                f"info['action_mask'] has {len(flat)} entries, expected {size}: one per action",
                EnvContext(self._rows.start + i, "reset or step"),
                hint="give the mask one entry per action, 1 where it is allowed",
            )
        return flat

    def ended(
        self, t: int, terminated: Array, truncated: Array, lost: Array, statistics: EpisodeStatistics, final: Any
    ) -> None:
        """Record the episodes that ended in step t; all arrays are `[env]` of the group."""
        views = self._now
        views.terminated[t], views.truncated[t] = terminated, truncated
        views.valid[t] = ~lost
        views.episode_returns[t], views.episode_lengths[t] = statistics.returns, statistics.lengths
        for place, array in enumerate(views.episode_numbers):
            array[t] = statistics.numbers[:, place]
        for i in np.flatnonzero(terminated | truncated):
            if truncated[i] and not terminated[i] and not lost[i]:
                k = self._finals[i]
                for name in self._scratch:
                    views.finals[name][k, i] = final[name][i]
                views.final_memory[k, i] = self._memory[i]
                views.final_masks[k, i] = self._final_mask[i]
                self._finals[i] = k + 1
            self._memory[i] = 0.0
            self._final_mask[i] = True  # an info without a mask allows all actions

    def lose(self, t: int) -> None:
        """Mark step t as never happened: the worker died in it, so every episode of the group was cut before it."""
        views = self._now
        self._drop(t, np.ones(self._size, np.bool_))
        self._memory[...] = 0.0
        if self._actor.memory_size and t % self._piece_length == 0:
            views.memory[t // self._piece_length] = 0.0
            if t:  # the memory before step t is gone, so the step before cannot be bootstrapped, unless it was the last
                self._drop(t - 1, ~(views.terminated[t - 1] | views.truncated[t - 1]))

    def _drop(self, t: int, envs: Array) -> None:
        views = self._now
        views.valid[t, envs] = False
        views.rewards[t, envs] = 0.0
        for column in views.columns:
            column[t, envs] = 0

    def store_rewards(self, t: int, rewards: Array) -> None:
        self._now.rewards[t] = rewards

    def advance(self, t: int) -> None:
        """Mark step t as done: if this worker dies, its replacement begins with the next step."""
        self._progress[self._group] = t + 1

    def finish(self, seconds: tuple[float, float]) -> None:
        """Complete the rollout and keep the memory for the next one."""
        self._carried[...] = self._now.memory[-1] = self._memory
        self._now.seconds[:] += seconds
        self._progress[self._group] = self._steps + 1

    def forget(self) -> None:
        """Clear the memory for the next rollout: this one is complete, but its episodes were cut afterwards."""
        self._carried[...] = 0.0


class _BufferViews:
    """The rows of one group in one buffer: `[time, env of the group, ...]`."""

    def __init__(
        self,
        arrays: Mapping[str, Array],
        buffer: int,
        group: int,
        rows: slice,
        leaves: Mapping[str, Array],
        columns: Mapping[str, Column],
    ) -> None:
        def part(name: str) -> Array:
            found: Array = arrays[name][buffer][:, rows]
            return found

        self.seconds = arrays["seconds"][buffer][group]
        self.rewards, self.terminated, self.truncated = part("rewards"), part("terminated"), part("truncated")
        self.valid, self.forbidden = part("valid"), part("forbidden")
        self.memory, self.final_memory, self.final_masks = part("memory"), part("final_memory"), part("final_masks")
        self.episode_returns, self.episode_lengths = part("episode_returns"), part("episode_lengths")
        self.episode_numbers = [part(name) for name in arrays if name.startswith("episode_numbers/")]
        self.columns = [part(f"columns/{name}") for name in columns]
        self.observations = {name: part(f"observations/{name}") for name in leaves}
        self.finals = {name: part(f"finals/{name}") for name in leaves}

    def finals_before(self, t: int) -> Array:
        """Number of finals that each environment stored before step t."""
        stored = self.truncated[:t] & ~self.terminated[:t] & self.valid[:t]
        return np.asarray(stored.sum(axis=0, dtype=np.int64))
