"""Game files: the shipped ones can be read, and a mistake is reported with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from envfleet.environments.gameboy.game_files import GAMES_FOLDER, load_game, shipped_games
from envfleet.environments.gameboy.games import Game
from envfleet.errors import SettingsError
from rom.page import filled, filled_readme

ROOT = Path(__file__).parents[3]
SMALL: dict[str, Any] = {
    "memory": {"health": "0xC6A2 u8", "cells": "0xC200 u8[80]"},
    "features": {"health": "health / 4"},
    "rewards": {"lost": {"decrease": "health", "weight": -1}},
    "end": {"death": {"when": "health == 0"}},
}


def written(folder: Path, **changes: Any) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}), encoding="utf-8")
    return str(path)


def test_three_games_ship() -> None:
    assert shipped_games() == ["homebrew", "links_awakening", "oracle_of_seasons"]
    for name in shipped_games():
        game = load_game(name)
        assert game.features and game.rewards and game.endings
        assert (game.rom is not None) == (name == "homebrew")


def test_a_small_file_of_the_user_is_enough(tmp_path: Path) -> None:
    game = load_game(written(tmp_path))
    assert isinstance(game, Game)
    assert game.memory["health"].address == 0xC6A2
    assert game.actions == ("none", "up", "down", "left", "right", "a", "b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature": {}}, "there is no key 'feature'; did you mean 'features'"),
        ({"memory": {"health": "0x1C6A2 u8"}}, "address 0x1c6a2 for 1 bytes, expected one within 0x0000 to 0xffff"),
        ({"memory": {"health": "0xFFFF u16"}}, "memory: health: received the address 0xffff for 2 bytes"),
        ({"memory": {"health": "-1"}}, "memory: health: received the address"),
        ({"memory": {"health": "0xC6A2 word"}}, "memory: health: received '0xC6A2 word', expected an address and"),
        ({"memory": {"my health": "0xC6A2"}}, "my health"),
        ({"memory": {}}, "it names no memory"),
        ({"features": {"x": "helth"}}, "features: x: in the expression 'helth', there is no value 'helth'"),
        ({"features": {"x": {"one_hot": "health"}}}, "features: x: size: received None"),
        ({"features": {"x": {"size": 3}}}, "expected an expression, one_hot, bits or window"),
        ({"features": {"x": {"window": "health", "width": 1}}}, "expected the name of a list of bytes"),
        ({"rewards": {"x": {"weight": 1}}}, "rewards: x: received no kind, expected one of new, increase"),
        ({"rewards": {"x": {"wieght": 1}}}, "no key 'wieght'; did you mean 'weight'"),
        ({"rewards": {"x": {"when": "health", "weight": "much"}}}, "weight: received 'much', expected a number"),
        ({"rewards": {"x": {"when": ["health", "health"], "weight": 1}}}, "only `new` takes a list"),
        ({"end": {"x": {"when": "health", "success": "yes!"}}}, "success: received 'yes!', expected true or false"),
        ({"actions": ["jump"]}, "received 'jump', expected none or buttons"),
        ({"start": {"write": {"hearts": 1}}}, "'hearts' is not a single value"),
        ({"start": {"write": {"health": "full"}}}, "expected a whole number or the word seed"),
        ({"start": {"press": ["start"]}}, "expected a list of buttons and frames"),
        ({"tiles": {"cells": "cells", "width": 9}}, "a divisor of the 80 cells"),
        ({"info": {"x": "health +"}}, "info: x: received 'health \\+'"),
    ],
)
def test_mistakes_are_reported_with_their_place(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        load_game(written(tmp_path, **changes))
    assert "mine.yaml" in str(caught.value)


def test_what_is_no_game_at_all(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"(?s)received the game 'homebru'.*did you mean 'homebrew'"):
        load_game("homebru")
    (tmp_path / "broken.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(SettingsError, match="is not a YAML file"):
        load_game(str(tmp_path / "broken.yaml"))


def test_the_homebrew_map_is_that_of_its_source() -> None:
    header = (ROOT / "rom" / "memory.h").read_text(encoding="utf-8")
    source = {
        name: int(address, 16)
        for name, address in re.findall(r"#define (\w+) (?:BYTE|WORD|BYTES)_AT\((0x\w+)\)", header)
    }
    memory = load_game("homebrew").memory
    assert {name: value.address for name, value in memory.items()}.items() <= source.items()
    words = set(re.findall(r"#define (\w+) WORD_AT", header))
    assert {name for name, value in memory.items() if value.kind == "u16"} == words & set(memory)


def test_the_documentation_has_the_whole_map() -> None:
    text = (ROOT / "docs" / "gameboy.md").read_text(encoding="utf-8")
    for name, value in load_game("homebrew").memory.items():
        assert re.search(rf"\| `{value.address:04X}`[^|]*\|[^|]*\| `{name}`", text), name


def test_the_example_of_the_documentation_is_a_game(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "gameboy.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```yaml\n(# my_game\.yaml.*?)```", page, re.DOTALL)
    (tmp_path / "my_game.yaml").write_text(example, encoding="utf-8")
    game = load_game(str(tmp_path / "my_game.yaml"))
    assert [term.kind for term in game.rewards] == ["new", "increase", "decrease", "change"]
    assert game.start.press == ((("start",), 10), ((), 60))


def test_the_tables_of_the_documentation_are_current() -> None:
    figures = json.loads((ROOT / "docs" / "gameboy.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "gameboy.md").read_text(encoding="utf-8")
    speeds = json.loads((ROOT / "docs" / "benchmarks" / "gameboy.json").read_text(encoding="utf-8"))
    assert filled(page, figures, speeds) == page, "run `python -m rom.page`"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert filled_readme(readme, figures) == readme, "run `python -m rom.page`"
    trained = [run["evaluated"] for run in figures["training"] if run["target"] == "train"]
    assert len(trained) == 3 and all(run["finished"] >= 45 and run["episodes"] == 50 for run in trained)
    short = [run for run in figures["training"] if run["target"] == "train-20k"]
    assert len(short) == 3 and all(run["return"] >= 2 * run["random"] > 0 for run in short)
    assert figures["random"]["episodes"] == 1000 and figures["random"]["wins"] < 10
    assert figures["by_heart"]["wins"] < 0.2 * figures["by_heart"]["solutions"] * figures["by_heart"]["seeds"]


def test_files_are_in_the_package() -> None:
    assert (GAMES_FOLDER.parent / "lantern_isle.gb").stat().st_size == 32768
