"""Environments with wrappers, built in the worker that hosts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from envfleet.errors import SettingsError

__all__ = ["WrappedEnv", "build_one", "checked_wrappers"]


@dataclass(frozen=True)
class WrappedEnv:
    """Builds an environment and wraps it, the first wrapper innermost; picklable if its parts are."""

    env: str | Callable[..., Any]
    wrappers: tuple[Callable[[Any], Any], ...]

    def __call__(self, **kwargs: Any) -> Any:
        import gymnasium

        built = build_one(self.env, kwargs)
        for number, wrapper in enumerate(self.wrappers, 1):
            name = f"the wrapper {_name_of(wrapper)!r}, number {number} of {len(self.wrappers)},"
            try:
                built = wrapper(built)
            except Exception as error:
                error.add_note(f"{name} raised this")
                raise
            if not isinstance(built, gymnasium.Env):
                raise SettingsError(
                    f"{name} returned {type(built).__name__}, expected a gymnasium.Env",
                    hint="a wrapper takes an environment and returns the wrapped one",
                )
        return built


def checked_wrappers(wrappers: Iterable[Callable[[Any], Any]]) -> tuple[Callable[[Any], Any], ...]:
    """Return the wrappers as a tuple; raise SettingsError if one is not callable."""
    if callable(wrappers) or isinstance(wrappers, str):
        raise SettingsError(f"wrappers is {wrappers!r}, expected a list of functions", hint="wrappers=[...]")
    given = tuple(wrappers)
    for number, wrapper in enumerate(given):
        if not callable(wrapper):
            raise SettingsError(
                f"wrappers[{number}] is {wrapper!r}, expected a function that takes an environment and returns one",
                hint="for arguments: functools.partial(TimeLimit, max_episode_steps=500), or a lambda",
            )
    return given


def build_one(env: str | Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Build one environment, to inspect its spaces or for an evaluation."""
    if isinstance(env, str):
        import gymnasium

        from envfleet.fleet.makers import spec_of

        return gymnasium.make(spec_of(env), disable_env_checker=True, **kwargs)
    return env(**kwargs)


def _name_of(wrapper: Any) -> str:
    inner = getattr(wrapper, "func", wrapper)  # unwrap a functools.partial
    return getattr(inner, "__name__", None) or type(inner).__name__
