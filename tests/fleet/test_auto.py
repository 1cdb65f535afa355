"""The choices of `auto`, and that the requested number of workers is used."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import envfleet
from envfleet.fleet import auto, timing
from envfleet.fleet.auto import StepCost, choose, measure
from envfleet.fleet.random_actions import RandomAgent
from envfleet.fleet.spec import default_group_count, stepping_group_count
from tests.fleet.backends import same, trace
from tests.fleet.simulators import Counter, HangsOnce, Raises


def computed(seconds: float) -> StepCost:
    return StepCost(seconds, seconds)


def waited(seconds: float, cpu_seconds: float = 50e-6) -> StepCost:
    return StepCost(seconds, cpu_seconds, waits=True)


@pytest.mark.parametrize(
    ("cost", "n_envs", "cores", "backend", "workers"),
    [
        (computed(10e-6), 8, 2, "sequential", 1),
        (computed(10e-6), 64, 2, "processes", 2),
        (computed(2e-3), 4, 2, "processes", 2),  # one acting group, but every core steps
        (computed(2e-3), 2, 2, "processes", 2),
        (computed(2e-3), 6, 4, "processes", 3),  # three workers with two each; four would be no faster
        (computed(2e-3), 8, 16, "processes", 8),
        (computed(20e-3), 4, 2, "processes", 4),  # long enough for the OS to balance them
        (computed(20e-3), 16, 2, "processes", 8),
        (computed(1.0), 64, 1, "sequential", 1),
        (waited(20e-3), 8, 2, "processes", 8),  # more workers than cores
        (waited(20e-3), 8, 1, "processes", 8),
        (waited(20e-3, 10e-3), 16, 2, "processes", 4),  # half of the step is computed
        (waited(20e-3), 500, 2, "processes", 63),  # eight environments each, not 500 processes
        (waited(50e-6, 10e-6), 2, 2, "sequential", 1),
    ],
)
def test_backend_and_workers_by_cost(cost: StepCost, n_envs: int, cores: int, backend: str, workers: int) -> None:
    choice = choose(cost, n_envs, cores)
    assert (choice.backend, choice.workers) == (backend, workers), choice.reason


@pytest.mark.parametrize(
    ("cost", "n_envs", "groups", "acting", "workers"),
    [
        (computed(10e-6), 8, 2, "worker", 2),
        (computed(20e-3), 8, 2, "worker", 2),  # every core already steps and acts
        (computed(2e-3), 4, 1, "central", 2),
        (computed(20e-3), 4, 1, "central", 4),
        (waited(20e-3), 16, 4, "central", 16),
        (computed(10e-6), 4, 1, "worker", 1),
    ],
)
def test_who_acts_by_cost(cost: StepCost, n_envs: int, groups: int, acting: str, workers: int) -> None:
    choice = choose(cost, n_envs, 2, groups=groups)
    assert (choice.acting, choice.workers) == (acting, workers), choice.reason


def test_the_number_of_workers_that_was_asked_for_is_kept_within_what_has_work() -> None:
    assert choose(computed(20e-3), 8, 2, workers=5).workers == 5
    assert choose(computed(20e-3), 8, 2, workers=50).workers == 8
    assert choose(computed(20e-3), 8, 2, workers=8, most=4).workers == 4


@pytest.mark.parametrize(("n_envs", "workers"), [(1, 1), (4, 2), (4, 4), (6, 3), (8, 2), (16, 16), (64, 3), (500, 7)])
def test_every_worker_has_as_many_groups_as_the_others(n_envs: int, workers: int) -> None:
    groups = stepping_group_count(n_envs, workers)
    assert groups <= n_envs
    assert groups >= default_group_count(n_envs)
    assert groups % workers == 0 or groups == n_envs


class Busy(Counter):
    def step(self, action: Any) -> Any:
        until = time.process_time() + 2e-3
        while time.process_time() < until:
            pass
        return super().step(action)


class Waiting(Counter):
    def step(self, action: Any) -> Any:
        time.sleep(5e-3)
        return super().step(action)


def test_steps_that_wait_are_told_from_steps_that_compute() -> None:
    """Load slows both down, but only a waiting step gives up its core."""
    busy, waiting = measure(Busy(), 1, 1), measure(Waiting(), 1, 1)
    assert not busy.waits
    assert busy.seconds >= 2e-3
    assert waiting.waits
    assert waiting.seconds >= 5e-3 > waiting.cpu_seconds
    assert "of it computed" in str(waiting) and "of it computed" not in str(busy)


def test_a_queue_for_the_core_is_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that others keep from its core, and that gave up the core now and then, as for Python's own lock."""
    clock = SimpleNamespace(seconds=0.0)

    class Queued(Counter):
        def step(self, action: Any) -> Any:
            clock.seconds += 0.028  # of which 2 ms were computed
            return super().step(action)

    clocks = SimpleNamespace(perf_counter=lambda: clock.seconds, process_time=lambda: clock.seconds * 2 / 28)
    for module in (auto, timing):
        monkeypatch.setattr(module, "time", clocks)
    monkeypatch.setattr(auto, "voluntary_switches", lambda: int(clock.seconds * 100))
    monkeypatch.setattr(timing, "queued_seconds", lambda: 0.0)
    assert measure(Queued(), 1, 1).waits
    monkeypatch.setattr(timing, "queued_seconds", lambda: clock.seconds * 26 / 28)
    cost = measure(Queued(), 1, 1)
    assert not cost.waits
    assert cost.seconds == pytest.approx(2e-3)


