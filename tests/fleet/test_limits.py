"""Which time limit applies: the step limit to steps, the longer one to building, resetting and restoring."""

from __future__ import annotations

import logging
import time
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet import EnvHungError, Timeouts
from envfleet.fleet.backends.processes import ProcessesBackend
from envfleet.fleet.backends.threads import ThreadsBackend
from tests.fleet.backends import use
from tests.fleet.simulators import Counter, HangsOnce, RaisesOnce
from tests.hanging import hang, take_long

SOME_BACKENDS = pytest.mark.parametrize("name", ["sequential", "threads", "spawn"])
ACTIONS = np.zeros(2, np.int64)
LONG = 1.2  # seconds; long enough for the step limit to be noticed
LIMITS = Timeouts(step=0.2, start=600.0)


class SlowReset(Counter):
    """Its second reset takes longer than a step may."""

    resets = 0

    def __init__(self, mark: Path) -> None:
        super().__init__(length=3)
        self.mark = mark

    def reset(self, **kwargs: Any) -> Any:
        self.resets += 1
        if self.resets == 2:
            with take_long(self.mark):
                time.sleep(LONG)
        return super().reset(**kwargs)


class SlowToBuildAgain(RaisesOnce):
    """Fails once, and then takes longer to rebuild than a step may."""

    def __init__(self, mark: Path) -> None:
        super().__init__(f"{mark}-once")
        if Path(self.flag).exists():
            with take_long(mark):
                time.sleep(LONG)


class HangsInReset(Counter):
    """Its second reset never ends."""

    resets = 0

    def __init__(self, mark: Path) -> None:
        super().__init__(length=2)
        self.mark = mark

    def reset(self, **kwargs: Any) -> Any:
        self.resets += 1
        if self.resets == 2:
            hang(self.mark)
        return super().reset(**kwargs)


@SOME_BACKENDS
@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_a_reset_inside_a_step_has_the_limit_of_resets(
    name: str, autoreset: str, monkeypatch: pytest.MonkeyPatch, limits_hold: Path
) -> None:
    fleet = envfleet.make(
        lambda: SlowReset(limits_hold), 1, timeout=LIMITS, autoreset=autoreset, **use(name, monkeypatch)
    )
    fleet.reset()
    for _ in range(5):
        infos = fleet.step(ACTIONS[:1])[4]
        assert "restarted" not in infos
    fleet.close()


@SOME_BACKENDS
def test_a_rebuild_inside_a_step_has_the_limit_of_resets(
    name: str, monkeypatch: pytest.MonkeyPatch, limits_hold: Path
) -> None:
    fleet = envfleet.make(
        lambda: SlowToBuildAgain(limits_hold), 1, timeout=LIMITS, on_error="restart", **use(name, monkeypatch)
    )
    fleet.reset()
    restarted = [bool(np.any(fleet.step(ACTIONS[:1])[4].get("restarted", False))) for _ in range(5)]
    assert restarted == [False, False, False, True, False]
    assert fleet.statistics().restarts == 0  # of workers: only the environment was restarted
    fleet.close()


def test_a_streaming_fleet_has_the_limit_of_steps_after_a_reset(
    limits_hold: Path, caplog: pytest.LogCaptureFixture
) -> None:
    makers = [lambda: HangsOnce(limits_hold, at=0), Counter]
    fleet = envfleet.make(makers, backend="processes", workers=2, timeout=Timeouts(step=1.0, start=600.0))
    fleet.reset()
    with caplog.at_level(logging.WARNING, logger="envfleet"):
        for env in (0, 1):
            fleet.send(ACTIONS[:1], [env])
        assert sorted(int(fleet.recv()[4]["env_id"][0]) for _ in range(2)) == [0, 1]
    assert "environment 0 did not return from its step within 1 s" in caplog.text
    fleet.close()


def test_a_reset_that_hangs_is_named_with_its_own_limit(
    caplog: pytest.LogCaptureFixture, limits_hold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Timeouts(step=600.0, start=1.0)
    makers = [lambda: HangsInReset(limits_hold), lambda: Counter(length=2)]
    give_workers_time_to_start(monkeypatch)
    fleet = envfleet.make(makers, backend="processes", workers=2, timeout=limits, autoreset="same_step")
    fleet.reset()
    fleet.step(ACTIONS)
    with caplog.at_level(logging.WARNING, logger="envfleet"):
        assert fleet.step(ACTIONS)[4]["restarted"][0]
    assert "environment 0 did not return from its reset within 1 s" in caplog.text
    fleet.close()


def give_workers_time_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengthen the wait for workers, since the limit of resets also applies to starting."""
    monkeypatch.setattr(ProcessesBackend, "hello", partialmethod(_late_hello, ProcessesBackend.hello))
    monkeypatch.setattr(ThreadsBackend, "hello", partialmethod(_late_hello, ThreadsBackend.hello))


def _late_hello(backend: Any, hello: Any, index: int, seconds: float | None) -> Any:
    return hello(backend, index, 600.0)


@pytest.mark.parametrize("name", ["sequential", "threads"])
def test_a_reset_that_hangs_and_cannot_be_killed(name: str, monkeypatch: pytest.MonkeyPatch, limits_hold: Path) -> None:
    limits = Timeouts(step=600.0, start=1.0)
    makers = [lambda: HangsInReset(limits_hold), Counter]
    give_workers_time_to_start(monkeypatch)
    fleet = envfleet.make(makers, timeout=limits, autoreset="same_step", **use(name, monkeypatch))
    fleet.reset()
    fleet.step(ACTIONS)
    with pytest.raises(EnvHungError, match="did not return within 1 s") as caught:
        fleet.step(ACTIONS)
    assert caught.value.context.operation == "reset"
    fleet.close()
