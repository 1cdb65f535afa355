"""One environment of a group: build, reset, restart, save, and report failures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from envfleet.errors import EnvContext, EnvError, StateError
from envfleet.fleet import state as simulator_state
from envfleet.fleet.failures import RestartBudget, failure_of
from envfleet.fleet.mujoco_rendering import render_without_screen
from envfleet.fleet.mujoco_warnings import limit_mujoco_warnings
from envfleet.fleet.spec import EnvMaker, GroupSettings
from envfleet.seeding import derive_seed, stream
from envfleet.wording import shown

__all__ = ["EnvHandle"]

Env = gymnasium.Env[Any, Any]
_LIMIT_FIELDS = {"_max_episode_steps", "_elapsed_steps"}  # private to Gymnasium's TimeLimit
_RESTARTED, _RECYCLED, _TASK = 1, 2, 3  # keys of the seed streams


class EnvHandle:
    """An environment and the data that outlives its episodes: seed, task, and number of rebuilds.

    If Gymnasium's TimeLimit and OrderEnforcing are the outermost wrappers, `step` bypasses them. A group never steps
    before a reset and counts steps itself, which is faster than calling through these wrappers.
    """

    def __init__(self, index: int, make: EnvMaker, settings: GroupSettings) -> None:
        self.index, self._make, self._settings = index, make, settings
        self.seed = settings.seed + index
        self.next_seed: int | None = None  # given to the next reset
        self.task: Any = None
        self.began_at = 0.0
        self._env: Env | None = None
        self._episodes = 0  # started so far; the key of the task sampler's stream
        self._episodes_since_built = 0
        self._rebuilt = 0
        self._restarts = RestartBudget(settings)
        self.step: Callable[[Any], Any]
        self.most_steps = math.inf  # episode limit of the TimeLimit wrappers that `step` bypasses
        self._limits: list[Any] = []

    @property
    def env(self) -> Env:
        assert self._env is not None, "built before it is used"
        return self._env

    # --- life

    def build(self) -> None:
        limit_mujoco_warnings()
        try:
            env = self._make()
        except (Exception, SystemExit) as error:
            raise self.failure("make", error) from None
        if not isinstance(env, gymnasium.Env):
            raise EnvError(
                f"the function that makes it returned {type(env).__name__}, expected a gymnasium.Env",
                self.context("make"),
                hint="environments of the old gym API need a wrapper, e.g. from shimmy",
            )
        self._env = env
        self._episodes_since_built = 0
        self._refuse_missing_spaces(env)
        if getattr(env, "render_mode", None) not in (None, "human"):
            render_without_screen()
        inner: Any = env
        self._limits = []
        while type(inner) in (TimeLimit, OrderEnforcing) and "step" not in vars(inner):
            if isinstance(inner, TimeLimit):
                if not vars(inner).keys() >= _LIMIT_FIELDS:
                    break  # an unknown Gymnasium version: let the wrapper count
                self._limits.append(inner)
            inner = inner.env
        self.step = inner.step
        self.most_steps = min((limit._max_episode_steps for limit in self._limits), default=math.inf)

    def _refuse_missing_spaces(self, env: Env) -> None:
        for name in ("observation_space", "action_space"):
            try:
                space = getattr(env, name, None)
            except (Exception, SystemExit) as error:
                raise self.failure("make", error) from None
            if not isinstance(space, gymnasium.Space):
                raise EnvError(
                    f"its {name} is {shown(space)}, expected a gymnasium.Space",
                    self.context("make"),
                    hint=f"set self.{name} in __init__",
                )

    def tell_limits(self, steps: int) -> None:
        """Update the step counters of the bypassed TimeLimit wrappers, before other code reads them."""
        for limit in self._limits:
            limit._elapsed_steps = steps

    def reset(self, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with the next task; raise EnvError if the environment fails."""
        recycle = self._settings.recycle_every
        if recycle is not None and self._episodes_since_built >= recycle:
            given = self.next_seed
            self._rebuild(_RECYCLED)
            self.next_seed = self.next_seed if given is None else given
        if self._settings.task_sampler is not None:
            self.task = self._settings.task_sampler(stream(self.seed, _TASK, self._episodes))
        if self.task is not None:
            options = {**(options or {}), "task": self.task}
        try:
            observation, info = self.env.reset(seed=self.next_seed, options=options)
        except (Exception, SystemExit) as error:
            raise self.failure("reset", error) from None
        self.next_seed = None
        self._episodes += 1
        self._episodes_since_built += 1
        self.began_at = time.perf_counter()
        return observation, info

    def restart(self, failure: EnvError) -> None:
        """Replace a failed environment with a fresh one; raise `failure` if the settings do not allow it."""
        self._restarts.spend(failure)
        self._rebuild(_RESTARTED)

    def _rebuild(self, reason: int) -> None:
        """Build a fresh environment; its next seed is derived from the reason and the number of rebuilds."""
        self.close()
        self.build()
        self._rebuilt += 1
        self.next_seed = derive_seed(self.seed, reason, self._rebuilt)

    def close(self) -> None:
        """Close an environment that may be broken, and ignore its exceptions."""
        try:
            if self._env is not None:
                self._env.close()
        except (Exception, SystemExit):
            return

    # --- failures

    def failure(self, operation: str, error: BaseException, **context: Any) -> EnvError:
        """The exception as an error that says where and when."""
        return failure_of(error, self.context(operation, **context))

    def context(self, operation: str, *, step: int | None = None, action: Any = None) -> EnvContext:
        return EnvContext(self.index, operation, self.seed, self.task, step, action)

    # --- state

    def state(self) -> dict[str, Any]:
        """State of the simulator, its seeds, task and counters as plain data."""
        try:
            simulator = simulator_state.capture(self.env)
        except StateError:
            raise
        except (Exception, SystemExit) as error:  # a user's get_state() may raise anything
            raise self.failure("get_state", error) from None
        return {
            "simulator": simulator,
            "seed": self.seed,
            "next_seed": self.next_seed,
            "task": self.task,
            "episodes": self._episodes,
            "episodes_since_built": self._episodes_since_built,
            "rebuilt": self._rebuilt,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Rebuild the environment and set it to a captured state."""
        self.close()
        self.build()
        try:
            simulator_state.restore(self.env, saved["simulator"])
        except StateError:
            raise
        except (Exception, SystemExit) as error:  # and so may a user's set_state()
            raise self.failure("set_state", error) from None
        self.seed, self.next_seed, self.task = saved["seed"], saved["next_seed"], saved["task"]
        self._episodes, self._rebuilt = saved["episodes"], saved["rebuilt"]
        self._episodes_since_built = saved["episodes_since_built"]
        self.began_at = time.perf_counter()
