"""Packages that register environments on import, and environments defined in scripts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import envfleet
from envfleet import extras
from envfleet.errors import MissingExtraError, SettingsError
from envfleet.training.environment import named_environment

PLUGIN = """
import gymnasium
from tests.fleet.simulators import Counter

class Game(Counter):
    pass

for number in range(20):
    gymnasium.register(f"Arcade/Game{number}-v0", entry_point="arcade_plugin:Game")
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that acts as a well-known installed package; everything is cleaned up afterwards."""
    file = tmp_path / "arcade_plugin.py"
    file.write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(extras._PROVIDERS, "Arcade/.*", ("arcade_plugin", "arcade-plugin"))
    yield file
    sys.modules.pop("arcade_plugin", None)
    for name in [name for name in gymnasium.registry if name.startswith("Arcade/")]:
        del gymnasium.registry[name]


@pytest.mark.usefixtures("plugin")
def test_a_known_package_is_imported_for_its_id_and_workers_are_silent(capfd: pytest.CaptureFixture[str]) -> None:
    """Workers get the ids from the caller, then import the package, which registers them again."""
    fleet = envfleet.make("Arcade/Game3-v0", 2, backend="processes", workers=2, start_method="spawn")
    fleet.reset()
    fleet.close()
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("plugin")
def test_the_command_line_knows_it_too() -> None:
    assert named_environment("Arcade/Game3-v0") == "Arcade/Game3-v0"
    assert "Arcade/Game3-v0" in gymnasium.registry


@pytest.mark.usefixtures("plugin")
def test_check_knows_it_too() -> None:
    assert envfleet.check("Arcade/Game4-v0", steps=20).ok


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ale_py", "minigrid"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(gymnasium.registry, "ALE/Pong-v5", raising=False)
    with pytest.raises(MissingExtraError, match=r'needs ale_py, which is not.*\n.*pip install "envfleet\[atari\]"'):
        envfleet.make("ALE/Pong-v5", 2)
    with pytest.raises(MissingExtraError, match=r"needs minigrid, which is not installed\nhint: pip install minigrid"):
        envfleet.make("MiniGrid-Empty-5x5-v0", 2)


def test_a_package_that_cannot_be_imported_is_named(plugin: Path) -> None:
    plugin.write_text("import there_is_no_such_module")
    with pytest.raises(SettingsError, match=r"needs arcade_plugin, which cannot be imported: .*no_such_module"):
        envfleet.make("Arcade/Game3-v0", 2)


def test_an_id_that_nobody_knows_names_the_way() -> None:
    with pytest.raises(SettingsError, match="hint: name the module that registers it: module:Qqq/Xyz-v0"):
        envfleet.make("Qqq/Xyz-v0", 2)


ATARI = """
import envfleet
fleet = envfleet.make("ALE/Pong-v5", 2, backend="processes", workers=2, quiet=True)
print(fleet.reset()[0].shape)
fleet.close()
"""


def test_atari(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    (tmp_path / "script.py").write_text(ATARI)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "(2, 210, 160, 3)\n", done.stderr
    assert "Overriding" not in done.stderr
