"""The console: calm, with complete summaries, within 80 columns, and silent on request."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from envfleet.fleet.statistics import WorkerStatistics
from envfleet.runs.console import Console
from envfleet.runs.live_view import (
    ConsoleState,
    Curve,
    clock,
    counted,
    number,
    plain_line,
    short,
    shortened,
    sparkline,
    spread,
    view,
)
from tests.terminal import all_of

METRICS = {
    "rollout/ep_rew_mean": 187.25, "rollout/ep_len_mean": 190.0, "time/fps": 1000.0, "time/environment": 0.5,
    "time/acting": 0.25, "time/learning": 0.2, "time/waiting": 0.05, "train/approx_kl": 0.0123,
    "eval/mean_reward": 500.0,
}  # fmt: skip
HEALTH = [WorkerStatistics(0, 11, 0.9, 0, 100.0), WorkerStatistics(1, 12, 0.7, 2, 50.0)]


@dataclass
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now() -> Clock:
    return Clock()


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """Return a function that reads stderr since the last call; stdout must stay empty."""

    def look() -> list[str]:
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err.splitlines()

    return look


# ---- lines ----


def test_a_line_says_all_in_short() -> None:
    state = ConsoleState("t", 4000)
    state.take(1000, 2.0, METRICS, HEALTH)
    line = (
        " 25 %  1,000 steps  return 187.2  length 190  evaluation 500  1,000 steps/s  0:00:03 left  2 worker restarts"
    )
    assert plain_line(state, verbose=False) == line
    assert plain_line(state, verbose=True) == f"{line}  train/approx_kl 0.0123"


def test_lines_come_at_a_readable_pace_with_the_first_and_the_last(now: Clock, lines: Any) -> None:
    console = Console("t", budget_steps=1000, mode="lines", now=now)
    for step in range(1, 101):
        now.seconds = step / 16
        console.update(step, {})
    assert [line.split()[2] for line in lines()] == ["1", "33", "65", "97"]
    console.finish({"return": 3})
    assert lines() == [" 10 %  100 steps  16 steps/s  0:00:56 left", "", "  return  3"]


def test_the_last_line_is_not_said_twice(now: Clock, lines: Any) -> None:
    console = Console("t", budget_steps=None, mode="lines", now=now)
    console.update(5, {})
    assert lines() == ["5 steps"]
    console.close()
    console.close()
    assert lines() == []


def test_the_last_line_has_the_last_evaluation(now: Clock, lines: Any) -> None:
    console = Console("t", budget_steps=10, mode="lines", now=now)
    console.update(5, {"eval/mean_reward": 1.0}, share=0.5)
    assert lines() == [" 50 %  5 steps  evaluation 1"]
    now.seconds = 10.0
    console.update(10, {}, share=1.0)
    console.evaluated({"eval/mean_reward": 2.0})
    assert lines() == []
    console.close()
    assert lines() == ["100 %  10 steps  evaluation 2  0 steps/s  0:00:00 left"]


def test_own_numbers_are_in_the_line_and_the_view() -> None:
    state = ConsoleState("t", 4000)
    own = {f"info/{name}": 0.123 for name in ("forward", "a_rather_long_name_of_a_reward_term")}
    state.take(1000, 0.0, {"rollout/success_rate": 0.5, **own, "level": 3}, [])
    line = plain_line(state, verbose=False)
    assert "  success 50 %  forward 0.123  a_rather_long_name_of_a_reward_term 0.123  level 3" in line
    assert [line.plain for line in view(state, 80, verbose=False)[1:5]] == [
        "  success        50 %",
        "  forward       0.123",
        "  a_rather_lon…reward_term 0.123",
        "  level             3",
    ]


# ---- within a rollout ----


def test_the_lag_of_an_asynchronous_run_is_in_the_line() -> None:
    state = ConsoleState("t", 4000)
    lags = {"lag/mean": 1.5, "lag/p95": 2.0, "lag/max": 2.0, "lag/dropped_steps": 0.0}
    state.take(1000, 2.0, {**METRICS, **lags}, HEALTH)
    assert "  length 190  lag 1.5  evaluation 500  " in plain_line(state, verbose=False)
    state.take(2000, 3.0, {**METRICS, **lags, "lag/dropped_steps": 64.0}, HEALTH)
    assert "  lag 1.5  dropped 64  evaluation 500  " in plain_line(state, verbose=False)


def test_a_long_rollout_shows_its_progress_in_lines(now: Clock, lines: Any) -> None:
    console = Console("t", budget_steps=1000, mode="lines", now=now)
    looks = 0

    def so_far() -> tuple[int, float]:
        nonlocal looks
        looks += 1
        return round(now.seconds), now.seconds / 1000

    for tick in range(2500):
        now.seconds = tick / 100
        console.collecting(so_far)
    assert lines() == ["  1 %  10 steps  1 steps/s  0:16:30 left", "  2 %  20 steps  1 steps/s  0:16:20 left"]
    assert looks == 50  # twice a second, however often it is called
    console.update(30, {}, share=0.03)
    assert [line.split()[2] for line in lines()] == ["30"]


def test_a_quiet_run_does_not_look() -> None:
    Console("t", budget_steps=10, mode="quiet").collecting(lambda: pytest.fail("nobody sees it"))


def test_start_and_finish_explain(lines: Any) -> None:
    console = Console("CartPole-v1 · ppo", budget_steps=10, mode="lines")
    console.start([("backend", "threads", "2 cores"), ("n", "1", "")])
    assert lines() == ["CartPole-v1 · ppo", "  backend  threads  (2 cores)", "  n        1"]
    console.finish({"steps": 10, "evaluation": "500 ± 0"}, ["envfleet evaluate runs/x"])
    assert lines() == [
        "", "  steps       10", "  evaluation  500 ± 0", "next:", "  envfleet evaluate runs/x",
    ]  # fmt: skip


def test_quiet_says_errors_only(lines: Any) -> None:
    with closing(Console("t", budget_steps=10, mode="quiet")) as console:
        console.start([("a", "b", "c")])
        console.update(5, METRICS, HEALTH)
        console.say("hello")
        console.error("error: [disk] full")
        console.finish({"a": 1}, ["b"])
    assert lines() == ["error: [disk] full"]


def test_a_pipe_gets_lines(lines: Any) -> None:
    assert Console("t", budget_steps=10).mode == "lines"


# ---- the live view ----


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_view_fits_the_terminal(width: int) -> None:
    state = ConsoleState("t", 2_000_000_000)
    for step in range(100):
        state.take(1_234_567_890, 3.6e5 + step, {**METRICS, "rollout/ep_rew_mean": -98765.4321 * step}, HEALTH)
    for line in view(state, width, verbose=True):
        assert line.cell_len <= width


def test_the_view_shows_everything_at_80_columns() -> None:
    state = ConsoleState("t", 4000)
    taken = {"": 187.4, "_caller": 20.0, "_learner": 80.0, "_workers": 87.4, "_others": 12.0}
    system = {"system/memory_mb": 1234.5, **{f"system/cpu_percent{role}": value for role, value in taken.items()}}
    for step, score in enumerate((1.0, 2.0, 3.0, 10.0), start=1):
        state.take(250 * step, 2.0, {**METRICS, **system, "rollout/ep_rew_mean": score}, HEALTH)
    assert [line.plain.rstrip() for line in view(state, 80, verbose=True)] == [
        "  " + "━" * 9 + "╌" * 26 + "  25 %  1,000 of 4,000 steps  0:00:03 left",
        "  return           10  ▁▁▂█  best 10",
        "  length          190  ▄▄▄▄",
        "  evaluation      500",
        "  speed         1,000 steps/s",
        "  time       ██████████▓▓▓▓▓▒▒▒▒░  env 50 % act 25 % learn 20 % wait 5 %",
        "  workers           2  busy 80 %  150 MB  2 restarts",
        "  machine       187 %  caller 20, learner 80, workers 87  1,234 MB  others 12 %",
        "  train/approx_kl            0.0123",
    ]


def test_without_a_budget_the_view_counts() -> None:
    state = ConsoleState("t", None)
    state.take(0, 0.0, {"rollout/ep_rew_mean": float("nan")}, [])
    state.take(500, 5.0, {}, [])
    assert [line.plain for line in view(state, 80, verbose=False)] == [
        "  steps           500 in 0:00:05", "  speed           100 steps/s",
    ]  # fmt: skip
    assert plain_line(state, verbose=False) == "500 steps  100 steps/s"


def test_a_resumed_run_measures_its_own_speed() -> None:
    state = ConsoleState("t", 2000)
    state.take(1000, 0.0, {}, [])
    assert state.seconds_left is None
    state.take(1100, 1.0, {}, [])
    assert (state.steps_per_second, state.seconds_left) == (100.0, 9.0)


def test_the_time_left_follows_a_change_of_pace() -> None:
    state = ConsoleState("t", 10_000)
    state.take(0, 0.0, {}, [], spent=0.0)
    for second in range(1, 6):  # a start without updates: 1,000 steps in 5 s
        state.take(200 * second, float(second), {}, [], spent=0.02 * second)
    assert state.seconds_left == pytest.approx(45.0)
    for second in range(6, 41):  # then 10 steps per second
        step = 1_000 + 10 * (second - 5)
        state.take(step, float(second), {}, [], spent=step / 10_000)
    assert state.seconds_left == pytest.approx((10_000 - 1_350) / 10)


def in_terminal(program: str, columns: int) -> str:
    """Return what a program draws on a pseudo-terminal."""
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stderr=theirs, stdin=theirs, stdout=subprocess.PIPE, env=environment, text=True
    )
    os.close(theirs)
    drawn = all_of(ours)
    assert process.stdout is not None
    assert process.stdout.read() == "data\n"
    process.stdout.close()
    assert process.wait() == 0
    return drawn


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals of this kind")
def test_in_a_terminal_the_view_is_drawn_at_most_four_times_a_second() -> None:
    drawn = in_terminal(
        """
