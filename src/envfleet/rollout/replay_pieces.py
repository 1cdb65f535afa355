"""Saves a replay buffer in pieces: a checkpoint writes only the rows that were added since the last one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envfleet.rollout.replay import Replay

__all__ = ["ReplayPieces"]

Array = np.ndarray[Any, Any]


class ReplayPieces:
    """Counts the rows of a replay buffer and names the pieces that hold them: `rows-FIRST-LAST`."""

    def __init__(self) -> None:
        self._seen = self._saved = 0  # rows
        self._names: list[str] = []  # of the pieces in the last checkpoint

    def count(self, rows: int) -> None:
        """Count rows that were added to the buffer."""
        self._seen += rows

    def take(self, replay: Replay) -> dict[str, dict[str, Array] | None]:
        """Return the pieces of the buffer, oldest first; only the one that is new since the last call has content."""
        new = min(self._seen - self._saved, replay.held)
        fresh = f"rows-{self._seen - new}-{self._seen}"
        kept = [name for name in self._names if int(name.rpartition("-")[2]) > self._seen - replay.held]
        self._names = [*kept, fresh] if new else kept
        self._saved = self._seen
        return {name: replay.rows_since(new) if new and name == fresh else None for name in self._names}

    def state(self, replay: Replay) -> dict[str, Any]:
        """Return what `restore` needs beside the pieces."""
        return {"head": replay.head, "rows_seen": self._seen, "masked": replay.masked}

    def restore(self, replay: Replay, state: Mapping[str, Any], pieces: Mapping[str, Mapping[str, Array]]) -> None:
        """Put saved rows back into an empty buffer."""
        rows = sum(len(piece["rewards"]) - 1 for piece in pieces.values())
        replay.head = (state["head"] - rows) % replay.rows
        replay.masked = state["masked"]
        for piece in pieces.values():
            replay.put_rows(piece)
        self._names = list(pieces)
        self._seen = self._saved = state["rows_seen"]

    def forget_newest(self) -> None:
        """Write all rows again with the next checkpoint if the newest one is in a saved piece, because it changed."""
        if self._saved == self._seen:
            self.forget()

    def forget(self) -> None:
        """Write all rows again with the next checkpoint, because rows in saved pieces have changed."""
        self._names, self._saved = [], 0
