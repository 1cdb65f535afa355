"""How a worker waits for its next command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from envfleet.fleet import worker as module
from envfleet.fleet.worker import SPIN_SECONDS, Bells, Worker

POSTED, FINISHED, SLEEPING, STOP = range(4)


class _Caller:
    """A caller that posts a command some seconds after the worker begins to wait, on a clock of its own."""

    def __init__(self) -> None:
        self.words = [0, 0, 0, 0]
        self.now = self.due = 0.0
        self.yields = 0

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.due:
            self.words[POSTED] = self.words[FINISHED] + 1

    def yield_core(self) -> None:
        self.yields += 1
        self.pass_time(SPIN_SECONDS / 100)

    def wait(self, seconds: float) -> bool:
        assert self.words[SLEEPING], "the caller rings only if the worker says that it sleeps"
        self.pass_time(self.due - self.now)
        return True

    def yields_in(self, worker: Any, seconds: float) -> int:
        """Let the worker wait that long; return how often it yielded its core."""
        self.due, self.yields = self.now + seconds, 0
        worker._await_command()
        assert self.words[POSTED] != self.words[FINISHED]
        assert not self.words[SLEEPING]
        self.words[FINISHED] = self.words[POSTED]
        return self.yields


def test_a_worker_spins_only_if_its_waits_are_usually_short(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = _Caller()
    bells: Any = Bells(worker=caller, caller=caller, spin=True)  # type: ignore[arg-type]
    spec: Any = SimpleNamespace(groups=[])
    worker: Any = Worker(spec, None, bells)  # type: ignore[arg-type]
    worker._words, worker._posted, worker._finished = caller.words, POSTED, FINISHED
    worker._sleeping, worker._stop = SLEEPING, STOP
    monkeypatch.setattr(module.time, "perf_counter", lambda: caller.now)
    monkeypatch.setattr(module, "yield_core", caller.yield_core)

    short, long = SPIN_SECONDS / 10, 100 * SPIN_SECONDS
    assert all(caller.yields_in(worker, short) for _ in range(20))
    assert caller.yields_in(worker, long)
    assert caller.yields_in(worker, short), "one long wait, for an update, does not end the spinning"
    for _ in range(50):
        caller.yields_in(worker, long)
    assert caller.yields_in(worker, long) == 0
    for _ in range(50):
        caller.yields_in(worker, short)
    assert caller.yields_in(worker, short)
