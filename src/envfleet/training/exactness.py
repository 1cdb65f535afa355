"""Checks whether a resume of a run will be exact. Tested before the first checkpoint, never assumed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from envfleet.conformance.exactness import COVER_ALL, why_inexact
from envfleet.fleet.channel import dump
from envfleet.runs.plain_state import as_loaded
from envfleet.training.assembly import Resolved

__all__ = ["Exactness"]

_SILENT_SECONDS = 3.0  # a longer test is announced to the user
_TRYING = "restoring an environment in a fresh process, to see whether a resume of this run will be exact"
_known_exact: set[bytes] = set()  # environments tested in this process: a search trains many runs in one


class Exactness:
    """Tests once whether a saved environment continues with the same bytes, and caches the answer."""

    def __init__(self, resolved: Resolved, say: Callable[[str], None]) -> None:
        self._resolved, self._say = resolved, say
        self.tried = False
        self._reason: str | None = None
        self._said: str | None = None
        self.in_a_hurry: Callable[[], bool] = lambda: False

    @property
    def failed(self) -> bool:
        """Whether the test showed that a resume would not be exact."""
        return self._reason is not None

    def take_over(self, *, tried: bool) -> None:
        """Take over from a checkpoint whether the test was done."""
        self.tried = tried

    def heard(self, reason: str | None) -> None:
        """Note that the user has just seen this reason."""
        self._said = reason

    def reason(self) -> str | None:
        """Why a saved environment would not continue exactly; None if no reason is known.

        The first call runs the test, unless the run is being stopped: then the resumed run tests it.
        """
        if not self.tried and not self.in_a_hurry():
            reason = self._try()
            if reason is not None and self.in_a_hurry():
                return None  # the signal that stops the run may also have ended the test
            self._reason, self.tried = reason, True
        return self._reason

    def why_not_movable(self) -> str | None:
        """Why the environments must not be moved to another node; None if they continue there exactly."""
        reason = self.reason()
        return reason if self.tried else "the run is being stopped"

    def announce(self, reason: str, hint: str | None = None) -> None:
        """Tell the user once what a resume will do, and why."""
        if self._said != reason:
            hint = hint or COVER_ALL
            self._say(f"notice: a resume of this run will begin fresh episodes: {reason}\nhint: {hint}")
        self._said = reason

    def _try(self) -> str | None:
        settings, key = self._resolved.settings, self._key()
        if key in _known_exact:
            return None
        slow = threading.Timer(_SILENT_SECONDS, self._say, [_TRYING])
        slow.daemon = True
        slow.start()
        try:
            reason = why_inexact(
                self._resolved.env,
                seed=self._resolved.seed,
                env_kwargs=settings.env_kwargs,
                timeout=settings.timeout,
                on_error=settings.on_error,
                validate=settings.validate,
                stored=as_loaded,
            )
        finally:
            slow.cancel()
        if reason is None and key is not None:
            _known_exact.add(key)
        return reason

    def _key(self) -> bytes | None:
        """The environment as bytes; None if it cannot be pickled."""
        try:
            return dump((self._resolved.env, self._resolved.settings.env_kwargs))
        except Exception:  # noqa: BLE001  # pickling runs user code
            return None