from envfleet.runs.console import Console
seconds = 0.0
console = Console("t", budget_steps=1000, now=lambda: seconds)
assert console.mode == "live"
for step in range(100):
    seconds = step * 0.01
    console.update(step, {"rollout/ep_rew_mean": float(step)})
    if step == 50:
        console.say("a word [red]between[/red]")
        print("data")
console.finish({"return": 99})
""",
        80,
    )
    assert "a word [red]between[/red]" in drawn
    assert drawn.count("speed") <= 4 + 2 + 1  # four in that second, two around the message, and the last
    assert "return           99" in re.sub(r"\x1b\[[\d;]*m", "", drawn)
    assert drawn.rstrip().endswith("return  99")
    assert drawn.rfind("\x1b[?25h") > drawn.rfind("\x1b[?25l")  # the cursor is visible again


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Fake as much of a notebook with ipywidgets as rich needs; return what it displays."""
    from rich import jupyter

    shown: list[Any] = []

    class Output:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...
        def clear_output(self, wait: bool = False) -> None:
            shown.append("cleared")

    display = ModuleType("IPython.display")
    display.display = shown.append  # type: ignore[attr-defined]
    widgets = ModuleType("ipywidgets")
    widgets.Output = Output  # type: ignore[attr-defined]
    widgets.__spec__ = ModuleSpec("ipywidgets", None)
    modules = {"IPython": ModuleType("IPython"), "IPython.display": display, "ipywidgets": widgets}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(jupyter, "display", lambda segments, text: shown.append(text))
    return shown


