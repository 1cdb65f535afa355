"""A call that hangs, is interrupted or cannot be sent leaves no command pending."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet.fleet.waiting import Waiter
from tests.fleet.backends import BACKENDS, same
from tests.fleet.simulators import Counter, HangsOnce, Raises
from tests.hanging import hang

ACTIONS = np.zeros(4, np.int64)
ELSEWHERE = pytest.mark.parametrize("name", ["threads", "fork", "forkserver"])


class Calls(Counter):
    """Has methods to call: `slow` never returns."""

    def __init__(self, mark: Path | None = None) -> None:
        super().__init__()
        self.mark = mark

    def a(self) -> str:
        return "a"

    def b(self) -> str:
        return "b"

    def slow(self) -> None:
        assert self.mark is not None
        hang(self.mark)


class PressesCtrlC(Calls):
    """Raises KeyboardInterrupt in the caller's process, in the operation that is armed."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid, self.armed = pid, ""

    def press(self, operation: str) -> None:
        if self.armed == operation and os.getpid() == self.pid:
            raise KeyboardInterrupt

    def reset(self, **kwargs: Any) -> Any:
        self.press("reset")
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self.press("step")
        return super().step(action)

    def a(self) -> str:
        self.press("call")
        return super().a()


def make(env: Any, name: str, **settings: Any) -> envfleet.Fleet:
    return envfleet.make(env, 4, group_size=1, seed=10, **{**BACKENDS[name], **settings})


def interrupt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next wait for workers end as by Ctrl-C."""
    sleep = Waiter._sleep

    def interrupted(*_: Any) -> bool:
        monkeypatch.setattr(Waiter, "_sleep", sleep)
        raise KeyboardInterrupt

    monkeypatch.setattr(Waiter, "_sleep", interrupted)


@pytest.mark.parametrize("name", ["sequential", "threads"])
def test_a_call_that_hangs_breaks_a_fleet_that_cannot_kill_it(name: str, limits_hold: Path) -> None:
    fleet = make(lambda: Calls(limits_hold), name, timeout=envfleet.Timeouts(step=0.3))
    fleet.reset()
    with pytest.raises(envfleet.EnvHungError, match=r"within 0\.3 s.*during call of 'slow', seed 11"):
        fleet.call_at([1], "slow")
    for call in (fleet.reset, lambda: fleet.step(ACTIONS), lambda: fleet.call("a")):
        with pytest.raises(envfleet.ProtocolError, match="the fleet is broken\n"):
            call()
    fleet.close()


def test_a_call_that_hangs_is_not_repeated(processes: dict[str, Any], limits_hold: Path) -> None:
    timeouts = envfleet.Timeouts(step=0.3)
    with envfleet.make(lambda: Calls(limits_hold), 4, group_size=2, seed=10, timeout=timeouts, **processes) as fleet:
        fleet.reset()
        fleet.step(ACTIONS)
        with pytest.raises(envfleet.WorkerError, match="did not return from its call of 'slow' within") as caught:
            fleet.call_at([1], "slow")
        assert caught.value.hung
        assert fleet.call("b") == ("b",) * 4
        assert fleet.step(ACTIONS)[4]["restarted"].tolist() == [True, True, False, False]


def test_an_error_while_another_group_hangs(limits_hold: Path) -> None:
    environments = [lambda: Raises(at=0), lambda: HangsOnce(limits_hold, at=0), Counter, Counter]
    fleet = envfleet.make(environments, group_size=1, timeout=envfleet.Timeouts(step=0.3), **BACKENDS["threads"])
    fleet.reset()
    fleet.send(ACTIONS[:2], [0, 1])
    with pytest.raises(envfleet.EnvHungError, match=r"within 0\.3 s"):
        fleet.recv()
    with pytest.raises(envfleet.ProtocolError, match="the fleet is broken"):
        fleet.recv()
    fleet.close()


@ELSEWHERE
def test_the_answers_of_an_interrupted_call_are_dropped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(Calls, name) as fleet:
        fleet.reset()
        for interrupted in (lambda: fleet.call("a"), fleet.state, lambda: fleet.call("no such attribute")):
            interrupt_once(monkeypatch)
            with pytest.raises(KeyboardInterrupt):
                interrupted()
            assert fleet.call("b") == ("b",) * 4
        interrupt_once(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            fleet.call("a")
        assert fleet.step(ACTIONS)[0][:, 0].tolist() == [1] * 4  # the episodes continue
        interrupt_once(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            fleet.call("a")
        fleet.send(ACTIONS[:2], [0, 1])
        assert fleet.recv(2)[0][:, 0].tolist() == [2, 2]


@pytest.mark.parametrize("operation", ["step", "reset", "call"])
@pytest.mark.parametrize("name", ["sequential", "caller-run"])
def test_ctrl_c_inside_an_environment_makes_a_reset_necessary(name: str, operation: str) -> None:
    pid = os.getpid()
    with make(lambda: PressesCtrlC(pid), name) as fleet:
        calls = {"step": lambda: fleet.step(ACTIONS), "reset": fleet.reset, "call": lambda: fleet.call("a")}
        fleet.reset()
        for _ in range(2):
            fleet.step(ACTIONS)
            fleet.set_attr("armed", operation)
            with pytest.raises(KeyboardInterrupt):
                calls[operation]()
            with pytest.raises(envfleet.ProtocolError, match=r"call reset\(\) first"):
                fleet.step(ACTIONS)
            fleet.set_attr("armed", "")
            assert fleet.call("b") == ("b",) * 4
            assert fleet.reset()[0][:, 0].tolist() == [0] * 4
            assert fleet.step(ACTIONS)[0][:, 0].tolist() == [1] * 4


def test_a_list_that_cannot_be_sent_as_a_whole_is_not_sent_at_all() -> None:
    with make(Counter, "fork") as fleet:
        fleet.reset()
        observations = fleet.step(ACTIONS)[0]
        with pytest.raises(TypeError, match="pickle"):
            fleet.set_attr("offset", [1, 1, threading.Lock(), 1])
        with pytest.raises(TypeError, match="pickle"):
            fleet.reset(tasks=[1, 1, threading.Lock(), 1])
        assert same(fleet.newest_observations()[()], observations)
        assert 1 not in fleet.get_attr("offset")
        assert fleet.step(ACTIONS)[0][:, 0].tolist() == [2] * 4
        assert fleet.reset(tasks=[1, 2, 3, 4])[1]["task"].tolist() == [1, 2, 3, 4]
