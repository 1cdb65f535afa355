"""Procgen's library: what the constructor says if it is missing."""

from __future__ import annotations

import platform
import sys

import pytest

from envfleet.environments.procgen.environment import ProcgenEnv
from envfleet.errors import MissingExtraError
from envfleet.extras import PROCGEN_MODULES


@pytest.fixture(autouse=True)
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in PROCGEN_MODULES:
        monkeypatch.setitem(sys.modules, module, None)


def set_system(monkeypatch: pytest.MonkeyPatch, system: str, processor: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: processor)


def test_the_command_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    set_system(monkeypatch, "linux", "x86_64")
    with pytest.raises(MissingExtraError, match="pip install --no-deps procgen"):
        ProcgenEnv("coinrun")


@pytest.mark.parametrize(("system", "processor"), [("darwin", "arm64"), ("linux", "aarch64"), ("win32", "AMD64")])
def test_a_system_without_a_package(monkeypatch: pytest.MonkeyPatch, system: str, processor: str) -> None:
    set_system(monkeypatch, system, processor)
    with pytest.raises(MissingExtraError, match=f"no package has .* for {system} on {processor}") as caught:
        ProcgenEnv("coinrun")
    assert "pip install" not in str(caught.value)
