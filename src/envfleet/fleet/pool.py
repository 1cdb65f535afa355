"""Pools: simulators that step many environments in one call, as users bring them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import Array, as_array, leaves_of, pick, rebuild
from envfleet.wording import shown

__all__ = ["BadResult", "Pool", "PoolEnv", "PoolMaker", "PoolResult", "checked", "infos_by_env"]

PoolResult = tuple[Any, Array, Array, Array, dict[str, Any]]
_NEEDED = ("single_observation_space", "single_action_space", "metadata", "reset", "step", "close")


class Pool(Protocol):
    """A simulator of several environments: a `gymnasium.vector.VectorEnv` that never resets by itself.

    Everything is batched as in Gymnasium's vector API: one row per environment. What environment i does must depend on
    its own seed and actions only, not on the other environments of the pool. `spec` and `render_mode` are optional.
    """

    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    metadata: dict[str, Any]  # "autoreset_mode" is AutoresetMode.DISABLED

    def reset(self, *, seed: list[int | None] | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes in the environments of the mask `options["reset_mask"]`; other rows are not read.

        `seed` has one seed per environment; None means that the environment's generator continues.
        """

    def step(self, actions: Any) -> PoolResult:
        """Step all environments: observations, rewards, terminated, truncated and infos.

        An environment that has ended may be stepped before it is reset (next-step autoreset). Its row is not read.
        """

    def close(self) -> None: ...


@dataclass(frozen=True)
class PoolMaker:
    """Builds pools for `envfleet.make` and `envfleet.train`: `make(n_envs, **kwargs)` returns a pool of that size."""

    make: Callable[..., Pool]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def pool(self, n_envs: int) -> Pool:
        """Build a pool; raise SettingsError if it does not follow the protocol."""
        pool = self.make(n_envs, **self.kwargs)
        missing = [name for name in _NEEDED if not hasattr(pool, name)]
        if missing:
            raise SettingsError(
                f"the function that makes the pool returned {type(pool).__name__} without {', '.join(missing)}",
                hint="a pool has the methods and spaces of envfleet.Pool; a gymnasium.Env needs no PoolMaker",
            )
        mode = pool.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.DISABLED:
            raise SettingsError(
                f"metadata['autoreset_mode'] of the pool {type(pool).__name__} is {mode!r}, expected "
                f"{AutoresetMode.DISABLED!r}",
                hint="a pool resets only the environments in options['reset_mask']; the fleet does the autoreset",
            )
        for space in (pool.single_observation_space, pool.single_action_space):
            objects = [leaf.space for leaf in leaves_of(space) if not leaf.fixed]
            if objects:
                raise SettingsError(
                    f"the pool {type(pool).__name__} has the space {objects[0]}, expected Box, Discrete, "
                    "MultiDiscrete, MultiBinary, or a Dict or Tuple of these",
                )
        return pool

    @property
    def single(self) -> Callable[..., gymnasium.Env[Any, Any]]:
        """Builds one environment, as an ordinary function: `make` does not build a pool of it."""
        return functools.partial(self)

    def __call__(self, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        """One environment: a pool of one, for evaluations, videos and checks."""
        return PoolEnv(PoolMaker(self.make, {**self.kwargs, **kwargs}))

    @property
    def __name__(self) -> str:
        return getattr(self.make, "__name__", type(self.make).__name__)


class PoolEnv(gymnasium.Env[Any, Any]):
    """The only environment of a pool of one."""

    def __init__(self, maker: PoolMaker) -> None:
        self._maker = maker
        self.pool = pool = maker.pool(1)
        self.observation_space, self.action_space = pool.single_observation_space, pool.single_action_space
        self.metadata = {"render_modes": []}
        self.spec = getattr(pool, "spec", None)
        self._leaves = leaves_of(self.observation_space)
        self._actions = create_empty_array(self.action_space, 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        seeds: list[int | None] | None = None if seed is None else [seed]
        observations, infos = self.pool.reset(
            seed=seeds, options={**(options or {}), "reset_mask": np.ones(1, np.bool_)}
        )
        return self._first(observations), infos_by_env(infos, 1)[0]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        actions = concatenate(self.action_space, (action,), self._actions)  # type: ignore[arg-type]  # its own stubs differ
        observations, rewards, terminated, truncated, infos = self.pool.step(actions)
        info = infos_by_env(infos, 1)[0]
        return self._first(observations), rewards[0], bool(terminated[0]), bool(truncated[0]), info

    def _first(self, batch: Any) -> Any:
        return rebuild(self.observation_space, {leaf.path: pick(batch, leaf.path)[0] for leaf in self._leaves})

    def together(self, n_envs: int) -> WholePool:
        """A larger pool of the same kind, to be measured."""
        return WholePool(self._maker.pool(n_envs), n_envs)

    def close(self) -> None:
        self.pool.close()


class WholePool:
    """Steps all environments of a pool as if they were one that never ends."""

    def __init__(self, pool: Pool, n_envs: int) -> None:
        self._pool, self._n_envs = pool, n_envs
        self.action_space = batch_space(pool.single_action_space, n_envs)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[None, dict[str, Any]]:
        seeds: list[int | None] | None = None if seed is None else [seed + i for i in range(self._n_envs)]
        self._pool.reset(seed=seeds, options={"reset_mask": np.ones(self._n_envs, np.bool_)})
        return None, {}

    def step(self, actions: Any) -> tuple[None, float, bool, bool, dict[str, Any]]:
        _, _, terminated, truncated, _ = checked(self._pool.step(actions), self._n_envs)
        ended = terminated | truncated
        if ended.any():
            self._pool.reset(seed=None, options={"reset_mask": ended})
        return None, 0.0, False, False, {}

    def close(self) -> None:
        self._pool.close()


class BadResult(Exception):
    """A pool's step returned something wrong; the message says what."""


def checked(result: Any, n_envs: int) -> PoolResult:
    """The result of a pool's step, with copies of its rewards (float64) and flags; raise BadResult if it is wrong."""
    if not isinstance(result, tuple) or len(result) != 5:
        expected = "observations, rewards, terminated, truncated and infos"
        raise BadResult(f"bad result of the pool's step: expected {expected}, received {shown(result)}")
    observations, rewards, terminated, truncated, infos = result
    return (
        observations,
        _column("rewards", rewards, n_envs, np.dtype(np.float64)),
        _column("terminated", terminated, n_envs, np.dtype(np.bool_)),
        _column("truncated", truncated, n_envs, np.dtype(np.bool_)),
        infos,
    )


def _column(name: str, values: Any, n_envs: int, dtype: np.dtype[Any]) -> Array:
    array = as_array(values)
    if array is None or array.shape != (n_envs,) or not np.can_cast(array.dtype, dtype, "same_kind"):
        received = shown(values) if array is None else f"{array.dtype} of shape {array.shape}"
        raise BadResult(f"bad {name} of the pool: expected {dtype} of shape ({n_envs},), received {received}")
    return array.astype(dtype)


def infos_by_env(infos: dict[str, Any], n_envs: int) -> list[dict[str, Any]]:
    """Split batched infos into one dictionary per environment; a key `_name` says which environments have `name`."""
    split: list[dict[str, Any]] = [{} for _ in range(n_envs)]
    for key, values in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        rows = infos_by_env(values, n_envs) if isinstance(values, dict) else values
        given = infos.get(f"_{key}")
        for i in range(n_envs) if given is None else np.flatnonzero(given):
            split[i][key] = rows[i]
    return split
