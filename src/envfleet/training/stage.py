"""The stage: a single environment of a run, with the same fault protection as the fleet.

Used for everything that needs one environment: reading its spaces, timing a step, evaluations, random play,
demonstrations, videos. Crashes, hangs and exceptions are handled as in the fleet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envfleet.algorithms.settings import TrainingSettings
from envfleet.errors import EnvfleetError
from envfleet.fleet.hosting import BACKENDS
from envfleet.fleet.make import make, one_env
from envfleet.fleet.pool import PoolMaker
from envfleet.fleet.single import SingleEnv
from envfleet.fleet.spec import Timeouts

__all__ = ["Stage", "protection"]


def protection(settings: TrainingSettings) -> dict[str, Any]:
    """Fault-handling arguments of `make`, the same for every fleet of a run."""
    return {
        "start_method": settings.start_method,
        "timeout": time_limits(settings),
        "on_error": settings.on_error,
        "restarts": settings.restarts,
        "validate": settings.validate,
    }


def time_limits(settings: TrainingSettings) -> Timeouts:
    """How long an environment may take, in every fleet of a run."""
    return Timeouts(settings.timeout, max(settings.timeout, 600.0))


class Stage:
    """Builds the environment when needed, and keeps its worker for the next time."""

    def __init__(self, env: str | Callable[..., Any], settings: TrainingSettings, **env_kwargs: Any) -> None:
        self._source, self._settings = env.single if isinstance(env, PoolMaker) else env, settings
        self._kwargs = {**settings.env_kwargs, **env_kwargs}
        self._env: SingleEnv | None = None

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """Run `function(env)` in the environment's worker and return its result."""
        return self._kept().apply(function)

    def apply_within_step(self, function: Callable[[Any], Any]) -> Any:
        """As `apply`, with the time limit of a step for `function(env, starting=...)` outside `starting()`."""
        return self._kept().apply_within_step(function)

    def fresh(self) -> SingleEnv:
        """Return the environment, built again. Closing it leaves its worker to the stage."""
        if self._env is None:
            return self._kept()
        try:
            self._env.rebuild()
        except EnvfleetError:  # its worker is beyond repair
            self.close()
        return self._kept()

    def _kept(self) -> SingleEnv:
        if self._env is None:
            self._env = SingleEnv(self._fleet())
        return self._env

    def _fleet(self) -> Any:
        settings = self._settings
        backend = BACKENDS[settings.backend]
        options: dict[str, Any] = {
            **protection(settings),
            "seed": settings.seed,
            "env_kwargs": [self._kwargs],
            "autoreset": "disabled",
            "quiet": True,
        }
        if backend in ("auto", "ray"):  # a single environment stays on this machine
            return one_env(self._source, **options)
        return make(self._source, 1, backend=backend, **options)

    def close(self) -> None:
        """End the environment and its worker. The stage builds a new one if it is used again."""
        if self._env is not None:
            self._env.end()
            self._env = None
