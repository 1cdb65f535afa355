"""Rewards of all three games, triggered by writing to a console's memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envfleet.environments.gameboy.emulator import Emulator
from envfleet.environments.gameboy.game_files import load_game
from envfleet.environments.gameboy.memory import Layout
from envfleet.environments.gameboy.rewards import Rewards
from tests.environments.gameboy.roms import idle_rom


class Story:
    """A console whose memory a test writes: `step(health=3)` returns the reward for that change."""

    def __init__(self, game: str, **first: int) -> None:
        self.game = load_game(game)
        self.emulator = Emulator(idle_rom())
        self.emulator.run(80)
        self.layout, self.rewards = Layout(self.game.memory), Rewards(self.game)
        self._write(first)
        self.rewards.begin(self.layout.read(self.emulator.memory))

    def _write(self, changes: dict[str, int]) -> None:
        for name, number in changes.items():
            value = self.game.memory[name]
            for offset, byte in enumerate(value.bytes_of(number)):
                self.emulator.memory[value.address + offset] = byte

    def step(self, **changes: int) -> float:
        self._write(changes)
        return self.rewards.step(self.layout.read(self.emulator.memory))

    def weight(self, name: str) -> float:
        return next(term.weight for term in self.game.rewards if term.name == name)


@pytest.fixture
def story() -> Any:
    made: list[Story] = []

    def begin(game: str, **first: int) -> Story:
        made.append(Story(game, **first))
        return made[-1]

    yield begin
    for each in made:
        each.emulator.close()


def test_homebrew(story: Any) -> None:
    game = story("homebrew", health=4, screen_x=1, screen_y=3, steps_left=100)
    survival = game.weight("survival")

    def step(**changes: int) -> float:
        return float(game.step(**changes)) - survival

    assert step() == 0.0
    assert step(screen_x=2) == pytest.approx(game.weight("new_screen"))
    assert step(screen_x=1) == 0.0  # the start was visited before
    assert step(steps_left=97) == pytest.approx(3 * game.weight("nearer"))
    assert step(steps_left=99) == pytest.approx(-2 * game.weight("nearer"))
    assert step(gems=2) == pytest.approx(2 * game.weight("pickup"))
    assert step(health=3) == pytest.approx(game.weight("health_lost"))
    assert step(health=4) == pytest.approx(game.weight("healed"))
    assert step(enemies_beaten=1) == pytest.approx(game.weight("enemy"))
    assert step(bushes_cut=1) == pytest.approx(game.weight("bush"))
    assert step(has_key=1) == pytest.approx(game.weight("key"))
    assert step(has_key=0) == 0.0
    assert step(has_key=1) == 0.0  # paid only once
    assert step(door_open=1, goal_reached=1) == pytest.approx(game.weight("door") + game.weight("goal"))
    assert step(dead=1) == pytest.approx(game.weight("death") - survival)


def test_oracle_of_seasons(story: Any) -> None:
    game = story("oracle_of_seasons", health=12, max_health=12, room=0xA7, dungeon=255, rupees=98)
    survival = game.weight("survival")
    assert game.step() == pytest.approx(survival)
    assert game.step(room=0xA8) == pytest.approx(survival + game.weight("new_room"))
    assert game.step(room=0xA7) == pytest.approx(survival)
    assert game.step(group=4) == pytest.approx(survival + game.weight("new_room"))  # same number, other group
    assert game.step(dungeon=1) == pytest.approx(survival + game.weight("dungeon"))
    assert game.step(dungeon=255) == pytest.approx(survival)
    assert game.step(dungeon=1) == pytest.approx(survival)
    assert game.step(rupees=103) == pytest.approx(survival + 5 * game.weight("rupees"))  # over a BCD carry
    assert game.step(rupees=3) == pytest.approx(survival)
    assert game.step(text_active=1) == pytest.approx(survival + game.weight("talk"))
    assert game.step(text_active=3) == pytest.approx(survival)
    assert game.step(essences=1) == pytest.approx(survival + game.weight("essence"))
    assert game.step(health=8) == pytest.approx(survival + 4 * game.weight("health_lost"))
    assert game.step(health=0) == pytest.approx(8 * game.weight("health_lost") + game.weight("death"))


def test_links_awakening(story: Any) -> None:
    game = story("links_awakening", health=24, max_hearts=3, room=0x92, rupees=99)
    survival = game.weight("survival")
    assert game.step(map=5) == pytest.approx(survival)  # outdoors, the map number means nothing
    assert game.step(indoors=1, map=16) == pytest.approx(survival + game.weight("new_room"))  # a house
    assert game.step(map=0) == pytest.approx(survival + game.weight("new_room") + game.weight("dungeon"))
    assert game.step(indoors=0) == pytest.approx(survival)
    assert game.step(rupees=101) == pytest.approx(survival + 2 * game.weight("rupees"))
    assert game.step(dialogue=1) == pytest.approx(survival + game.weight("talk"))
    assert game.step(max_hearts=4) == pytest.approx(survival + game.weight("heart"))
    assert game.step(health=0) == pytest.approx(24 * game.weight("health_lost") + game.weight("death"))


def test_state_goes_on_exactly(story: Any) -> None:
    """Rewards with a restored state continue like the original, and unlike rewards that keep their own state."""
    one = story("homebrew", health=4, screen_x=1, steps_left=50)
    one.step(screen_x=2, has_key=1, health=3)
    other, unlike = (story("homebrew", health=6, screen_x=0, steps_left=90) for _ in range(2))
    other.rewards.set_state(one.rewards.get_state())
    now = {"screen_x": 2, "has_key": 1, "health": 3, "steps_left": 50}  # memory of the first: it is not in the state
    parts = (now, {"screen_x": 1}, {"screen_x": 3, "steps_left": 49}, {"health": 1}, {"dead": 1})
    expected, received, without = ([game.step(**changes) for changes in parts] for game in (one, other, unlike))
    assert received == expected
    assert other.rewards.totals == one.rewards.totals
    assert without[0] != expected[0] and without[1] != expected[1]


def test_a_game_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        """
memory: {coins: 0xC100 u8, level: 0xC101 u8}
rewards:
  coins: {change: coins, weight: 2, if: level > 0}
  level: {new: level, weight: 10}
  alive: {when: level, weight: 0.5}
""",
        encoding="utf-8",
    )
    game = Story(str(file))
    assert game.step(coins=3) == 0.0  # not on level 0
    assert game.step(level=1) == 10.5
    assert game.step(coins=2) == -1.5
    game.emulator.close()
