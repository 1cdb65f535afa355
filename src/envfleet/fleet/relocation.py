"""Moves workers to other hosts between two rollouts, with the running episodes of their environments.

The backend finds better places: for workers that share a CPU, on a node that has joined the cluster, and for workers on
a node that is being drained. It builds the environments there while the workers still step here. A move then captures
the environments of an idle worker, lets the other process take over, and restores them. Only the place changes, so the
results are those of a fleet that never moved. If the environments cannot be moved exactly, the worker stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from envfleet.errors import EnvError, StateError, WorkerError, one_line_of
from envfleet.fleet.exchange import Exchange
from envfleet.fleet.requests import Capture
from envfleet.fleet.supervisor import Supervisor

__all__ = ["Relocation"]

_log = logging.getLogger("envfleet")


class Relocation:
    """Moves idle workers of a fleet; `groups` are those of each worker."""

    def __init__(self, supervisor: Supervisor, exchange: Exchange, groups: Sequence[Sequence[int]]) -> None:
        self._supervisor, self._exchange, self._groups = supervisor, exchange, groups
        self.why_inexact: Callable[[], str | None] = lambda: None  # why environments cannot be moved exactly, if known

    def move_idle(self, groups: Collection[int]) -> None:
        """Move the workers that have a better place and whose groups are all among these idle ones."""
        relocator = self._supervisor.backend.relocator
        if relocator is None:
            return
        for worker in relocator.moves:
            own = self._groups[worker]
            if not set(own).issubset(groups) or worker not in relocator.moves:  # its place may be lost by now
                continue
            try:
                reason = self.why_inexact() or self._move(worker, own)
            except WorkerError:
                continue  # it died: the next command restarts it, or raises the error again
            if reason is not None:
                relocator.stay(worker, reason)

    def _move(self, worker: int, groups: Sequence[int]) -> str | None:
        """Move a worker; return the reason if its environments cannot be captured."""
        slots = self._exchange.slots_of(groups)
        try:
            self._supervisor.post(groups, slots, [Capture()] * len(groups))
            saved = self._supervisor.answers_of(groups).messages
        except (EnvError, StateError) as error:
            return one_line_of(error)
        failed = self._supervisor.move(worker, groups, slots, [saved[group] for group in groups])
        if failed is not None:
            _log.warning("worker %d begins fresh episodes on its new host: %s", worker, one_line_of(failed))
        return None
