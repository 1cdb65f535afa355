"""The demo shows both speeds, the workers, and a fleet that survives the death of one."""

from __future__ import annotations

import re

import pytest

from envfleet.cli.demo import Demo
from envfleet.errors import SettingsError


def test_a_worker_is_killed_and_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert Demo(n_envs=8, seconds=1.0, backend="processes").run() == 0

    shown = capsys.readouterr().out
    assert "nothing is learned" in shown
    assert re.search(r"sequential, one core +[\d,]+ +1\.00×", shown)
    assert re.search(r"processes, \d workers? +[\d,]+ +\d+\.\d\d×", shown)
    victim, replacement = re.findall(r"process (\d+)", shown)
    assert victim != replacement
    taken, untouched = map(
        int, re.findall(r"took over (\d+) environments?;(?s:.*) unaffected: (\d+) environments?\n", shown)[0]
    )
    assert taken > 0
    assert taken + untouched == 8


def test_no_process_no_kill(capsys: pytest.CaptureFixture[str]) -> None:
    assert Demo(n_envs=2, seconds=0.1, backend="threads").run() == 0
    shown = capsys.readouterr().out
    assert "killing" not in shown
    assert "\x1b" not in shown  # a pipe gets plain text
    assert shown.rstrip().endswith("fit for a fleet")


def test_no_time_is_refused() -> None:
    with pytest.raises(SettingsError, match="seconds is 0"):
        Demo(seconds=0).run()
