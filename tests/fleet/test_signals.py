"""Workers leave Ctrl-C, SIGTERM and SIGHUP to the caller; processes started by an environment do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet.fleet.backends import fork_server, launch
from envfleet.signals import ENDING, Terminated, handled, terminate
from tests.fleet.child_processes import HasChildren
from tests.fleet.simulators import Counter

ACTIONS = np.zeros(4, np.int64)


def make(env: Any, backend: dict[str, Any], **kwargs: Any) -> envfleet.Fleet:
    return envfleet.make(env, 4, group_size=2, seed=1, restarts=0, quiet=True, **{**backend, **kwargs})


def test_a_worker_survives_the_signals(processes: dict[str, Any]) -> None:
    fleet = make(Counter, processes)
    fleet.reset()
    for _ in range(3):
        for worker in fleet.statistics().workers:
            for number in ENDING:
                os.kill(worker.pid, number)
        fleet.step(ACTIONS)
    assert [worker.restarts for worker in fleet.statistics().workers] == [0, 0]
    fleet.close()


def test_a_worker_survives_signals_from_its_first_moment(
    processes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals arrive right after the process exists, before the interpreter or the fork can set a handler."""
    signalled: list[int] = []

    def signal_it(pid: int) -> int:
        if pid:
            signalled.append(pid)
            for number in ENDING:
                os.kill(pid, number)
        return pid

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            signal_it(self.pid)

    fork = os.fork
    monkeypatch.setattr(launch.subprocess, "Popen", Popen)
    monkeypatch.setattr(launch.os, "fork", lambda: signal_it(fork()))
    monkeypatch.setattr(fork_server, "_servers", [])  # so that it is started too
    fleet = make(Counter, processes)
    monkeypatch.undo()
    fleet.reset()
    fleet.step(ACTIONS)
    assert len(signalled) >= 1
    assert [worker.restarts for worker in fleet.statistics().workers] == [0, 0]
    fleet.close()


def test_children_of_an_environment_end_by_sigterm(backend: dict[str, Any]) -> None:
    fleet = make(HasChildren, backend)
    fleet.reset()
    assert fleet.call("children") == ([-signal.SIGTERM, -signal.SIGTERM],) * 4
    fleet.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_children_of_an_environment_inherit_nothing_of_a_worker(processes: dict[str, Any]) -> None:
    own = HasChildren().signals_of_a_program()
    fleet = make(HasChildren, processes)
    fleet.reset()
    assert fleet.call("signals_of_a_program") == (own,) * 4
    defaults = [repr(handler) for handler in (signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL)]
    assert fleet.call("handlers_of_a_fork") == (defaults,) * 4
    fleet.close()


def test_a_hangup_that_is_ignored_stays_ignored(processes: dict[str, Any]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with handled({signal.SIGHUP: terminate}):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
        fleet = make(HasChildren, processes)
        fleet.reset()
        assert [handlers[2] for handlers in fleet.call("handlers_of_a_fork")] == [repr(signal.SIG_IGN)] * 4
        fleet.close()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("in_a_thread", [False, True])
def test_what_is_forked_while_the_caller_handles_signals_has_the_handlers_from_before(in_a_thread: bool) -> None:
    ends: list[Any] = []
    with handled({signal.SIGTERM: terminate, signal.SIGHUP: terminate}):
        with handled(dict.fromkeys(ENDING, terminate)):  # as a run does during training
            work = threading.Thread(target=lambda: ends.append(HasChildren().children()))
            (work.start if in_a_thread else work.run)()
            if in_a_thread:
                work.join()
            handlers = HasChildren().handlers_of_a_fork()
        with pytest.raises(Terminated) as caught:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 1.0)  # lets the signal arrive
    assert caught.value.code == 143
    assert ends == [[-signal.SIGTERM, -signal.SIGTERM]]
    assert handlers == [repr(signal.getsignal(number)) for number in ENDING]
