"""Whether a resume of a run will be exact: tried before its first checkpoint, never just assumed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from envfleet.conformance.exactness import COVER_ALL, why_inexact
from envfleet.fleet.channel import dump
from envfleet.runs.plain_state import as_loaded
from envfleet.training.assembly import Resolved

__all__ = ["Exactness"]

_SILENT_SECONDS = 3.0  # the user hears of a trial that takes longer
_TRYING = "restoring an environment in a fresh process, to see whether a resume of this run will be exact"
_known_exact: set[bytes] = set()  # environments that were tried in this process: searches train many runs in one


class Exactness:
    """Tries once whether a saved environment continues with the same bytes, and remembers the answer."""

    def __init__(self, resolved: Resolved, say: Callable[[str], None]) -> None:
        self._resolved, self._say = resolved, say
        self.tried = False
        self._reason: str | None = None
        self._said: str | None = None
        self.in_a_hurry: Callable[[], bool] = lambda: False

    @property
    def failed(self) -> bool:
        """It was tried, and a resume would not be exact."""
        return self._reason is not None

    def take_over(self, *, tried: bool) -> None:
        """Goes on with what a checkpoint knows: what was `tried` need not be tried again."""
        self.tried = tried

    def heard(self, reason: str | None) -> None:
        """The user has just been told this."""
        self._said = reason

    def reason(self) -> str | None:
        """Why a saved environment would not continue exactly; None if nothing speaks against it.

        The first call tries it, unless somebody waits for the run to stop: then whoever resumes tries it.
        """
        if not self.tried and not self.in_a_hurry():
            reason = self._try()
            if reason is not None and self.in_a_hurry():
                return None  # the signal that stops the run may have ended the trial as well
            self._reason, self.tried = reason, True
        return self._reason

    def announce(self, reason: str) -> None:
        """Says once what a resume will do, and why."""
        if self._said != reason:
            self._say(f"notice: a resume of this run will begin fresh episodes: {reason}\nhint: {COVER_ALL}")
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
        """The environment as bytes; None if it cannot be written as such."""
        try:
            return dump((self._resolved.env, self._resolved.settings.env_kwargs))
        except Exception:  # noqa: BLE001  # pickling runs code of the user's
            return None
