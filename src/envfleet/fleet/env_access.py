"""Access to the environments of a fleet: Gymnasium's `call`, `get_attr`, `set_attr`, `render` and the like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from envfleet.errors import SettingsError
from envfleet.fleet.requests import Apply, ApplyStep, Call, Request, SetAttr

__all__ = ["EnvAccess"]

Array = np.ndarray[Any, Any]


class EnvAccess(VectorEnv[Any, Any, Array]):
    """The part of a vector environment that reaches single environments; a subclass answers `_ask`."""

    backend: str
    groups: list[range]  # the environments of each group

    def _ask(self, call: str, requests: Sequence[Request]) -> list[Any]:
        """Replies of all groups, one request each; `call` is what the user called.

        An error here does not end the episode, so no reset is needed.
        """
        raise NotImplementedError

    def _local_envs(self) -> list[gymnasium.Env[Any, Any]] | None:
        """The environment objects, if they are in the caller's thread; else None."""
        raise NotImplementedError

    @property
    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        """The environment objects; only available with the sequential backend."""
        envs = self._local_envs()
        if envs is None:
            where = "closed" if self.closed else f"of the backend {self.backend!r}"
            raise AttributeError(
                f"this fleet is {where}: envs is only available if the environments run in the caller's thread\n"
                "hint: backend='sequential', or call(), get_attr(), set_attr() and apply(), which work everywhere"
            )
        return envs

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Attribute `name` of every environment; if it is callable, the result of calling it."""
        return self.call_at(None, name, *args, **kwargs)

    def call_at(self, env_ids: Sequence[int] | None, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As `call`, for the given environments only; results are in the order of the environments."""
        only = None if env_ids is None else {int(env) for env in env_ids}
        return self._ask_same(f"call({name!r})", Call(name, args, kwargs, only))

    def apply(self, function: Callable[[Any], Any]) -> tuple[Any, ...]:
        """Call `function(env)` for every environment, in its worker, and return the results.

        The function is sent to the workers, and its results are sent back; a generator's items come as a list.
        The time limit is that of a reset; for a generator it applies to each item.
        """
        return self._ask_same("apply()", Apply(function))

    def apply_within_step(self, function: Callable[[Any], Any]) -> tuple[Any, ...]:
        """As `apply`, with the time limit of a step for `function(env, starting=...)`.

        `with starting():` allows a part of it the time of a reset.
        """
        return self._ask_same("apply()", ApplyStep(function))

    def _ask_same(self, call: str, request: Request) -> tuple[Any, ...]:
        """One reply per environment, from the same request to all groups."""
        return tuple(value for part in self._ask(call, [request] * len(self.groups)) for value in part)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Attribute `name` of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment: a list or tuple has one value each, any other value is for all."""
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise SettingsError(f"set_attr got {len(values)} values, expected one per environment: {self.num_envs}")
        requests = [SetAttr(name, values[group.start : group.stop]) for group in self.groups]
        self._ask(f"set_attr({name!r})", requests)

    def render(self) -> tuple[Any, ...]:
        """The frame of every environment."""
        return self.call("render")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """Seed of every environment's generator, as in Gymnasium's vector environments."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]  # read-only, as in Gymnasium's vector environments
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Generator of every environment; a copy if the environment runs in another process."""
        return self.get_attr("np_random")
