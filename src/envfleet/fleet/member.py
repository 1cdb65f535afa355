"""One environment of a group: how it is built, reset, rebuilt and saved, and how it fails."""

from __future__ import annotations

import math
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from envfleet.errors import EnvContext, EnvError, StateError, env_error_type
from envfleet.fleet import state as simulator_state
from envfleet.fleet.plan import EnvPlan, GroupSettings, OnError
from envfleet.seeding import derive_seed, stream

__all__ = ["Member"]

Env = gymnasium.Env[Any, Any]
_LIMIT_FIELDS = {"_max_episode_steps", "_elapsed_steps"}  # private to Gymnasium's TimeLimit
_RESTARTED, _RECYCLED, _TASK = 1, 2, 3  # keys of the seed streams


class Member:
    """An environment and what must outlive its episodes: seed, task, and how often it was rebuilt.

    `step` is that of the environment below Gymnasium's own TimeLimit and OrderEnforcing, where those are outermost:
    a group never steps before a reset and counts steps anyway, and passing through them takes longer than counting.
    """

    def __init__(self, plan: EnvPlan, settings: GroupSettings) -> None:
        self.index, self._make, self._settings = plan.index, plan.make, settings
        self.seed = settings.seed + plan.index
        self.next_seed: int | None = None  # given to the next reset
        self.task: Any = None
        self.began_at = 0.0
        self._env: Env | None = None
        self._episodes = 0  # begun so far: the key of the task sampler's stream
        self._episodes_since_built = 0
        self._rebuilt = 0
        self._restart_times: deque[float] = deque()
        self.step: Callable[[Any], Any]
        self.most_steps = math.inf  # of an episode, by the time limits that `step` passes by
        self._limits: list[Any] = []

    @property
    def env(self) -> Env:
        assert self._env is not None, "built before it is used"
        return self._env

    # --- life

    def build(self) -> None:
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
        inner: Any = env
        self._limits = []
        while type(inner) in (TimeLimit, OrderEnforcing) and "step" not in vars(inner):
            if isinstance(inner, TimeLimit):
                if not vars(inner).keys() >= _LIMIT_FIELDS:
                    break  # of a Gymnasium that we do not know: it counts for itself
                self._limits.append(inner)
            inner = inner.env
        self.step = inner.step
        self.most_steps = min((limit._max_episode_steps for limit in self._limits), default=math.inf)

    def tell_limits(self, steps: int) -> None:
        """Lets the time limits know how far the episode is, before somebody asks them."""
        for limit in self._limits:
            limit._elapsed_steps = steps

    def reset(self, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode with the next task; raises EnvError where the environment cannot."""
        recycle = self._settings.recycle_every
        if recycle is not None and self._episodes_since_built >= recycle:
            self._rebuild(_RECYCLED)
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
        """A fresh environment in place of one that failed; raises `failure` where the settings say no."""
        restarts, times = self._settings.restarts, self._restart_times
        if self._settings.on_error is OnError.RAISE:
            raise failure
        now = time.monotonic()
        while times and now - times[0] > restarts.within:
            times.popleft()
        if len(times) >= restarts.limit:
            raise type(failure)(
                failure.message,
                failure.context,
                original=failure.original,
                hint=f"the environment was restarted {len(times)} times within {restarts.within:g} s "
                "and fails again; restarts= allows more",
            )
        time.sleep(restarts.delay(len(times)))
        times.append(now)
        self._rebuild(_RESTARTED)

    def _rebuild(self, reason: int) -> None:
        """Builds the environment anew; its next seed comes from a stream of its own."""
        self.close()
        self.build()
        self._rebuilt += 1
        self.next_seed = derive_seed(self.seed, reason, self._rebuilt)

    def close(self) -> None:
        """Closes an environment that may be broken; what it raises while it goes is of no use to anyone."""
        try:
            if self._env is not None:
                self._env.close()
        except (Exception, SystemExit):
            return

    # --- failures

    def failure(self, operation: str, error: BaseException, **context: Any) -> EnvError:
        """The error with its own traceback, which begins where the environment's code begins."""
        if isinstance(error, EnvError):
            return error
        frames = error.__traceback__.tb_next if error.__traceback__ else None  # leave out our own frame
        original = "".join(traceback.format_exception(type(error), error, frames))
        kind = env_error_type(type(error))  # stays catchable as what the environment raised
        return kind(f"{type(error).__name__}: {error}", self.context(operation, **context), original=original)

    def context(self, operation: str, *, step: int | None = None, action: Any = None) -> EnvContext:
        return EnvContext(self.index, operation, self.seed, self.task, step, action)

    # --- state

    def state(self) -> dict[str, Any]:
        """The simulator and its life so far as plain data."""
        try:
            simulator = simulator_state.capture(self.env)
        except StateError:
            raise
        except (Exception, SystemExit) as error:  # a get_state() of the user's may raise anything
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
        """Sets a freshly built environment to a captured state."""
        self.close()
        self.build()
        try:
            simulator_state.restore(self.env, saved["simulator"])
        except StateError:
            raise
        except (Exception, SystemExit) as error:  # and so may a set_state()
            raise self.failure("set_state", error) from None
        self.seed, self.next_seed, self.task = saved["seed"], saved["next_seed"], saved["task"]
        self._episodes, self._rebuilt = saved["episodes"], saved["rebuilt"]
        self._episodes_since_built = saved["episodes_since_built"]
        self.began_at = time.perf_counter()
