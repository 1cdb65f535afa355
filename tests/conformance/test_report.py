"""Contents of a report: the user's own tracebacks, notes on the given environment or factory, readable text."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest

from envfleet.errors import EnvError, EnvfleetError, MissingExtraError, SettingsError
from tests.conformance.worlds import Endless, Walk, assert_problem, check, raising, returning


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("__init__", "building the environment"),
        ("reset", "reset"),
        ("step", "step"),
        ("render", "render"),
        ("close", "close"),
    ],
)
def test_an_environment_that_raises_shows_its_own_traceback(operation: str, name: str) -> None:
    kwargs = {"render_mode": "rgb_array"} if operation == "render" else None
    report = check(raising(operation), env_kwargs=kwargs)
    assert_problem(report, "error", f"{name} raised ZeroDivisionError", "fix what the traceback shows")
    traceback = report.problems[0].traceback
    assert "return 1 / len(arguments * 0)" in traceback
    assert "ZeroDivisionError: division by zero" in traceback
    assert traceback.count("File ") == 1  # none of ours


def test_wrappers_are_left_out_of_the_traceback() -> None:
    report = check(lambda: gymnasium.wrappers.TimeLimit(raising("step")(), 10))
    assert report.problems[0].traceback.count("File ") == 1


@pytest.mark.parametrize(
    ("error", "what", "fix"),
    [
        (MissingExtraError("it needs x", hint="pip install x"), "it needs x", "pip install x"),
        (SettingsError("there is no mode 'a'"), "there is no mode 'a'", "change what the message names"),
        (
            SettingsError("it has 2 problems:\n  x: got 1\n  y: got 2"),
            "it has 2 problems: x: got 1; y: got 2",
            "change",
        ),
    ],
)
def test_errors_of_our_own_environments_explain_themselves(error: EnvfleetError, what: str, fix: str) -> None:
    def build() -> Walk:
        raise error

    report = check(build)
    assert_problem(report, "error", f"building the environment failed: {what}", fix)
    assert report.problems[0].traceback == ""
    assert "hint:" not in str(report) and "traceback" not in str(report).lower()


def test_an_environment_that_raises_is_still_closed() -> None:
    closed = []

    class Raising(raising("step")):  # type: ignore[misc]
        def close(self) -> None:
            closed.append(self)

    check(Raising)
    assert len(closed) == 2  # the second call is part of the check


# --------------------------------------------------------------------------------------- factories and report


def test_a_factory_that_cannot_be_pickled() -> None:
    lock = threading.Lock()

    def build() -> Walk:
        with lock:
            return Walk()

    assert_problem(check(build), "warning", "cannot be sent to worker processes: TypeError", "inside the factory")


def test_a_given_environment_stays_open_and_is_noted() -> None:
    closed = []

    class Closing(Walk):
        def close(self) -> None:
            closed.append(self)

    report = check(Closing())
    assert report.problems == ()
    assert closed == []
    assert any("not a factory" in note for note in report.notes)


def test_a_state_that_is_no_plain_data_is_noted() -> None:
    class Secretive(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.secret = iter(range(10**9))

    report = check(Secretive)
    assert report.resumable is False
    assert any("resume starts fresh episodes: Secretive.secret" in note for note in report.notes)


def test_a_state_that_raises_is_an_error_of_the_environment() -> None:
    class Broken(Walk):
        def get_state(self) -> Any:
            raise ZeroDivisionError("in get_state")

        def set_state(self, state: Any) -> None:
            pass

    assert_problem(check(Broken), "error", "giving its state raised ZeroDivisionError", "fix what the traceback")


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(SettingsError, match="steps is 0"):
        check(Walk, steps=0)
    with pytest.raises(SettingsError, match="already built"):
        check(Walk(), env_kwargs={"render_mode": None})
    with pytest.raises(SettingsError, match="did you mean CartPole-v1"):
        check("CartPol-v1")
    with pytest.raises(SettingsError, match="v99"):
        check("CartPole-v99")


def test_errors_can_be_raised_with_the_whole_report() -> None:
    check(Walk).raise_for_errors()
    check(Endless, steps=20).raise_for_errors()  # only a warning
    report = check(returning(reward=lambda env: np.nan), seed=4)
    with pytest.raises(EnvError, match="the reward is nan") as caught:
        report.raise_for_errors()
    assert caught.value.context.seed == 4


def test_the_report_reads_well() -> None:
    report = check(returning(reward=lambda env: None, terminated=lambda env: 0), steps=20)
    lines = str(report).splitlines()
    assert lines[0] == "returning.<locals>.Changed: not ok, 2 errors and 1 warning"
    assert lines[2] == "error: terminated is 0 (an int), expected a bool"
    assert lines[3] == "  fix: return bool(terminated) from step"
    assert max(map(len, lines)) < 80
    kinds = [line.split(":")[0] for line in lines[1:] if line and not line.startswith(" ")]
    assert kinds == ["error", "error", "warning", *["note"] * len(report.notes)]
