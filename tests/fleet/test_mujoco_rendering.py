"""MuJoCo's renderer on a machine without a screen."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

import envfleet
from envfleet.fleet.mujoco_rendering import render_without_screen
from tests.training.envs import Drawn

pytest.importorskip("mujoco")


@pytest.fixture
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")  # so that it is restored, whatever the test sets
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "platform", "linux")


@pytest.mark.usefixtures("no_screen")
@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, "egl"),
        ({"MUJOCO_GL": ""}, "egl"),
        ({"MUJOCO_GL": "osmesa"}, "osmesa"),
        ({"DISPLAY": ":0"}, None),
        ({"WAYLAND_DISPLAY": "wayland-0"}, None),
    ],
)
def test_egl_is_chosen_without_a_screen(
    given: dict[str, str], chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mujoco  # noqa: F401  # without it, there is nothing to choose

    for name, value in given.items():
        monkeypatch.setenv(name, value)
    render_without_screen()
    assert os.environ.get("MUJOCO_GL") == chosen


@pytest.mark.usefixtures("no_screen")
def test_other_systems_and_other_simulators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "mujoco", raising=False)
        render_without_screen()
    monkeypatch.setattr(sys, "platform", "darwin")
    render_without_screen()
    assert "MUJOCO_GL" not in os.environ


@pytest.mark.usefixtures("no_screen")
@pytest.mark.parametrize(("arguments", "chosen"), [({"render_mode": "rgb_array"}, "egl"), ({}, None)])
def test_only_environments_that_render_choose(arguments: dict[str, Any], chosen: str | None) -> None:
    import mujoco  # noqa: F401

    with envfleet.make(Drawn, 1, backend="sequential", env_kwargs=arguments):
        assert os.environ.get("MUJOCO_GL") == chosen
