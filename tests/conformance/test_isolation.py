"""An environment that crashes, hangs or exits its process is reported with the call that it was in."""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from envfleet.conformance import examine, isolation
from envfleet.conformance.announcement import Announcement
from envfleet.conformance.report import own_stack
from envfleet.errors import EnvContext, EnvHungError
from tests.conformance.worlds import Walk, assert_problem, check


class Exits(Walk):
    def step(self, action: Any) -> Any:
        if self.taken == 4:
            os._exit(3)
        return super().step(action)


class Segfaults(Walk):
    def reset(self, **options: Any) -> Any:
        crash()


def crash() -> None:
    ctypes.string_at(0)


class ExitsWhenBuilt(Walk):
    def __init__(self) -> None:
        os._exit(0)


class Hangs(Walk):
    def step(self, action: Any) -> Any:
        wait_for_the_simulator()


def wait_for_the_simulator() -> None:
    time.sleep(600)


@pytest.mark.parametrize(
    ("env", "what"),
    [
        (Exits, "step 5 ended its process: it exited with code 3 (in: random play)"),
        (ExitsWhenBuilt, "building the environment ended its process: it exited with code 0 (in: building)"),
    ],
)
def test_an_environment_that_ends_its_process(env: type[Walk], what: str) -> None:
    report = examine(env, steps=20, seconds=600)
    assert not report.ok
    assert_problem(report, "error", what, "let no code of the environment end its process")


def test_an_environment_that_crashes() -> None:
    report = examine(Segfaults, steps=20, seconds=600)
    what = "the reset before step 1 ended its process: it was ended by SIGSEGV (in: random play)"
    assert_problem(report, "error", what, "an error in native code where the stack shows")
    outer, inner, _ = report.problems[0].traceback.splitlines()
    assert "in reset" in outer
    assert "in crash" in inner


def test_what_was_found_before_is_kept() -> None:
    class LateExit(Exits):
        metadata = {}

    report = examine(LateExit, steps=20, seconds=600)
    assert [problem.severity for problem in report.problems] == ["warning", "error"]
    assert report.observation_space == Walk().observation_space
    assert any("building it takes" in note for note in report.notes)


def test_an_environment_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "LEAST_PATIENCE", 2.0)
    report = examine(Hangs, steps=20, seconds=1.0)
    what = "step 1 has not returned for 2 s (in: random play)"
    assert_problem(report, "error", what, "give the check more time: --seconds 20, or check(env, seconds=20)")
    *_, outer, inner = report.problems[0].traceback.splitlines()
    assert "in step" in outer
    assert "in wait_for_the_simulator" in inner


class _FailingFleet:
    """A fleet in this process whose environment hangs in the third call."""

    backend = "sequential"

    def __init__(self, examination: Any, announcement: Any) -> None:
        self._host, self._calls = isolation._Host(examination, announcement), 0

    def __enter__(self) -> _FailingFleet:
        return self

    def __exit__(self, *error: object) -> None:
        self._host.close()

    def call(self, name: str) -> Any:
        self._calls += 1
        if self._calls == 3:
            raise EnvHungError("an environment did not return", EnvContext(0, "step"), original="")
        return (getattr(self._host, name)(),)


def test_one_that_hangs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Closing(Walk):
        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(isolation, "SECONDS_BETWEEN_REPORTS", 0.0)
    monkeypatch.setattr(isolation, "_fleet_of", lambda *parts, **_: _FailingFleet(*parts[:2]))
    report = check(Closing)
    assert_problem(report, "error", "a look at its spaces has not returned for 600 s (in: the interface)", "seconds=")
    assert len(closed) == 1


def test_sys_exit_is_an_exception_like_others() -> None:
    class Leaves(Walk):
        def step(self, action: Any) -> Any:
            sys.exit(3)

    assert_problem(check(Leaves), "error", "step raised SystemExit", "step must not raise")


def test_a_process_of_its_own_sees_the_same() -> None:
    """The report is the same in this process and in another, except for the figures and the place."""
    there, here = examine("CartPole-v1", steps=24, seconds=600), check("CartPole-v1")
    assert there.problems == here.problems == ()
    assert (there.steps, there.resumable, there.skipped) == (here.steps, here.resumable, here.skipped)
    assert there.observation_space == here.observation_space
    assert not any("in this process" in note for note in there.notes)
    assert any("it was examined in this process" in note for note in here.notes)


def test_what_cannot_be_sent_is_examined_in_this_process() -> None:
    lock, builders = threading.Lock(), []

    def build() -> Walk:
        with lock:
            builders.append(os.getpid())
            return Walk()

    report = examine(build, steps=20, seconds=600)
    assert_problem(report, "warning", "cannot be sent to worker processes", "inside the factory")
    assert set(builders) == {os.getpid()}
    assert any("it was examined in this process" in note for note in report.notes)


def test_what_is_done_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "SECONDS_BETWEEN_REPORTS", 0.0)
    seen: list[tuple[str, str]] = []
    check(Walk, steps=5, show=lambda doing: seen.append((doing.examination, doing.call)))
    assert seen[0] == ("building", "building the environment")
    assert ("random play", "step 5") in seen
    assert ("the same seed again", "step 5") in seen
    assert ("closing", "close") in seen


def test_steps_are_not_reported_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report costs a switch between two processes, much more than the step of a fast environment."""
    monkeypatch.setattr(isolation, "SECONDS_BETWEEN_REPORTS", 3600.0)
    seen: list[Any] = []
    report = check(Walk, steps=500, show=seen.append)
    assert report.steps == 500
    assert len(seen) < 20


def test_an_announcement_is_read_after_its_writer_is_gone() -> None:
    announcement = Announcement()
    assert announcement.read() == ""
    writer = pickle.loads(pickle.dumps(announcement))
    announcement.remove_file()
    writer.write("step 1" + "0" * 10_000)
    writer.write("step 12 ü")
    del writer
    assert announcement.read() == "step 12 ü"


def test_a_check_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[list[Path]] = []
    assert check(Walk, show=lambda _: seen.append([*tmp_path.iterdir()])).ok
    assert seen and not any(seen)  # not even while it runs: a killed check leaves nothing either
    monkeypatch.setattr(isolation, "_fleet_of", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        check(Walk)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("innermost_first", [True, False])
def test_only_the_users_part_of_a_stack_is_shown(innermost_first: bool) -> None:
    ours = isolation.__file__
    frames = [f'  File "{path}", line 1 in f' for path in ("caller.py", ours, "env.py", "simulator.py")]
    stack = "\n".join(frames)
    if innermost_first:
        thread = "\n".join(["Thread 0x1 (most recent call first):", *frames[::-1]])
        stack = f'Thread 0x0 (most recent call first):\n  File "other.py", line 1 in g\n\n{thread}\n'
    assert own_stack(stack).splitlines() == frames[2:]
    assert own_stack("nothing of ours") == ""
