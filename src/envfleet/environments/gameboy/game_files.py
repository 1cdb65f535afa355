"""Reads a YAML game file into a `Game`, with clear errors for everything that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from envfleet.environments.gameboy.expressions import compile_all
from envfleet.environments.gameboy.games import (
    BUTTONS,
    REWARD_KINDS,
    Ending,
    Feature,
    Game,
    RewardTerm,
    Start,
    Tiles,
    Window,
)
from envfleet.environments.gameboy.memory import KINDS, Value, parse_kind
from envfleet.errors import SettingsError
from envfleet.paths import expanded
from envfleet.wording import did_you_mean

__all__ = ["GAMES_FOLDER", "buttons_of", "load_game", "shipped_games"]

GAMES_FOLDER = Path(__file__).parent / "games"
_LAST_ADDRESS = 0xFFFF


def shipped_games() -> list[str]:
    """Names of the games that ship with the package."""
    return sorted(path.stem for path in GAMES_FOLDER.glob("*.yaml"))


def load_game(name: str) -> Game:
    """Return the game that ships under this name, or the game of the file at this path."""
    path = GAMES_FOLDER / f"{name}.yaml" if name in shipped_games() else expanded(name)
    if not path.is_file():
        raise SettingsError(
            f"received the game {name!r}, expected one of {', '.join(shipped_games())} or the path of a game file",
            hint=did_you_mean(name, shipped_games(), "docs/gameboy.md shows how to write a game file"),
        )
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not a YAML file: {error}") from error
    return _game(path, _Section(content, str(path), path.name))


class _Section:
    """A mapping in the file. It knows its location and refuses unknown keys."""

    def __init__(self, content: Any, place: str, file: str) -> None:
        if not isinstance(content, Mapping):
            raise SettingsError(f"{place}: received {content!r}, expected names with values")
        self.content, self.place, self.file = {str(key): value for key, value in content.items()}, place, file

    def refuse(self, key: str, expected: str) -> SettingsError:
        return SettingsError(f"{self.place}: {key}: received {self.content.get(key)!r}, expected {expected}")

    def only(self, *keys: str) -> _Section:
        """Return itself. Raises a SettingsError if it has other keys than these."""
        for key in self.content:
            if key not in keys:
                advice = did_you_mean(key, keys, f"there are {', '.join(keys)}")
                raise SettingsError(f"{self.place}: there is no key {key!r}; {advice}")
        return self

    def section(self, key: str) -> _Section:
        return _Section(self.content.get(key) or {}, f"{self.place}: {key}", self.file)

    def sections(self) -> Iterable[tuple[str, _Section]]:
        return [(key, self.section(key)) for key in self.content]

    def text(self, key: str, default: str | None = None) -> str:
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.refuse(key, "text or a number")
        return str(value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.content.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
            raise self.refuse(key, "a list")
        return tuple(map(str, value))

    def number(self, key: str, default: float | None = None) -> float:
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(key, "a number")
        return float(value)

    def whole(self, key: str, default: int | None = None, least: int = 0) -> int:
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.refuse(key, f"a whole number of at least {least}")
        return value

    def truth(self, key: str) -> bool:
        value = self.content.get(key, False)
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value


def _game(path: Path, file: _Section) -> Game:
    file.only("title", "rom", "cartridges", "actions", "memory", "start", "features", "rewards", "end", "info", "tiles")
    memory = file.section("memory")
    values = {name: _value(name, memory) for name in memory.content}
    if not values:
        raise SettingsError(f"{file.place}: it names no memory", hint="memory: {health: 0xC6A2 u8}")
    rom = path.parent / file.text("rom") if "rom" in file.content else None
    game = Game(
        name=path.stem,
        source=str(path),
        title=file.text("title", path.stem),
        rom=rom,
        cartridges=file.texts("cartridges"),
        actions=_actions(file),
        memory=values,
        start=_start(file.section("start"), values),
        features=tuple(_feature(name, file.section("features"), values) for name in file.section("features").content),
        rewards=tuple(_reward(name, section) for name, section in file.section("rewards").sections()),
        endings=tuple(_ending(name, section) for name, section in file.section("end").sections()),
        info={name: file.section("info").text(name) for name in file.section("info").content},
        tiles=_tiles(file.section("tiles"), values) if file.content.get("tiles") else None,
    )
    _compile_everything(game)
    return game


# ---- the parts ----


def _value(name: str, memory: _Section) -> Value:
    """Parse `name: 0xC10A u8`. Without a type it is a single byte."""
    words = memory.text(name).split()
    expected = f"an address and a type, e.g. 0xC6A2 u8 (types: {', '.join(KINDS)}, or a list such as u8[3])"
    kind = parse_kind(words[1]) if len(words) == 2 else ("u8", 0) if len(words) == 1 else None
    try:
        address = int(words[0], 0)
    except (ValueError, IndexError):
        raise memory.refuse(name, expected) from None
    if not name.isidentifier() or kind is None:
        raise memory.refuse(name, expected)
    value = Value(name, address, *kind)
    if address < 0 or address + value.size - 1 > _LAST_ADDRESS:
        raise SettingsError(
            f"{memory.place}: {name}: received the address {address:#06x} for {value.size} bytes, "
            f"expected one within 0x0000 to {_LAST_ADDRESS:#06x}"
        )
    return value


def _actions(file: _Section) -> tuple[str, ...]:
    actions = file.texts("actions") or ("none", *BUTTONS[:6])
    for action in actions:
        buttons_of(action, f"{file.place}: actions")
    return actions


def buttons_of(action: str, place: str) -> tuple[str, ...]:
    """Return the buttons of an action such as "none", "a" or "up+a"."""
    buttons = () if action == "none" else tuple(action.split("+"))
    if unknown := [button for button in buttons if button not in BUTTONS]:
        raise SettingsError(
            f"{place}: received {action!r}, expected none or buttons joined by +: {', '.join(BUTTONS)}",
            hint=did_you_mean(unknown[0], BUTTONS) or None,
        )
    return buttons


def _start(section: _Section, values: Mapping[str, Value]) -> Start:
    section.only("frames", "needs_state", "write", "press", "random_frames", "until", "at_most")
    write = section.section("write")
    for name, value in write.content.items():
        if name not in values or values[name].length:
            raise SettingsError(f"{write.place}: {name!r} is not a single value of memory")
        if value != "seed" and (isinstance(value, bool) or not isinstance(value, int)):
            raise write.refuse(name, "a whole number or the word seed")
    presses = []
    for press in section.texts("press"):
        words = press.split()
        if len(words) != 2 or not words[1].isdigit():
            raise section.refuse("press", "a list of buttons and frames, e.g. [start 10, none 60]")
        presses.append((buttons_of(words[0], f"{section.place}: press"), int(words[1])))
    return Start(
        frames=section.whole("frames", 0),
        needs_state=section.truth("needs_state"),
        write=write.content,
        press=tuple(presses),
        random_frames=section.whole("random_frames", 0),
        until=section.text("until", "1"),
        at_most=section.whole("at_most", 600, least=1),
    )


def _feature(name: str, features: _Section, values: Mapping[str, Value]) -> Feature:
    content = features.content[name]
    if not isinstance(content, Mapping):
        return Feature(name, "number", features.text(name))
    section = features.section(name)
    if "window" in content:
        return _window_feature(name, section, values)
    section.only("one_hot", "bits", "size")
    kinds = [kind for kind in ("one_hot", "bits") if kind in content]
    if len(kinds) != 1:
        raise SettingsError(f"{section.place}: expected an expression, one_hot, bits or window")
    return Feature(name, kinds[0], section.text(kinds[0]), section.whole("size", least=1))


def _window_feature(name: str, section: _Section, values: Mapping[str, Value]) -> Feature:
    section.only("window", "width", "x", "y", "radius", "values", "outside")
    cells, width = _list_of_cells(section, "window", values), section.whole("width", least=1)
    numbers = section.content.get("values")
    if not isinstance(numbers, list) or not numbers or not all(isinstance(item, int | float) for item in numbers):
        raise section.refuse("values", "a list of numbers, one per kind of cell")
    window = Window(
        cells,
        width,
        section.text("x"),
        section.text("y"),
        section.whole("radius", least=1),
        tuple(map(float, numbers)),
        section.number("outside", 0.0),
    )
    return Feature(name, "window", size=window.size, window=window)


def _list_of_cells(section: _Section, key: str, values: Mapping[str, Value]) -> str:
    name = section.text(key)
    if name not in values or values[name].kind != "u8" or not values[name].length:
        raise section.refuse(key, "the name of a list of bytes in memory, e.g. cells: 0xC200 u8[80]")
    return name


def _reward(name: str, section: _Section) -> RewardTerm:
    section.only("weight", "if", *REWARD_KINDS)
    kinds = [kind for kind in REWARD_KINDS if kind in section.content]
    if len(kinds) != 1:
        raise SettingsError(
            f"{section.place}: received {kinds or 'no kind'}, expected one of {', '.join(REWARD_KINDS)}"
        )
    [kind] = kinds
    many = isinstance(section.content[kind], list)
    expressions = section.texts(kind) if many else (section.text(kind),)
    if (many and kind != "new") or not expressions:
        raise section.refuse(kind, "one expression; only `new` takes a list of them")
    return RewardTerm(name, kind, expressions, section.number("weight"), section.text("if", "1"))


def _ending(name: str, section: _Section) -> Ending:
    section.only("when", "success")
    return Ending(name, section.text("when"), section.truth("success"))


def _tiles(section: _Section, values: Mapping[str, Value]) -> Tiles:
    section.only("cells", "width", "kinds")
    cells, width = _list_of_cells(section, "cells", values), section.whole("width", least=1)
    if values[cells].length % width:
        raise section.refuse("width", f"a divisor of the {values[cells].length} cells")
    return Tiles(cells, width, values[cells].length // width, section.whole("kinds", 256, least=1))


def _compile_everything(game: Game) -> None:
    """Compile every expression now, so that a mistake is reported with its location when the file is read."""
    check: Callable[[str, Iterable[str]], Any] = lambda place, texts: compile_all(  # noqa: E731  # one line, one use
        list(texts), game.lengths, where=f"{game.source}: {place}"
    )
    check("start: until", [game.start.until])
    for feature in game.features:
        window = feature.window
        check(f"features: {feature.name}", [feature.expression] if window is None else [window.x, window.y])
    for term in game.rewards:
        check(f"rewards: {term.name}", [*term.expressions, term.condition])
    for ending in game.endings:
        check(f"end: {ending.name}", [ending.when])
    for name, text in game.info.items():
        check(f"info: {name}", [text])
