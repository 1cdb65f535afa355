"""The homebrew game: reproducible build, winnable for every seed, but not by luck or from memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet.environments.gameboy.environment import GameBoyEnv
from rom.solver import Bot, fewest_screens, shortest_solutions

ROOT = Path(__file__).parents[3]
BINARY = ROOT / "src/envfleet/environments/gameboy/lantern_isle.gb"
COMPILER = "4.2.0"  # of Debian 12; another version may produce other bytes


@pytest.fixture
def env() -> Iterator[GameBoyEnv]:
    made = GameBoyEnv()
    yield made
    made.close()


def values(env: GameBoyEnv) -> dict[str, Any]:
    assert env._emulator is not None
    return dict(zip(env.game.memory, env._layout.read(env._emulator.memory), strict=True))


def won(env: GameBoyEnv, seed: int) -> tuple[bool, list[int], int]:
    """Return whether the bot wins, its actions, and the number of screens it saw."""
    bot, played = Bot(), []
    env.reset(seed=seed)
    while True:
        played.append(bot.act(values(env)))
        _, _, terminated, truncated, info = env.step(played[-1])
        if terminated or truncated:
            return info["is_success"], played, info["screens"]


@pytest.mark.skipif(shutil.which("sdcc") is None, reason="sdcc is not installed")
def test_the_source_builds_to_the_committed_bytes(tmp_path: Path) -> None:
    version = subprocess.run(["sdcc", "--version"], capture_output=True, text=True, check=True).stdout
    if COMPILER not in version:
        pytest.skip(f"the binary was built with sdcc {COMPILER}; here is {version.splitlines()[0]}")
    built = tmp_path / "built.gb"
    subprocess.run([sys.executable, str(ROOT / "rom/build.py"), "--output", str(built)], check=True)
    assert built.read_bytes() == BINARY.read_bytes()


def test_no_logo_of_the_maker_is_in_the_header() -> None:
    assert BINARY.read_bytes()[0x104:0x134] == bytes(48)


def test_a_bot_with_the_map_wins_and_no_solution_is_short(env: GameBoyEnv) -> None:
    """Wherever the key is, a solution takes at least 200 decisions over at least 8 screens."""
    shortest, fewest = shortest_solutions(), fewest_screens()
    assert len(shortest) == len(fewest) == 4
    assert min(shortest.values()) >= 200 and min(fewest.values()) >= 8
    published = json.loads((ROOT / "docs/gameboy.json").read_text(encoding="utf-8"))
    for name, bounds in (("shortest", shortest), ("fewest_screens", fewest)):
        assert published[name] == {f"key at {x},{y}": bound for (x, y), bound in bounds.items()}
    for seed in range(4):
        success, played, screens = won(env, seed)
        assert success and len(played) >= min(shortest.values()) and screens >= min(fewest.values())


def test_a_solution_by_heart_fails_on_other_seeds(env: GameBoyEnv) -> None:
    _, played, _ = won(env, 0)
    wins = 0
    for seed in range(100, 106):
        env.reset(seed=seed)
        for action in played:
            _, _, terminated, _, info = env.step(action)
            if terminated:
                break
        wins += info["is_success"]
    assert wins <= 1


def test_random_play_does_not_finish(env: GameBoyEnv) -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        env.reset(seed=seed)
        ended = False
        while not ended:
            _, _, terminated, truncated, info = env.step(rng.integers(6))
            ended = terminated or truncated
        assert not info["is_success"] and info["key"] == 0


def test_enemies_hurt_and_death_begins_a_new_game(env: GameBoyEnv) -> None:
    assert env._emulator is not None
    memory = env._emulator.memory
    env.reset(seed=1)
    memory[0xC10D] = 1
    memory[0xC120], memory[0xC123], memory[0xC126] = 1, memory[0xC10A], memory[0xC10B]
    env._emulator.run(8)
    assert (memory[0xC112], memory[0xC10D], memory[0xC100]) == (1, 0, 2)
    env._emulator.run(400)
    assert (memory[0xC112], memory[0xC10D], memory[0xC100], memory[0xC101]) == (0, 6, 1, 1)


def test_the_key_opens_the_door_and_nothing_else_does(env: GameBoyEnv) -> None:
    """The player stands below the door and walks into it, without and with the key."""
    assert env._emulator is not None
    memory = env._emulator.memory
    for has_key in (0, 1):
        env.reset(seed=2)
        # Enter from the screen to the left, so that the game itself sets up the screen with the door.
        memory[0xC108], memory[0xC109], memory[0xC10A], memory[0xC10B] = 2, 1, 144, 72
        env._emulator.run(1)
        env.step(4)
        env.step(4)
        assert (memory[0xC108], memory[0xC109]) == (3, 1)
        memory[0xC120:0xC122] = [0, 0]
        memory[0xC10A], memory[0xC10B], memory[0xC10F] = 80, 8, has_key
        for _ in range(4):
            env.step(1)
        assert memory[0xC110] == has_key
        assert (memory[0xC109] == 0) == bool(has_key) or memory[0xC10B] < 8


def test_pits_cost_a_heart_and_lead_back_to_the_entrance(env: GameBoyEnv) -> None:
    assert env._emulator is not None
    memory = env._emulator.memory
    env.reset(seed=1)
    entrance = memory[0xC10A], memory[0xC10B] ^ 32
    memory[0xC143], memory[0xC144] = entrance
    column, row = memory[0xC10A] // 16, (memory[0xC10B] + 8) // 16
    memory[0xC120:0xC122] = [0, 0]
    memory[0xC200 + 10 * row + column] = 2
    env.step(0)
    assert memory[0xC10D] == 5 and (memory[0xC10A], memory[0xC10B]) == entrance
