"""Paths as users write them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from envfleet.algorithms.settings import DQN, PPO
from envfleet.environments.gameboy.game_files import GAMES_FOLDER, load_game
from envfleet.fleet.cluster import ClusterSettings
from envfleet.paths import expanded


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_leading_tilde_is_the_home_folder(home: Path) -> None:
    assert expanded("~/runs") == expanded(Path("~/runs")) == home / "runs"
    assert expanded("a/~/b") == Path("a/~/b")


def test_a_user_that_does_not_exist_is_no_error() -> None:
    assert expanded("~nobody-of-this-name/runs") == Path("~nobody-of-this-name/runs")


def test_input_files_of_the_settings(home: Path) -> None:
    found = PPO(init_from="~/a", replay_order=Path("~/order.jsonl"), schedule="async").with_absolute_inputs(Path("/x"))
    assert (found.init_from, found.replay_order) == (str(home / "a"), str(home / "order.jsonl"))
    assert DQN(demonstrations="~/a.npz").with_absolute_inputs(Path("/x")).demonstrations == str(home / "a.npz")
    assert PPO(init_from="a").with_absolute_inputs(Path("/x")).init_from == "/x/a"


def test_files_that_settings_name(home: Path) -> None:
    (home / "nodes.yaml").write_text("env_vars: {NAME: value}")
    assert ClusterSettings(runtime_env="~/nodes.yaml").read_runtime_env() == {"env_vars": {"NAME": "value"}}
    shutil.copy(GAMES_FOLDER / "homebrew.yaml", home / "mine.yaml")
    assert load_game("~/mine.yaml")
