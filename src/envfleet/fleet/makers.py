"""From the user's `env` argument to the functions that make groups."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium
from gymnasium.envs.registration import load_env_creator

from envfleet.errors import SettingsError, UnsupportedError
from envfleet.extras import import_provider, refuse_missing_extra
from envfleet.fleet.loop_group import LoopGroup
from envfleet.fleet.mujoco_warnings import limit_mujoco_warnings
from envfleet.fleet.pool import PoolMaker
from envfleet.fleet.pool_group import PoolGroup
from envfleet.fleet.spec import EnvMaker, GroupMaker
from envfleet.fleet.wrapping import WrappedEnv, checked_wrappers
from envfleet.importing import imported_module
from envfleet.wording import NOT_AN_OBJECT

__all__ = ["Makers", "makers_of", "spec_of"]

_OUR_ENVIRONMENTS = "envfleet.environments."
EnvKwargs = dict[str, Any] | Sequence[dict[str, Any]] | None


class Makers(Protocol):
    """Makes the groups of a fleet."""

    @property
    def n_envs(self) -> int: ...

    @property
    def together(self) -> bool:
        """Whether one call steps all environments of a group."""

    @property
    def preloads(self) -> tuple[str, ...]:
        """Modules to import, if possible, in the process that workers are forked from."""

    @property
    def single(self) -> EnvMaker:
        """Builds one environment alone, to measure it."""

    def group(self, rows: range) -> GroupMaker:
        """Makes the group of these environments."""


@dataclass(frozen=True)
class _Loop:
    """One function for each environment."""

    envs: tuple[EnvMaker, ...]
    together = False

    @property
    def n_envs(self) -> int:
        return len(self.envs)

    @property
    def preloads(self) -> tuple[str, ...]:
        return tuple({name: None for make_env in self.envs for name in _preloads(make_env)})

    @property
    def single(self) -> EnvMaker:
        return self.envs[0]

    def group(self, rows: range) -> GroupMaker:
        return functools.partial(LoopGroup, self.envs[rows.start : rows.stop])


@dataclass(frozen=True)
class _Pools:
    """One pool for each group."""

    pools: PoolMaker
    n_envs: int
    together = True
    preloads = ()

    @property
    def single(self) -> EnvMaker:
        return self.pools.single

    def group(self, rows: range) -> GroupMaker:
        return functools.partial(PoolGroup, self.pools)


def makers_of(
    env: str | EnvMaker | PoolMaker | Sequence[EnvMaker],
    n_envs: int | None,
    env_kwargs: EnvKwargs = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
) -> Makers:
    """Check the arguments of `make` that say what the environments are."""
    wrapping = checked_wrappers(wrappers)
    each = list(env_kwargs) if isinstance(env_kwargs, list | tuple) else None
    given = {
        "n_envs": n_envs,
        "the list of environments": len(env) if isinstance(env, list | tuple) else None,
        "env_kwargs": None if each is None else len(each),
    }
    counts = {name: count for name, count in given.items() if count is not None}
    if len(set(counts.values())) > 1:
        raise SettingsError(f"the number of environments is not clear: {counts}", hint="give it once")
    if not counts:
        raise SettingsError("n_envs is missing", hint="say how many environments: make(env, n_envs=64)")
    count = next(iter(counts.values()))
    if not isinstance(count, int) or count < 1:
        raise SettingsError(f"n_envs is {count!r}, expected a whole number of at least 1")
    kwargs: list[dict[str, Any]] = each or [dict(env_kwargs or {})] * count  # type: ignore[arg-type]
    if isinstance(env, WrappedEnv) and isinstance(env.env, PoolMaker):  # training wraps before it calls `make`
        wrapping = (*env.wrappers, *wrapping)
        env = env.env
    if isinstance(env, PoolMaker):
        return _pools(env, kwargs, wrapping)
    envs = _env_makers(env, kwargs)
    return _Loop(tuple(WrappedEnv(make_env, wrapping) for make_env in envs) if wrapping else tuple(envs))


def _pools(maker: PoolMaker, kwargs: list[dict[str, Any]], wrapping: Sequence[Any]) -> _Pools:
    if wrapping:
        raise UnsupportedError(
            f"received {len(wrapping)} wrappers for a pool: they wrap a gymnasium.Env, and a pool is none",
            hint="let the function that builds the pool change it, or use a gymnasium.Env",
        )
    if any(other != kwargs[0] for other in kwargs):
        raise UnsupportedError(
            "received different env_kwargs for the environments of a pool, expected the same for all",
            hint="env_kwargs={...} is for all of them",
        )
    return _Pools(PoolMaker(maker.make, {**maker.kwargs, **kwargs[0]}), len(kwargs))


def _env_makers(env: str | EnvMaker | Sequence[EnvMaker], kwargs: list[dict[str, Any]]) -> list[EnvMaker]:
    if isinstance(env, list | tuple):
        return [_with_kwargs(one, given) for one, given in zip(env, kwargs, strict=True)]
    if isinstance(env, str):
        spec = spec_of(env)
        return [_FromSpec(spec, given) for given in kwargs]
    if not callable(env):
        raise SettingsError(
            f"env is {type(env).__name__}, expected a Gymnasium id, a function or a list of functions",
            hint=NOT_AN_OBJECT,
        )
    return [_with_kwargs(env, given) for given in kwargs]


def _with_kwargs(make_env: EnvMaker, kwargs: dict[str, Any]) -> EnvMaker:
    if not callable(make_env):
        raise SettingsError(f"the list of environments has a {type(make_env).__name__}, expected functions")
    return functools.partial(make_env, **kwargs) if kwargs else make_env


@dataclass(frozen=True)
class _FromSpec:
    """Builds a registered environment, without Gymnasium's passive checker: the fleet has its own checks."""

    spec: Any
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> gymnasium.Env[Any, Any]:
        if isinstance(self.spec.entry_point, str):
            load_env_creator(self.spec.entry_point)  # imports MuJoCo, if it needs that, before a model is built
            limit_mujoco_warnings()
        return gymnasium.make(self.spec, disable_env_checker=True, **self.kwargs)


