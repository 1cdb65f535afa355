"""The state of a fleet: which call is allowed, and what an error in a call does to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from envfleet.errors import EnvError, EnvfleetError, EnvHungError, OutOfTimeError, WorkerError
from envfleet.fleet.exchange import Exchange
from envfleet.fleet.protocol import FleetState, misplaced_call
from envfleet.fleet.requests import Request
from envfleet.fleet.seeds_and_tasks import SeedsAndTasks
from envfleet.fleet.supervisor import Supervisor

__all__ = ["GuardedState"]

T = TypeVar("T")


class GuardedState:
    """The part of a fleet that keeps its state right, whatever a call to the supervisor raises."""

    _state: FleetState
    _supervisor: Supervisor
    _exchange: Exchange
    _seeds_and_tasks: SeedsAndTasks

    def _expect(self, call: str, *allowed: FleetState) -> None:
        if self._state not in allowed:
            raise misplaced_call(call, self._state)

    def _guarded(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call a method of the supervisor; if it raises, the kind of error decides the fleet's state."""
        try:
            return work(*arguments)
        except EnvHungError as error:
            self._state = FleetState.BROKEN
            raise self._seeds_and_tasks.with_context(error, self._exchange.last_action) from None
        except (WorkerError, OutOfTimeError):
            self._state = FleetState.BROKEN
            raise
        except EnvError:
            self._guarded(self._supervisor.drain)  # only a reset makes sense now
            self._state = FleetState.NEW
            raise
        except BaseException as error:
            if self._supervisor.backend.inline and not isinstance(error, Exception):  # Ctrl-C in an environment
                self._state = FleetState.NEW
            raise

    def _replies(
        self, requests: Sequence[Request], slot: int = 0, progress: Callable[[int, int], None] | None = None
    ) -> list[Any]:
        """Replies of all groups; an error leaves the fleet's state as it is, except for a hang.

        If a worker died too often, the next call tries to restart it once more.
        """
        state = self._state
        try:
            return self._guarded(self._supervisor.ask, requests, slot, progress)
        except EnvHungError as error:
            context = replace(error.context, operation=requests[0].operation or error.context.operation, action=None)
            raise EnvHungError(error.message, context, original=error.original, hint=error.hint) from None
        except EnvfleetError:
            self._state = state
            raise
