"""The arrays of a rollout: observations, actions and rewards of every environment and step, `[time, env, ...]`.

They are allocated once and written in place: by the workers, in the fleet's shared memory, or by the caller. The
learner reads them without a copy. Each observation is stored once: row t + 1 is the result of step t and the start of
step t + 1. After a truncation, row t + 1 already belongs to the next episode. The final observation, which the learner
needs to bootstrap, is stored separately in `finals`. `finals` has room for the worst case, but takes memory only when
written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.errors import SettingsError
from envfleet.fleet.memory import Division
from envfleet.fleet.routine import ExtraArray
from envfleet.fleet.spaces import leaves_of

__all__ = ["Column", "Rollout", "RolloutShape"]

Array = np.ndarray[Any, Any]
# How the arrays are divided among workers with separate blocks.
_LIVE = Division(to_worker="always", to_caller="always")  # kept from one rollout to the next
_WRITTEN = Division(axis=2, to_caller="routine", buffered=True)
_AT_ENDS = replace(_WRITTEN, only_at=("terminated", "truncated"))
_FINALS = replace(_WRITTEN, only_first=("truncated",))


@dataclass(frozen=True)
class Column:
    """A value that the policy records at every step: its shape for one environment, and its dtype."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RolloutShape:
    """All sizes of a rollout."""

    steps: int
    n_envs: int
    groups: int
    observation_space: spaces.Space[Any]
    columns: Mapping[str, Column]  # the action and other values that the policy records
    mask_size: int
    memory_size: int
    piece_length: int  # the memory (recurrent state) is stored every `piece_length` steps
    weights: int  # size of the policy's flat weights
    buffers: int  # 2 if one rollout is collected while the learner uses another
    log_info: tuple[str, ...] = ()  # info keys that are logged per episode
    weight_sets: int = 1  # one per worker if each worker may act with other weights

    def __post_init__(self) -> None:
        for leaf in leaves_of(self.observation_space):
            if not leaf.fixed:
                raise SettingsError(
                    f"the observation has an entry {leaf.name!r} of {leaf.space}, which has no fixed size",
                    hint="policies take Box, Discrete, MultiDiscrete and MultiBinary; wrap the environment",
                )

    def arrays(self) -> tuple[ExtraArray, ...]:
        """Every array with its name, in the order of the memory block."""
        b, t, n = self.buffers, self.steps, self.n_envs
        listed = [
            ExtraArray("weights", (self.weight_sets, self.weights), "<f4", Division("weight_set", to_worker="routine")),
            ExtraArray("progress", (self.groups,), "<i8", replace(_LIVE, by="group")),
            ExtraArray("seconds", (b, self.groups, 2), "<f8", replace(_WRITTEN, by="group", axis=1)),
            ExtraArray("carried", (n, self.memory_size), "<f4", _LIVE),
            ExtraArray("masked", (1,), "<i8", replace(_LIVE, by="nothing")),
            ExtraArray("allowed", (n, self.mask_size), "|b1", _LIVE),
            ExtraArray("rewards", (b, t, n), "<f4", _WRITTEN),
            ExtraArray("terminated", (b, t, n), "|b1", _WRITTEN),
            ExtraArray("truncated", (b, t, n), "|b1", _WRITTEN),
            ExtraArray("valid", (b, t, n), "|b1", _WRITTEN),
            ExtraArray("episode_returns", (b, t, n), "<f8", _AT_ENDS),
            ExtraArray("episode_lengths", (b, t, n), "<i8", _AT_ENDS),
            # Zero allows an action: rows before the first mask are never written, so that they take no memory.
            ExtraArray("forbidden", (b, t + 1, n, self.mask_size), "|b1", replace(_WRITTEN, only_if="masked")),
            ExtraArray("memory", (b, -(-t // self.piece_length) + 1, n, self.memory_size), "<f4", _WRITTEN),
            ExtraArray("final_memory", (b, t, n, self.memory_size), "<f4", _FINALS),
            ExtraArray("final_masks", (b, t, n, self.mask_size), "|b1", replace(_FINALS, only_if="masked")),
        ]
        for key in self.log_info:
            listed.append(ExtraArray(f"episode_numbers/{key}", (b, t, n), "<f8", _AT_ENDS))
        for name, column in self.columns.items():
            listed.append(ExtraArray(f"columns/{name}", (b, t, n, *column.shape), column.dtype, _WRITTEN))
        for leaf in leaves_of(self.observation_space):
            kind = leaf.dtype.str
            listed.append(ExtraArray(f"observations/{leaf.name}", (b, t + 1, n, *leaf.shape), kind, _WRITTEN))
            listed.append(ExtraArray(f"finals/{leaf.name}", (b, t, n, *leaf.shape), kind, _FINALS))
        return tuple(listed)

    @property
    def learned_bytes(self) -> int:
        """Bytes of the arrays that every rollout writes: all but finals, masks and episode statistics."""
        rare = ("final", "forbidden", "episode_")
        return sum(
            int(np.prod(array.shape, dtype=np.int64)) * np.dtype(array.dtype).itemsize
            for array in self.arrays()
            if not array.name.startswith(rare)
        )


@dataclass(frozen=True)
class Rollout:
    """One buffer of the arrays, as views; masks are a copy."""

    number: int
    observations: dict[str, Array]  # leaf name -> [time + 1, env, ...]
    finals: dict[str, Array]  # leaf name -> [k, env, ...]: the environment's k-th truncated episode
    columns: dict[str, Array]  # name -> [time, env, ...]
    rewards: Array  # [time, env]
    terminated: Array  # [time, env]
    truncated: Array  # [time, env]
    valid: Array  # [time, env]: False if the step never happened
    masks: Array | None  # [time + 1, env, action], if the environments provide masks
    memory: Array  # [piece + 1, env, memory]: before the first step of each piece, and after the last step
    final_memory: Array  # [k, env, memory]: the memory that belongs to the k-th final
    episode_returns: Array  # [time, env], set where an episode ended
    episode_lengths: Array  # [time, env], set where an episode ended
    seconds: Array  # [group, 2]: in the environments, in the policy
    final_masks: Array | None = None  # [k, env, action]: the actions allowed at the k-th final
    episode_numbers: Mapping[str, Array] = field(default_factory=dict)  # log_info key -> [time, env], as the returns
    # Of an asynchronous batch, whose columns are no continuation of the last batch's; None for a rollout of the fleet.
    env_ids: Array | None = None  # [env]: the environment of each column; a later column continues an earlier one
    versions: Array | None = None  # [env]: updates that the weights had which collected the column

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
            masks=~arrays["forbidden"][buffer] if arrays["masked"][0] else None,
            final_masks=arrays["final_masks"][buffer] if arrays["masked"][0] else None,
            **{name: arrays[name][buffer] for name in _PLAIN},
        )

    @property
    def ended(self) -> Array:
        """[time, env]: the last step of an episode."""
        return self.terminated | self.truncated

    @property
    def starts(self) -> Array:
        """[time, env]: the first step of an episode within the rollout, where the memory is reset to zero.

        The first row is always False: if an episode began there, the stored memory is already zero.
        """
        starts = np.zeros_like(self.terminated)
        np.logical_or(self.ended[:-1], ~self.valid[:-1], out=starts[1:])
        return starts

    def final_rows(self) -> tuple[Array, Array, Array]:
        """Return (time, env, k) of truncated episodes: `finals[...][k, env]` is the final observation of each."""
        truncated = self.truncated & ~self.terminated & self.valid
        time, env = np.nonzero(truncated)
        return time, env, (np.cumsum(truncated, axis=0) - 1)[time, env]

    def episodes(self) -> tuple[Array, Array]:
        """Returns and lengths of completed episodes, ordered by time, then environment; lost ones are left out."""
        ended = self.ended & self.valid
        return self.episode_returns[ended], self.episode_lengths[ended]

    def numbers(self) -> dict[str, Array]:
        """Values of the log_info keys for the same episodes, in the same order; NaN if an episode has none."""
        ended = self.ended & self.valid
        return {key: array[ended] for key, array in self.episode_numbers.items()}

    @property
    def steps(self) -> int:
        """Number of steps that happened."""
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
    """Allocate the arrays in private memory, each on a 64-byte boundary as in shared memory."""
    import mmap

    from envfleet.fleet.memory import Layout

    layout = Layout()
    for array in listed:
        layout.add(array.name, array.shape, array.dtype)
    return layout.views(mmap.mmap(-1, max(layout.size, 1)))