def test_in_a_notebook_the_view_is_drawn_in_its_output(notebook: list[Any], lines: Any, now: Clock) -> None:
    console = Console("t", budget_steps=100, now=now)
    assert console.mode == "live"
    console.start([("backend", "threads", "2 cores")])
    console.update(50, METRICS)
    now.seconds = 1.0
    console.update(60, METRICS)
    console.say("a word [red]between[/red]")
    console.finish({"return": 99})
    drawn = [text for text in notebook if isinstance(text, str)]
    assert any("60 of 100 steps" in text for text in drawn)
    assert any("a word [red]between[/red]" in text for text in drawn)
    assert "\x1b[?25h" not in "".join(lines())


def test_a_notebook_without_widgets_gets_lines(notebook: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envfleet.runs.console.find_spec", lambda name: None)
    assert Console("t", budget_steps=100).mode == "lines"


# ---- numbers ----


def test_a_curve_keeps_its_whole_course_in_bounded_memory() -> None:
    curve = Curve()
    for value in range(100_001):
        curve.add(float(value))
    values = curve.values()
    assert len(values) <= 513
    assert (curve.latest, curve.best) == (100_000, 100_000)
    assert values == sorted(values)
    assert sparkline(values, 8) == "▁▂▃▄▅▆▇█"


def test_sparklines() -> None:
    assert sparkline([], 8) == ""
    assert sparkline([5.0], 8) == "▄"
    assert sparkline([0, 1, 0], 8) == "▁█▁"
    assert sparkline([0, 2, 10, 12], 2) == "▁█"
    assert sparkline([1.0, float("inf")], 8) == "▄▄"


def test_numbers_for_people() -> None:
    values = (0.0, 500.0, 187.26, 0.00012345, -3.14159, 12345.6, 1.5e9, float("nan"))
    assert [number(value) for value in values] == [
        "0", "500", "187.3", "0.000123", "-3.14", "12,346", "1.5e+09", "nan",
    ]  # fmt: skip
    assert [clock(seconds) for seconds in (0, 61.9, 36_000, 864_000)] == ["0:00:00", "0:01:02", "10:00:00", "10 days"]
    assert [short(count) for count in (999, 9_999_999, 12_500_000, 20_000_000_000)] == [
        "999", "9,999,999", "12.5 M", "20.0 G",
    ]  # fmt: skip


def test_a_mean_and_its_spread_have_digits_for_their_size() -> None:
    pairs = [(187.26, 12.3), (500.0, 0.0), (9.314, 0.1), (0.934, 0.021), (0.0, 0.0), (0.00934, 0.0002), (0.5, 30.0)]
    assert [spread(*pair) for pair in pairs] == [
        "187.3 ± 12.3", "500.0 ± 0.0", "9.31 ± 0.10", "0.934 ± 0.021", "0.00 ± 0.00", "0.00934 ± 0.00020", "0.5 ± 30.0",
    ]  # fmt: skip
    assert [counted(count, "episode") for count in (0, 1, 2000)] == ["0 episodes", "1 episode", "2,000 episodes"]


def test_a_long_name_keeps_its_ends() -> None:
    assert [shortened("abcdefgh", width) for width in (8, 7, 4)] == ["abcdefgh", "abc…fgh", "ab…h"]


def test_choices_fit_the_terminal() -> None:
    from envfleet.runs.console import _choice_lines

    choices = [
        ("backend", "processes", "2 workers started by spawn; 2 usable cores; never changes a result"),
        ("folder", "runs/here", ""),
    ]
    wide = _choice_lines(choices, 10_000)
    assert wide[0].endswith("processes  (2 workers started by spawn; 2 usable cores; never changes a result)")
    assert wide[1] == "  folder   runs/here"
    for width in (60, 40):
        lines = _choice_lines(choices, width)
        assert max(map(len, lines)) <= width
        assert " ".join(" ".join(lines).split()) == " ".join(" ".join(wide).split())  # nothing is lost
