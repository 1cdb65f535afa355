"""Acting for one group of environments, and writing down what happened.

Both ways of acting come through here: a worker that acts by itself and a caller that acts for all groups
hand the same rows to the same functions, with the same batch shape, from the same aligned memory. So they
give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.memory import aligned
from envfleet.fleet.spaces import flat_mask, leaves_of
from envfleet.rollout.arrays import Column
from envfleet.seeding import stream

__all__ = ["Actor", "ActorMaker", "Decision", "EpisodeFigures", "GroupActor", "Order", "Seat"]

Array = np.ndarray[Any, Any]
_NOISE = 11  # key of the streams of action noise


class Decision(NamedTuple):
    """What a policy decided for a group: the environments' actions, and what it records of the step."""

    env_actions: Array  # [env, ...]
    columns: tuple[Array, ...]  # in the order of `Actor.columns`


class Seat(Protocol):
    """A policy's place at one group: it reads the group's buffers and changes the memory in place."""

    def act(self, noise: Array, *, masked: bool) -> Decision: ...


class Actor(Protocol):
    """A policy as collectors see it."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """What it records of every step, in the order of `Decision.columns`."""

    @property
    def memory_size(self) -> int: ...

    @property
    def mask_size(self) -> int: ...

    @property
    def weights_size(self) -> int: ...

    def load(self, weights: Array) -> None:
        """Takes over the weights that were published."""

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        """Random numbers for `[time, env]` decisions."""

    def seat(self, observations: dict[str, Array], memory: Array, mask: Array) -> Seat: ...


class ActorMaker(Protocol):
    """Builds the policy; pickled to the workers that act by themselves."""

    def load(self) -> None:
        """Imports what building needs."""

    def __call__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> Actor: ...


@dataclass(frozen=True)
class Order:
    """One rollout: its number in the run, the buffer it goes to, the seed of its noise, and when it is given up."""

    number: int
    buffer: int
    steps: int
    seed: int
    until: float = math.inf  # see `envfleet.clock`
    each_step: Callable[[], None] | None = None  # called after every step, where the caller itself carries it out


class EpisodeFigures(NamedTuple):
    """What a fleet says of episodes that ended in a step."""

    returns: Array  # [env]
    lengths: Array  # [env]
    numbers: Array  # [env, key of log_info]

    @classmethod
    def of(cls, arrays: FleetArrays, rows: slice) -> EpisodeFigures:
        """Those of some environments, as views."""
        return cls(arrays.episode_return[rows], arrays.episode_length[rows], arrays.episode_numbers[rows])


class GroupActor:
    """Decides for one group and keeps the account of its rows."""

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
        self._mask = arrays["allowed"][part]  # which actions may be chosen now
        self._mask[...] = True
        self._final_mask = np.ones(self._mask.shape, np.bool_)  # and which ones where an episode ended in this step
        self._seat = actor.seat(self._scratch, self._memory, self._mask)
        self._carried = arrays["carried"][part]
        self._masked = arrays["masked"]
        self._progress = arrays["progress"]
        self._views = [
            _BufferViews(arrays, buffer, group, part, self._scratch, actor.columns)
            for buffer in range(arrays["rewards"].shape[0])
        ]

    @property
    def remembers(self) -> bool:
        """The policy has memory."""
        return self._actor.memory_size > 0

    # --- a rollout

    def begin(self, order: Order, *, fresh: bool) -> int:
        """Takes up an order; the step to begin with, which is above 0 where a dead worker had begun it.

        It is `order.steps` where only the last words were missing, and beyond that where the rollout was complete.
        """
        self._now = views = self._views[order.buffer]
        self._actor.load(self._arrays["weights"])
        begun = int(self._progress[self._group])
        self._noise = self._actor.draw_noise(
            stream(order.seed, _NOISE, self._group, order.number), (order.steps, self._size)
        )
        if begun == 0:
            views.seconds[:] = 0.0
            views.terminated[...] = False
            views.truncated[...] = False
            views.valid[...] = True
        self._steps = order.steps
        self._finals = views.finals_before(min(begun, order.steps))
        self._memory[...] = 0.0 if fresh else self._carried
        return begun

    def observe(self, t: int, observations: Mapping[str, Array]) -> None:
        """Stores where step t begins (or where the rollout ends)."""
        views = self._now
        for name, scratch in self._scratch.items():
            rows = observations[name]
            scratch[...] = rows
            views.observations[name][t] = rows
        if self._masked[0]:
            views.masks[t] = self._mask

    def decide(self, t: int) -> Array:
        """The environments' actions of step t."""
        views = self._now
        if self._actor.memory_size and t % self._piece_length == 0:
            views.memory[t // self._piece_length] = self._memory
        masked = bool(self._masked[0])
        decision = self._seat.act(self._noise[t], masked=masked)
        if masked:
            self._mask[...] = True  # a step that says nothing allows everything
        for column, values in zip(views.columns, decision.columns, strict=True):
            column[t] = values
        return decision.env_actions

    def see_info(self, i: int, info: dict[str, Any]) -> None:
        """Takes note of which actions environment i of the group may choose next, or could have at an episode's end."""
        final = info.get("final_info")
        if isinstance(final, dict) and self._actor.mask_size and final.get("action_mask") is not None:
            self._final_mask[i] = flat_mask(final["action_mask"]).reshape(-1)
        mask = info.get("action_mask")
        if mask is not None and self._actor.mask_size:
            self._masked[0] = 1
            self._mask[i] = flat_mask(mask).reshape(-1)

    def ended(
        self, t: int, terminated: Array, truncated: Array, lost: Array, figures: EpisodeFigures, final: Any
    ) -> None:
        """Books the ends of episodes in step t: `[env]` arrays of the group's rows."""
        views = self._now
        views.terminated[t], views.truncated[t] = terminated, truncated
        views.valid[t] = ~lost
        views.episode_returns[t], views.episode_lengths[t] = figures.returns, figures.lengths
        for place, array in enumerate(views.episode_numbers):
            array[t] = figures.numbers[:, place]
        for i in np.flatnonzero(terminated | truncated):
            if truncated[i] and not terminated[i] and not lost[i]:
                k = self._finals[i]
                for name in self._scratch:
                    views.finals[name][k, i] = final[name][i]
                views.final_memory[k, i] = self._memory[i]
                views.final_masks[k, i] = self._final_mask[i]
                self._finals[i] = k + 1
            self._memory[i] = 0.0
            self._final_mask[i] = True  # an end that says nothing allows everything

    def lose(self, t: int) -> None:
        """Step t never happened: the worker died in it and every episode of the group was cut before it."""
        views = self._now
        views.valid[t] = False
        views.rewards[t] = 0.0
        for column in views.columns:
            column[t] = 0
        self._memory[...] = 0.0
        if self._actor.memory_size and t % self._piece_length == 0:
            views.memory[t // self._piece_length] = 0.0

    def store_rewards(self, t: int, rewards: Array) -> None:
        self._now.rewards[t] = rewards

    def advance(self, t: int) -> None:
        """Step t is on record: whoever takes over after a death begins with the next."""
        self._progress[self._group] = t + 1

    def finish(self, seconds: tuple[float, float]) -> None:
        """The rollout is complete; what the memory holds is kept for the next one."""
        self._carried[...] = self._now.memory[-1] = self._memory
        self._now.seconds[:] += seconds
        self._progress[self._group] = self._steps + 1

    def forget(self) -> None:
        """The rollout is complete, but its episodes were cut since: the next one begins without memory."""
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
        self.valid, self.masks = part("valid"), part("masks")
        self.memory, self.final_memory, self.final_masks = part("memory"), part("final_memory"), part("final_masks")
        self.episode_returns, self.episode_lengths = part("episode_returns"), part("episode_lengths")
        self.episode_numbers = [part(name) for name in arrays if name.startswith("episode_numbers/")]
        self.columns = [part(f"columns/{name}") for name in columns]
        self.observations = {name: part(f"observations/{name}") for name in leaves}
        self.finals = {name: part(f"finals/{name}") for name in leaves}

    def finals_before(self, t: int) -> Array:
        """How many finals each environment has stored before step t."""
        stored = self.truncated[:t] & ~self.terminated[:t] & self.valid[:t]
        return np.asarray(stored.sum(axis=0, dtype=np.int64))
