"""Failures of environments: as errors that say where and when, and how often they may lead to a restart."""

from __future__ import annotations

import logging
import time
import traceback

from envfleet.errors import EnvContext, EnvError, ObservationError, env_error_type
from envfleet.fleet.restart_limiter import RestartLimiter
from envfleet.fleet.spec import GroupSettings, OnError

__all__ = ["RestartBudget", "bad_observation", "bad_reward", "failure_of"]

_log = logging.getLogger("envfleet")


def failure_of(error: BaseException, context: EnvContext) -> EnvError:
    """Wrap an exception in an EnvError, with a traceback that starts in the environment's code."""
    if isinstance(error, EnvError):
        return error
    frames = error.__traceback__.tb_next if error.__traceback__ else None  # leave out our own frame
    original = "".join(traceback.format_exception(type(error), error, frames))
    kind = env_error_type(type(error))  # still catchable as the type that the environment raised
    failure = kind(f"{type(error).__name__}: {error}", context, original=original)
    failure.carry(getattr(error, "__dict__", {}))
    return failure


def bad_observation(reason: str, context: EnvContext) -> ObservationError:
    hint = (
        "fix the environment or its observation_space; envfleet.check(env) finds more; "
        "validate='off' leaves out the checks of bounds and NaN"
    )
    return ObservationError(f"bad observation: {reason}", context, hint=hint)


def bad_reward(received: str, context: EnvContext) -> ObservationError:
    return ObservationError(
        f"bad reward: expected a number, received {received}",
        context,
        hint="fix the environment's reward: return one float; validate='off' lets NaN pass",
    )


class RestartBudget:
    """Counts and logs the restarts of one environment, or of one pool."""

    def __init__(self, settings: GroupSettings) -> None:
        self._on_error, self._restarts = settings.on_error, RestartLimiter(settings.restarts)
        self._spent = 0

    def spend(self, failure: EnvError) -> None:
        """Wait for the pause before a restart; raise `failure` if the settings do not allow one."""
        restarts = self._restarts
        if self._on_error is OnError.RAISE:
            raise failure
        if restarts.exhausted:
            final = type(failure)(
                failure.message,
                failure.context,
                original=failure.original,
                hint=f"the environment was restarted {restarts.recent} times within {restarts.within:g} s "
                "and fails again; restarts= allows more",
            )
            final.carry(failure.attributes)
            raise final
        self._spent += 1
        if self._spent == 1:
            _log.warning("an environment is restarted: %s", failure)
        elif self._spent.bit_count() == 1:  # 2, 4, 8, ...: often enough to notice, and not a flood
            where, count = failure.context.where, self._spent
            _log.warning("%s: restarted %d times so far, now because of: %s", where, count, failure.message)
        time.sleep(restarts.count())
