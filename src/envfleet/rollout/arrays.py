"""The arrays of a rollout: what every environment saw, did and received at every step, `[time, env, ...]`.

They are allocated once and written in place by whoever acts: by the workers, when they lie in the fleet's
block, or by the caller. The learner reads them without a copy. An observation is stored once: row t + 1 is
both where step t led and where step t + 1 began. Where an episode was truncated, row t + 1 already belongs
to the next one; the observation it ended with, which the learner needs for its value, is kept aside as the
environment's next final. Room for finals is reserved for the worst case, but memory is only used when written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.errors import SettingsError
from envfleet.fleet.program import ExtraArray
from envfleet.fleet.spaces import leaves_of

__all__ = ["Column", "Rollout", "RolloutShape"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Column:
    """Something a policy records of every step: its shape for one environment, and its type."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RolloutShape:
    """All sizes of a rollout."""

    steps: int
    n_envs: int
    groups: int
    observation_space: spaces.Space[Any]
    columns: Mapping[str, Column]  # the action and whatever else the policy records
    mask_size: int
    memory_size: int
    piece_length: int  # the memory is stored at the beginning of every piece of so many steps
    weights: int  # numbers of the policy
    buffers: int  # 2 where one rollout is collected while another is learned from
    log_info: tuple[str, ...] = ()  # keys of infos that are followed over each episode

    def __post_init__(self) -> None:
        for leaf in leaves_of(self.observation_space):
            if not leaf.fixed:
                raise SettingsError(
                    f"the observation has an entry {leaf.name!r} of {leaf.space}, which has no fixed size",
                    hint="policies take Box, Discrete, MultiDiscrete and MultiBinary; wrap the environment",
                )

    def arrays(self) -> tuple[ExtraArray, ...]:
        """Every array with its name, in the order of the block."""
        b, t, n = self.buffers, self.steps, self.n_envs
        listed = [
            ExtraArray("weights", (self.weights,), "<f4"),
            ExtraArray("progress", (self.groups,), "<i8"),
            ExtraArray("seconds", (b, self.groups, 2), "<f8"),
            ExtraArray("carried", (n, self.memory_size), "<f4"),
            ExtraArray("masked", (1,), "<i8"),
            ExtraArray("allowed", (n, self.mask_size), "|b1"),
            ExtraArray("rewards", (b, t, n), "<f4"),
            ExtraArray("terminated", (b, t, n), "|b1"),
            ExtraArray("truncated", (b, t, n), "|b1"),
            ExtraArray("valid", (b, t, n), "|b1"),
            ExtraArray("episode_returns", (b, t, n), "<f8"),
            ExtraArray("episode_lengths", (b, t, n), "<i8"),
            ExtraArray("masks", (b, t + 1, n, self.mask_size), "|b1"),
            ExtraArray("memory", (b, -(-t // self.piece_length) + 1, n, self.memory_size), "<f4"),
            ExtraArray("final_memory", (b, t, n, self.memory_size), "<f4"),
            ExtraArray("final_masks", (b, t, n, self.mask_size), "|b1"),
        ]
        for key in self.log_info:
            listed.append(ExtraArray(f"episode_numbers/{key}", (b, t, n), "<f8"))
        for name, column in self.columns.items():
            listed.append(ExtraArray(f"columns/{name}", (b, t, n, *column.shape), column.dtype))
        for leaf in leaves_of(self.observation_space):
            kind = leaf.dtype.str
            listed.append(ExtraArray(f"observations/{leaf.name}", (b, t + 1, n, *leaf.shape), kind))
            listed.append(ExtraArray(f"finals/{leaf.name}", (b, t, n, *leaf.shape), kind))
        return tuple(listed)

    @property
    def learned_bytes(self) -> int:
        """Memory of what is always written: everything but finals, masks and episode figures."""
        rare = ("final", "masks", "episode_")
        return sum(
            int(np.prod(array.shape, dtype=np.int64)) * np.dtype(array.dtype).itemsize
            for array in self.arrays()
            if not array.name.startswith(rare)
        )


@dataclass(frozen=True)
class Rollout:
    """One buffer of the arrays, as views."""

    number: int
    observations: dict[str, Array]  # leaf name -> [time + 1, env, ...]
    finals: dict[str, Array]  # leaf name -> [k, env, ...]: the environment's k-th truncated episode
    columns: dict[str, Array]  # name -> [time, env, ...]
    rewards: Array  # [time, env]
    terminated: Array  # [time, env]
    truncated: Array  # [time, env]
    valid: Array  # [time, env]: False where the step never happened
    masks: Array | None  # [time + 1, env, action], where the environments give masks
    memory: Array  # [piece + 1, env, memory]: before the first step of each piece, and at the rollout's edge
    final_memory: Array  # [k, env, memory]: with which the k-th final is to be seen
    episode_returns: Array  # [time, env], where an episode ended
    episode_lengths: Array  # [time, env], where an episode ended
    seconds: Array  # [group, 2]: in the environments, in the policy
    final_masks: Array | None = None  # [k, env, action]: the actions allowed at the k-th final, as `masks`
    episode_numbers: Mapping[str, Array] = field(default_factory=dict)  # key of log_info -> [time, env], as returns

    @classmethod
    def of(cls, arrays: Mapping[str, Array], buffer: int, number: int) -> Rollout:
        def named(prefix: str) -> dict[str, Array]:
            return {
                name.removeprefix(prefix): array[buffer] for name, array in arrays.items() if name.startswith(prefix)
            }

        return cls(
            number=number,
            observations=named("observations/"),
            finals=named("finals/"),
            columns=named("columns/"),
            episode_numbers=named("episode_numbers/"),
            masks=arrays["masks"][buffer] if arrays["masked"][0] else None,
            final_masks=arrays["final_masks"][buffer] if arrays["masked"][0] else None,
            **{name: arrays[name][buffer] for name in _PLAIN},
        )

    @property
    def ended(self) -> Array:
        """[time, env]: the last step of an episode."""
        return self.terminated | self.truncated

    @property
    def starts(self) -> Array:
        """[time, env]: the first step of an episode inside the rollout, where memory begins at zero.

        The first row is False: the stored memory is already that of a fresh episode where one began there.
        """
        starts = np.zeros_like(self.terminated)
        np.logical_or(self.ended[:-1], ~self.valid[:-1], out=starts[1:])
        return starts

    def final_rows(self) -> tuple[Array, Array, Array]:
        """Where episodes were truncated: (time, env, k) so that `finals[...][k, env]` is what each ended with."""
        truncated = self.truncated & ~self.terminated & self.valid
        time, env = np.nonzero(truncated)
        return time, env, (np.cumsum(truncated, axis=0) - 1)[time, env]

    def episodes(self) -> tuple[Array, Array]:
        """Returns and lengths of the episodes that ended by themselves, in the order of time and environment."""
        ended = self.ended & self.valid
        return self.episode_returns[ended], self.episode_lengths[ended]

    def numbers(self) -> dict[str, Array]:
        """What the keys of log_info are worth in the same episodes, in the same order; NaN for those without."""
        ended = self.ended & self.valid
        return {key: array[ended] for key, array in self.episode_numbers.items()}

    @property
    def steps(self) -> int:
        """Steps that happened."""
        return int(np.count_nonzero(self.valid))


_PLAIN = (
    "rewards",
    "terminated",
    "truncated",
    "valid",
    "memory",
    "final_memory",
    "episode_returns",
    "episode_lengths",
    "seconds",
)


def private_arrays(listed: Sequence[ExtraArray]) -> dict[str, Array]:
    """The arrays in memory of this process alone, each on a 64-byte boundary as in a shared block."""
    import mmap

    from envfleet.fleet.memory import Layout

    layout = Layout()
    for array in listed:
        layout.add(array.name, array.shape, array.dtype)
    return layout.views(mmap.mmap(-1, max(layout.size, 1)))
