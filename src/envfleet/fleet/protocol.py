"""The states of a fleet, and the errors for calls that the current state does not allow.

The errors derive from both ours and Gymnasium's: code that catches `gymnasium.error.AlreadyPendingCallError` from an
AsyncVectorEnv works with a fleet too.
"""

from __future__ import annotations

import multiprocessing
from enum import Enum

from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded

from envfleet.errors import ClosedError, EnvfleetError, ProtocolError, SettingsError

__all__ = [
    "CallPendingError",
    "FleetClosedError",
    "FleetState",
    "NoCallPendingError",
    "ResetMaskError",
    "ResetMissingError",
    "SpacesError",
    "WaitTimeoutError",
    "bad_min_envs",
    "envs_ended",
    "misplaced_call",
    "still_pending",
    "wait_timed_out",
]


class FleetState(Enum):
    """State of a fleet; each call is allowed in some states only."""

    NEW = "not reset yet"
    READY = "ready"
    RESETTING = "waiting for reset_wait()"
    STEPPING = "waiting for step_wait()"
    STREAMING = "waiting for recv()"
    RUNNING = "waiting for run_wait()"
    BROKEN = "broken"
    CLOSED = "closed"


class FleetClosedError(ClosedError, ClosedEnvironmentError):
    """The fleet was used after it was closed."""


class ResetMissingError(ProtocolError, ResetNeeded):
    """The fleet was used before its first reset, or after an error that makes a reset necessary."""


class CallPendingError(ProtocolError, AlreadyPendingCallError):
    """A call was made while another one is pending; `name` is the pending call."""

    def __init__(self, message: str, name: str, *, hint: str | None = None) -> None:
        ProtocolError.__init__(self, message, hint=hint)
        self.name = name


class NoCallPendingError(ProtocolError, NoAsyncCallError):
    """Results were requested while no call is pending; `name` is the call that must come first."""

    def __init__(self, message: str, name: str, *, hint: str | None = None) -> None:
        ProtocolError.__init__(self, message, hint=hint)
        self.name = name


class WaitTimeoutError(EnvfleetError, TimeoutError, multiprocessing.TimeoutError):
    """`step_wait(timeout=...)` or `reset_wait(timeout=...)` timed out; the pending call continues."""


class SpacesError(SettingsError, RuntimeError):
    """The environments of a fleet have incompatible spaces."""


class ResetMaskError(SettingsError, TypeError):
    """`options["reset_mask"]` is not a valid mask of the fleet's environments."""


_PENDING = {
    FleetState.RESETTING: ("reset", "call reset_wait() first"),
    FleetState.STEPPING: ("step", "call step_wait() first"),
    FleetState.STREAMING: ("send", "call recv() until every environment that was sent to has answered"),
    FleetState.RUNNING: ("run", "call run_wait() first"),
}
_BEGUN_BY = {
    "reset_wait()": "reset_async",
    "step_wait()": "step_async",
    "recv()": "send",
    "run_wait()": "run_async",
    "run_first()": "run_async",
}


def misplaced_call(call: str, state: FleetState) -> ProtocolError:
    """Return the error for a call that `state` does not allow."""
    if state is FleetState.CLOSED:
        return FleetClosedError(f"{call} was called on a closed fleet")
    message = f"{call} was called while the fleet is {state.value}"
    if state is FleetState.BROKEN:
        return ProtocolError(message, hint="make a new fleet")
    pending, hint = _PENDING.get(state, ("", ""))
    if call in _BEGUN_BY:
        lacks_reset = state is FleetState.NEW and call != "reset_wait()"
        hint = hint or ("call reset() first" if lacks_reset else f"call {_BEGUN_BY[call]}() first")
        return NoCallPendingError(message, _BEGUN_BY[call].removesuffix("_async"), hint=hint)
    if pending:
        return CallPendingError(message, pending, hint=hint)
    return ResetMissingError(message, hint="call reset() first")


def wait_timed_out(call: str, seconds: float | None) -> WaitTimeoutError:
    """Return the error for a wait that took longer than the `seconds` the user gave it."""
    return WaitTimeoutError(
        f"{call} has timed out after {seconds:g} s",
        hint=f"the environments continue: call {call} again, or close the fleet",
    )


def envs_ended(envs: list[int]) -> ProtocolError:
    """Return the error for a step of environments that have ended, if nothing resets them."""
    return ProtocolError(
        f"environments {envs} have ended and autoreset is disabled",
        hint='reset them: reset(options={"reset_mask": terminations | truncations})',
    )


def still_pending(envs: range) -> ProtocolError:
    """Return the error for a second `send` to environments whose results were not received yet."""
    return ProtocolError(
        f"environments {envs.start} to {envs.stop - 1} were sent actions and have not answered yet",
        hint="take their results with recv() first",
    )


def bad_min_envs(min_envs: int | None, pending: int) -> SettingsError:
    """Return the error for a `recv` that can never be satisfied by the environments that were sent actions."""
    return SettingsError(
        f"recv(min_envs={min_envs}) while {pending} environments are under way",
        hint="ask for at least 1 and at most as many as were sent actions",
    )