def test_the_fastest_of_several_parts_counts_within_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = SimpleNamespace(seconds=0.0), []
    parts = iter([timing.Timing(200, 0.02, 0.02), timing.Timing(200, 0.01, 0.01), timing.Timing(200, 0.07, 0.07)])

    def part(advance: Any, seconds: float, most_steps: int) -> timing.Timing:
        asked.append((seconds, most_steps))
        found = next(parts)
        clock.seconds += found.seconds
        return found

    monkeypatch.setattr(auto, "time", SimpleNamespace(perf_counter=lambda: clock.seconds))
    monkeypatch.setattr(auto, "timed", part)
    assert measure(Counter(), 1, 1).seconds == pytest.approx(0.01 / 200)
    assert asked == [(pytest.approx(left), 200) for left in (0.1, 0.08, 0.07)]


def test_the_resets_count_too() -> None:
    calls: list[str] = []

    class Short(Counter):
        def reset(self, **given: Any) -> Any:
            calls.append("reset")
            return super().reset(**given)

        def step(self, action: Any) -> Any:
            calls.append("step")
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, calls.count("step") % 2 == 0, truncated, info

    advance = auto._player(Short(), RandomAgent(Counter().action_space, 1), None)
    assert [advance() for _ in range(3)] == [1, 1, 1]
    assert calls == ["reset", "step", "step", "reset", "step"]


def test_workers_are_honoured_or_the_line_says_what_limits_them(capfd: pytest.CaptureFixture[str]) -> None:
    for n_envs, workers, there in ((4, 4, 4), (6, 3, 3), (4, 9, 4)):
        with envfleet.make(Counter, n_envs, workers=workers, backend="threads") as fleet:
            assert fleet.workers == there
    said = capfd.readouterr().err
    assert said == "envfleet: 4 environments on threads: 4 workers, not 9: there are 4 environments\n"
    with envfleet.make(Counter, 8, workers=4, group_size=4, backend="threads") as fleet:
        assert fleet.workers == 2
    assert "2 workers, not 4: there are 2 groups of environments" in capfd.readouterr().err
    envfleet.make(Counter, 4, workers=2, group_size=4, backend="threads").close()
    assert "1 worker, not 2: there is 1 group of environments" in capfd.readouterr().err


def test_the_number_of_workers_changes_no_byte() -> None:
    results = []
    for workers in (1, 2, 3, 7):
        with envfleet.make(Counter, 7, workers=workers, backend="threads", quiet=True, seed=1) as fleet:
            results.append(trace(fleet, 25, seed=3))
    assert all(same(results[0], other) for other in results[1:])


def test_auto_says_what_it_chose_and_why(capfd: pytest.CaptureFixture[str]) -> None:
    fleet = envfleet.make(Counter, 4, seed=1)
    said = capfd.readouterr().err
    assert said.startswith(f"envfleet: 4 environments on {fleet.backend}: a step takes ")
    assert said.count("\n") == 1
    fleet.close()
    envfleet.make(Counter, 4, seed=1, quiet=True).close()
    assert not capfd.readouterr().err


def test_an_environment_that_cannot_be_sent_is_timed_here() -> None:
    lock = threading.Lock()

    def build() -> Any:
        with lock:
            return Counter()

    with envfleet.make(build, 4, quiet=True) as fleet:
        fleet.reset()
        assert fleet.step(np.zeros(4, np.int64))[0].shape == (4, 3)


def test_auto_reports_an_environment_that_fails() -> None:
    def build() -> Any:
        raise RuntimeError("no engine")

    with pytest.raises(envfleet.EnvError, match="no engine"):
        envfleet.make(build, 4)


def test_auto_says_where_the_environment_fails() -> None:
    with pytest.raises(envfleet.EnvError, match="during measure"):
        envfleet.make(lambda: Raises(at=0), 4)


class NeedsTask(Counter):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options is not None and options["task"] >= 5
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("tasks", [[5, 6, 7, 8], lambda rng: int(rng.integers(5, 9))])
def test_an_environment_is_timed_with_its_task(tasks: Any) -> None:
    with envfleet.make(NeedsTask, 4, tasks=tasks, quiet=True) as fleet:
        assert fleet.reset()[1]["task"].min() >= 5


def test_an_environment_that_may_fail_runs_in_processes(capfd: pytest.CaptureFixture[str]) -> None:
    with envfleet.make(lambda: Raises(at=0), 4, workers=2, on_error="restart") as fleet:
        assert (fleet.backend, fleet.workers) == ("processes", 2)
    assert "on processes: a step could not be timed: ValueError: the engine exploded\n" in capfd.readouterr().err


def test_an_environment_that_hangs_while_it_is_timed_runs_in_processes(
    limits_hold: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    timeouts = envfleet.Timeouts(step=0.3)
    with envfleet.make(lambda: HangsOnce(limits_hold, at=0), 4, workers=2, timeout=timeouts) as fleet:
        assert fleet.backend == "processes"
        fleet.reset()
        assert fleet.step(np.zeros(4, np.int64))[0][:, 0].tolist() == [1] * 4
    assert "environment 0 did not return from its measure within 0.3 s" in capfd.readouterr().err


def test_one_environment_is_not_timed(capfd: pytest.CaptureFixture[str]) -> None:
    envfleet.make(Counter, 1, seed=1).close()
    expected = "envfleet: 1 environment on sequential: one worker, so other processes could not help\n"
    assert capfd.readouterr().err == expected
