"""`envfleet/GameBoy-v0`: observations, actions, refused settings, and exact restore."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest

import envfleet
from envfleet.environments.gameboy.environment import GameBoyEnv
from envfleet.environments.gameboy.start_state import main as make_start_state
from envfleet.errors import MissingExtraError, ProtocolError, SettingsError, StateError
from tests.environments.gameboy.roms import idle_rom, write_idle_rom
from tests.fleet.backends import same


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[GameBoyEnv] = []

    def build(**settings: Any) -> GameBoyEnv:
        made.append(GameBoyEnv(**settings))
        return made[-1]

    yield build
    for env in made:
        env.close()


FEATURES = 133  # of homebrew.yaml


def actions(count: int, seed: int = 0) -> list[int]:
    return [int(action) for action in np.random.default_rng(seed).integers(0, 6, count)]


# ---- observations and actions ----


def test_gymnasium_knows_it() -> None:
    env = gymnasium.make("envfleet/GameBoy-v0", observation="pixels+features", disable_env_checker=True)
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    env.close()


def test_passes_the_check() -> None:
    report = envfleet.check("envfleet/GameBoy-v0", env_kwargs={"episode_length": 40}, seconds=250)
    assert report.ok, str(report)
    assert "resume is exact" in str(report)


@pytest.mark.parametrize(
    ("observation", "shapes"),
    [
        ("features", {"": (FEATURES,)}),
        ("pixels", {"": (72, 80, 3)}),
        ("tiles", {"": (8, 10)}),
        ("tiles+pixels+features", {"tiles": (8, 10), "pixels": (72, 80, 3), "features": (FEATURES,)}),
    ],
)
def test_observations(make: Any, observation: str, shapes: dict[str, tuple[int, ...]]) -> None:
    env = make(observation=observation)
    seen, _ = env.reset(seed=1)
    assert env.observation_space.contains(seen)
    parts = seen if isinstance(seen, dict) else {"": seen}
    assert {name: part.shape for name, part in parts.items()} == shapes
    for action in actions(20):
        seen, *_ = env.step(action)
        assert env.observation_space.contains(seen)


def test_pixels_are_the_last_pictures_in_grey(make: Any) -> None:
    env = make(observation="pixels", stack=2, render_mode="rgb_array")
    first, _ = env.reset(seed=1)
    assert (first[:, :, 0] == first[:, :, 1]).all()
    second, *_ = env.step(4)
    picture = env.render()
    assert picture.shape == (144, 160, 3) and picture.dtype == np.uint8
    assert len(np.unique(picture)) == 4  # the four shades
    assert (second[:, :, 0] == first[:, :, 1]).all()
    grey = picture[:, :, 0].astype(int).reshape(72, 2, 80, 2).sum((1, 3)) // 4
    assert (second[:, :, 1] == grey).all()


def test_features_say_what_is_in_memory(make: Any) -> None:
    env = make()
    seen, _ = env.reset(seed=3)
    names = env._views["features"].names
    memory = env._emulator.memory
    value = dict(zip(names, seen.tolist(), strict=True))
    screen = 4 * memory[0xC109] + memory[0xC108]
    assert [value[f"screen[{number}]"] for number in range(16)] == [float(number == screen) for number in range(16)]
    assert value["x"] == pytest.approx(memory[0xC10A] / 72 - 1)
    assert value["health"] == 1.0
    assert value["steps_left"] == pytest.approx(memory[0xC11F] / 80 - 1)
    column, row = (memory[0xC10A] + 8) // 16, (memory[0xC10B] + 12) // 16
    worth = [0, 0, -1, 0, 1, 1, 1, 0.5, 0.7, 0.3, 0]
    around = [
        worth[memory[0xC200 + 10 * y + x]] if 0 <= x < 10 and 0 <= y < 8 else 0
        for y in range(row - 2, row + 3)
        for x in range(column - 2, column + 3)
    ]
    assert [value[f"surroundings[{number}]"] for number in range(25)] == pytest.approx(around)


def test_tiles_of_the_screen_for_games_without_cells_in_memory(make: Any, tmp_path: Path) -> None:
    game = tmp_path / "mine.yaml"
    game.write_text("memory: {scroll: 0xFF43}\nstart: {frames: 80}", encoding="utf-8")
    env = make(observation="tiles", game=str(game), rom=str(write_idle_rom(tmp_path)))
    env.reset(seed=1)
    memory = env._emulator.memory
    for place in range(0x400):
        memory[0x9800 + place] = place % 251
    memory[0xFF42], memory[0xFF43] = 8 * 20, 8 * 15
    seen, *_ = env.step(0)
    expected = [[((row + 20) % 32 * 32 + (column + 15) % 32) % 251 for column in range(20)] for row in range(18)]
    assert seen.tolist() == expected


def test_buttons_reach_the_game(make: Any) -> None:
    env = make()
    memory = env._emulator.memory
    facings = []
    env.reset(seed=1)
    for action in (1, 2, 3, 4):
        env.step(action)
        facings.append(memory[0xC10C])
    assert facings == [1, 0, 2, 3]
    env.step(5)
    assert memory[0xC118] > 0  # the sword is out
    for _ in range(3):
        env.step(0)
    assert memory[0xC118] == 0


def test_own_actions(make: Any) -> None:
    env = make(actions=("none", "left+a"))
    assert env.action_space.n == 2
    env.reset(seed=1)
    env.step(1)
    assert env._emulator.memory[0xC118] > 0


def test_episodes_end_by_length_by_death_and_by_the_goal(make: Any) -> None:
    env = make(episode_length=5)
    env.reset(seed=1)
    ends = [env.step(0)[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]
    for address, success in ((0xC112, False), (0xC111, True)):
        env.reset(seed=1)
        env._emulator.memory[address] = 1
        _, _, terminated, truncated, info = env.step(0)
        assert (terminated, truncated, info["is_success"]) == (True, False, success)
        assert info["reward_terms"]["goal"] == (10.0 if success else 0.0)


# ---- determinism and state ----


def trace(env: GameBoyEnv, seed: int, count: int) -> list[Any]:
    return [env.reset(seed=seed), *(env.step(action) for action in actions(count))]


def test_the_seed_decides_everything(make: Any) -> None:
    one, other = make(sticky=0.25), make(sticky=0.25)
    first = trace(one, 5, 150)
    assert same(first, trace(other, 5, 150))
    trace(other, 6, 10)
    assert same(first, trace(other, 5, 150))  # regardless of earlier episodes
    assert not same(first, trace(one, 6, 150))


def test_seeds_differ_in_start_key_enemies_and_pickups(make: Any) -> None:
    env = make()
    starts, targets, enemies, pickups = set(), set(), set(), set()
    for seed in range(12):
        env.reset(seed=seed)
        memory = env._emulator.memory
        starts.add(tuple(memory[0xC108:0xC10C]))
        targets.add(tuple(memory[0xC11A:0xC11C]))
        enemies.add(tuple(memory[0xC120:0xC129]))
        pickups.add(tuple(memory[0xC160:0xC180]))
    assert len(starts) > 8 and len(targets) == 4 and len(enemies) > 8 and len(pickups) == 12


def test_sticky_actions_repeat_the_last_one(make: Any) -> None:
    env = make(sticky=0.5)
    env.reset(seed=1)
    memory = env._emulator.memory
    turned = []
    for action in [1, 2] * 100:
        env.step(action)
        turned.append(memory[0xC10C] == (1 if action == 1 else 0))
    # Requested actions alternate, so an odd number of repeats in a row is wrong: 1/2 + 1/8 + 1/32 + ... are right.
    assert np.mean(turned) == pytest.approx(2 / 3, abs=0.1)


@pytest.mark.parametrize("observation", ["features", "pixels+tiles"])
def test_state_goes_on_exactly_in_a_fresh_environment(make: Any, observation: str) -> None:
    settings: dict[str, Any] = {"observation": observation, "sticky": 0.2, "episode_length": 60}
    one, other = make(**settings), make(**settings)
    trace(one, 4, 30)
    state = one.get_state()
    assert len(state["console"]) < 60_000  # packed
    other.reset(seed=99)
    other.set_state(state)
    expected = [one.step(action) for action in actions(30, seed=1)] + [one.reset()]
    received = [other.step(action) for action in actions(30, seed=1)] + [other.reset()]
    assert same(expected, received)


def test_states_of_other_games_and_damaged_ones_are_refused(make: Any) -> None:
    env, pixels = make(), make(observation="pixels")
    env.reset(seed=1)
    pixels.reset(seed=1)
    with pytest.raises(StateError, match="seen as pixels"):
        env.set_state(pixels.get_state())
    state = env.get_state()
    state["console"] = state["console"][:100]
    with pytest.raises(StateError, match="cannot be loaded"):
        env.set_state(state)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_the_same_bytes_on_every_backend_and_over_a_restore(backend: str) -> None:
    settings: dict[str, Any] = {"env_kwargs": {"episode_length": 30}, "seed": 3, "group_size": 2}
    results = []
    for name in ("sequential", backend):
        fleet = envfleet.make("envfleet/GameBoy-v0", 4, backend=name, workers=2, **settings)
        fleet.reset()
        rng = np.random.default_rng(0)
        played = [fleet.step(rng.integers(0, 6, 4)) for _ in range(40)]
        if name == "sequential":
            saved = fleet.state()
        else:
            derailed = [fleet.step(np.full(4, 4)) for _ in range(7)]  # so that there is something to restore
            fleet.restore(saved)
        played += [fleet.step(rng.integers(0, 6, 4)) for _ in range(10)]
        fleet.close()
        results.append(played)
    assert same(*results)
    assert not same(derailed, results[0][40:47])


# ---- errors and cleanup ----


def test_roms_that_cannot_be_played(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gb"
    cases = {
        b"": "is not a Game Boy ROM",
        b"PK\3\4" * 0x3000: "is not a Game Boy ROM",
        idle_rom(b"LANTERN ISLE")[:0x6000]: "is cut off: 24,576 bytes, and its header says 32,768",
        idle_rom(b"OTHER"): "is 'OTHER', and the game 'homebrew' is for 'LANTERN ISLE'",
    }
    with pytest.raises(SettingsError, match=r"there is no ROM at .*bad\.gb"):
        GameBoyEnv(rom=str(bad))
    for content, message in cases.items():
        bad.write_bytes(content)
        with pytest.raises(SettingsError, match=message) as caught:
            GameBoyEnv(rom=str(bad))
        assert "bad.gb" in str(caught.value)


def test_settings_that_cannot_work(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"did you mean frame_skip\?"):
        GameBoyEnv(frameskip=4)
    with pytest.raises(SettingsError, match=r"(?s)frame_skip: got 0.*observation: got 'pixel'.*did you mean 'pixels'"):
        GameBoyEnv(frame_skip=0, observation="pixel")
    with pytest.raises(SettingsError, match="shrink: got 3"):
        GameBoyEnv(shrink=3)
    with pytest.raises(SettingsError, match="each part once"):
        GameBoyEnv(observation="tiles+tiles")
    with pytest.raises(SettingsError, match="render_mode 'human'"):
        GameBoyEnv(render_mode="human")
    with pytest.raises(SettingsError, match="received 'jump'"):
        GameBoyEnv(actions=("jump",))
    with pytest.raises(SettingsError, match=r"comes without a ROM, and none was given"):
        GameBoyEnv(game="oracle_of_seasons")
    rom = write_idle_rom(tmp_path, b"ZELDA DIN")
    with pytest.raises(SettingsError, match=r"(?s)needs a start state.*start_state --rom"):
        GameBoyEnv(game="oracle_of_seasons", rom=str(rom))
    with pytest.raises(SettingsError, match="there is no start state at"):
        GameBoyEnv(state=str(tmp_path / "missing.state"))


def test_a_game_that_never_gets_ready(make: Any, tmp_path: Path) -> None:
    env = make(rom=str(write_idle_rom(tmp_path, b"LANTERN ISLE")))
    with pytest.raises(SettingsError, match="was not ready after 60 frames"):
        env.reset(seed=1)


def test_a_start_state_of_the_users_own(make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rom, state = write_idle_rom(tmp_path, b"ZELDA DIN"), tmp_path / "start.state"
    code = make_start_state(["--rom", str(rom), "--output", str(state), "--press", "none 90", "start+a 5"])
    assert code == 0 and capsys.readouterr().out.strip() == str(state)
    env = make(game="oracle_of_seasons", rom=str(rom), state=str(state), episode_length=3)
    env.reset(seed=1)
    env._emulator.memory[0xC6A2] = 12
    assert env.step(0)[2] is False
    assert env.step(0)[1] == pytest.approx(0.0005)  # survival
    state.write_bytes(b"nothing")
    with pytest.raises(StateError, match="cannot be loaded"):
        make(game="oracle_of_seasons", rom=str(rom), state=str(state))
    assert make_start_state(["--rom", str(rom), "--output", str(state), "--press", "jump 3"]) == 1
    assert "received 'jump'" in capsys.readouterr().err


def test_calls_at_the_wrong_moment(make: Any) -> None:
    env = make()
    with pytest.raises(ProtocolError, match=r"before reset\(\)"):
        env.step(0)
    env.reset(seed=1)
    with pytest.raises(SettingsError, match="received the action 6, expected 0 to 5"):
        env.step(6)
    env.close()
    env.close()
    with pytest.raises(ProtocolError, match="closed"):
        env.step(0)


def test_the_missing_extra_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyboy", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'envfleet\[gameboy\]'"):
        GameBoyEnv()


def test_a_failed_start_leaves_no_console(monkeypatch: pytest.MonkeyPatch) -> None:
    import envfleet.environments.gameboy.environment as module

    closed = []

    class Fails(module.Emulator):
        def run(self, frames: int, *, render: bool = False) -> None:
            raise KeyboardInterrupt

        def close(self) -> None:
            closed.append(True)
            super().close()

    monkeypatch.setattr(module, "Emulator", Fails)
    with pytest.raises(KeyboardInterrupt):
        GameBoyEnv()
    assert closed == [True]


def test_nothing_is_written_beside_the_rom(make: Any, tmp_path: Path) -> None:
    rom = bytearray(idle_rom(b"LANTERN ISLE"))
    rom[0x147], rom[0x149] = 0x03, 0x02  # a battery: PyBoy saves its RAM on stop
    checksum = 0
    for byte in rom[0x134:0x14D]:
        checksum = (checksum - byte - 1) & 0xFF
    rom[0x14D] = checksum
    (tmp_path / "battery.gb").write_bytes(rom)
    make(rom=str(tmp_path / "battery.gb")).close()
    assert [path.name for path in tmp_path.iterdir()] == ["battery.gb"]


@pytest.mark.proof
def test_memory_is_small_and_stays(make: Any) -> None:
    """Memory does not grow over 1,000 episodes with pixels, and each further console takes less than 50 MB."""
    process = psutil.Process()
    settings = {"observation": "pixels+features", "episode_length": 3}

    def play(env: GameBoyEnv, episodes: int) -> None:
        for seed in range(episodes):
            env.reset(seed=seed)
            ends = [env.step(action)[3] for action in actions(3, seed)]
            assert ends == [False, False, True]

    env = make(**settings)
    play(env, 50)  # fills the caches
    before = process.memory_info().rss
    play(env, 1000)
    grown = process.memory_info().rss - before
    others = [make(**settings) for _ in range(8)]
    for other in others:
        play(other, 1)
    each = (process.memory_info().rss - before - grown) / len(others)
    assert grown < 4e6
    assert each < 50e6