def _preloads(make_env: Any) -> tuple[str, ...]:
    """Return the module `before_fork` of the package that one of our own environments is in; it may not exist."""
    while isinstance(make_env, functools.partial | WrappedEnv):
        make_env = make_env.func if isinstance(make_env, functools.partial) else make_env.env
    spec = gymnasium.registry.get(make_env) if isinstance(make_env, str) else None
    if isinstance(make_env, _FromSpec):
        spec = make_env.spec
    module, _, _ = str(getattr(spec, "entry_point", "")).partition(":")
    return (f"{module.rpartition('.')[0]}.before_fork",) if module.startswith(_OUR_ENVIRONMENTS) else ()


def spec_of(env_id: str) -> Any:
    """Spec of a registered environment; for `module:id`, first imports the module that registers it."""
    module, _, name = env_id.rpartition(":")
    import_provider(env_id)
    if module:
        imported_module(module)  # importing it registers the environment
    try:
        spec = gymnasium.spec(name)
    except gymnasium.error.Error as error:
        near = difflib.get_close_matches(env_id, list(gymnasium.registry), n=3)
        unheard_of = isinstance(error, gymnasium.error.NameNotFound | gymnasium.error.NamespaceNotFound)
        raise SettingsError(
            f"there is no environment {env_id!r}{'' if unheard_of else f': {error}'}",
            hint=f"did you mean {', '.join(near)}?" if near else f"name the module that registers it: module:{name}",
        ) from None
    refuse_missing_extra(spec.entry_point)
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith("__main__:"):
        from envfleet.fleet.backends.processes import resolved

        spec = resolved(spec)
    return spec
