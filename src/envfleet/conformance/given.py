"""The environment that is checked: an id, a callable, an object, or a name whose module is not imported yet."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from envfleet.errors import SettingsError
from envfleet.fleet.makers import spec_of

__all__ = ["NamedEnv", "factory_of", "title_of"]


@dataclass(frozen=True)
class NamedEnv:
    """An environment named as `module:callable`, imported only where it is examined: importing may crash or hang."""

    name: str
    find: Callable[[str], str | Callable[..., Any]]  # imports the module; returns the callable or a Gymnasium id
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The module's name."""
        return self.name.partition(":")[0]

    def imported(self) -> Callable[[], Any]:
        """Import the module, and return the function that builds the environment."""
        factory = factory_of(self.find(self.name), self.kwargs)
        assert factory is not None, "found by its name, so it is not an environment"
        return factory

    def __call__(self) -> Any:
        return self.imported()()


def factory_of(env: Any, env_kwargs: dict[str, Any]) -> Callable[[], Any] | None:
    """Return a function that builds the environment, or None if `env` is one already."""
    if isinstance(env, NamedEnv):
        return NamedEnv(env.name, env.find, env_kwargs)
    if isinstance(env, str):
        spec_of(env)  # raises if there is no such environment
        # Gymnasium's passive checker would raise at the first problem; ours lists them all.
        return functools.partial(gymnasium.make, env, disable_env_checker=True, **env_kwargs)
    if callable(env) and not isinstance(env, gymnasium.Env):
        return functools.partial(env, **env_kwargs)
    if env_kwargs:
        raise SettingsError(
            f"env_kwargs {sorted(env_kwargs)} came with an environment that is already built",
            hint="give the callable that builds it",
        )
    return None


def title_of(env: Any) -> str:
    """The environment's name in the report."""
    if isinstance(env, str):
        return env
    if isinstance(env, NamedEnv):
        return env.name.partition(":")[2]
    if isinstance(env, gymnasium.Env):
        return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    return str(getattr(env, "__qualname__", None) or type(env).__name__)
