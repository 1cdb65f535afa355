"""`envfleet/GameBoy-v0`: a Game Boy game as a Gymnasium environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from envfleet.environments.gameboy.cartridge import read_rom
from envfleet.environments.gameboy.emulator import Emulator
from envfleet.environments.gameboy.expressions import compile_all
from envfleet.environments.gameboy.game_files import buttons_of, load_game
from envfleet.environments.gameboy.games import BUTTONS, Game
from envfleet.environments.gameboy.memory import Layout
from envfleet.environments.gameboy.observations import View, view_of
from envfleet.environments.gameboy.rewards import Rewards
from envfleet.environments.gameboy.settings import GameBoySettings
from envfleet.errors import ProtocolError, SettingsError, StateError
from envfleet.settings import Settings

__all__ = ["GameBoyEnv"]

_FRAMES_PER_SECOND = 59.7275


class GameBoyEnv(gymnasium.Env[Any, Any]):
    """A Game Boy game on its own console, without window and sound. Takes the fields of `GameBoySettings`."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}
    settings_class: ClassVar[type[Settings]] = GameBoySettings

    def __init__(self, *, render_mode: str | None = None, **settings: Any) -> None:
        if render_mode not in (None, "rgb_array"):
            raise SettingsError(f"received render_mode {render_mode!r}, expected 'rgb_array' or none")
        self.settings = GameBoySettings(**settings)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(_FRAMES_PER_SECOND / self.settings.frame_skip)}
        self.game = load_game(self.settings.game)
        self._emulator: Emulator | None = None
        self._layout = Layout(self.game.memory)
        self._rewards = Rewards(self.game)
        self._views = self._make_views(self.game)
        self._draws = render_mode is not None or any(view.needs_picture for view in self._views.values())
        names = self.settings.actions or self.game.actions
        self._actions = [frozenset(BUTTONS.index(button) for button in buttons_of(name, "actions")) for name in names]
        single = next(iter(self._views.values())).space
        parts = {name: view.space for name, view in self._views.items()}
        self.observation_space = single if len(parts) == 1 else spaces.Dict(parts)  # type: ignore[arg-type]
        self.action_space = spaces.Discrete(len(self._actions))
        endings, infos = [ending.when for ending in self.game.endings], list(self.game.info.values())
        self._look = compile_all([*endings, *infos], self.game.lengths, where=f"{self.game.source}: end and info")
        self._is_ready = compile_all([self.game.start.until], self.game.lengths, where="start: until")
        self._steps = 0
        self._last_action = 0
        self._plays = False
        rom = read_rom(self._rom_path(), self.game.cartridges, self.game.name)
        self._start_state = self._switch_on(rom)

    @property
    def frame_stack(self) -> int:
        """Number of frames stacked in an observation (`envfleet.capabilities.StacksFrames`)."""
        return self.settings.stack if "pixels" in self._views else 1

    def _make_views(self, game: Game) -> dict[str, View]:
        chosen = self.settings.observation.split("+")
        if "features" in chosen and not game.features:
            raise SettingsError(
                f"{game.source} has no features, and the observation is {self.settings.observation!r}",
                hint="add features to the file, or choose the observation pixels",
            )
        return {kind: view_of(kind, game, stack=self.settings.stack, shrink=self.settings.shrink) for kind in chosen}

    def _rom_path(self) -> Path:
        if self.settings.rom is not None:
            return Path(self.settings.rom).expanduser()
        if self.game.rom is None:
            raise SettingsError(
                f"the game {self.game.name!r} comes without a ROM, and none was given",
                hint=f"name yours: rom=... (on the command line --rom FILE); {self.game.title} is not free software",
            )
        return self.game.rom

    def _switch_on(self, rom: bytes) -> Any:
        """Build the console and return the state that every episode starts from."""
        given = self._given_state()
        emulator = self._emulator = Emulator(rom)
        try:
            if given is not None:
                emulator.load_file(given)
            # Always draw one frame: an undrawn image is noise, and states contain the image.
            emulator.run(max(1, 0 if given is not None else self.game.start.frames), render=True)
            return emulator.save()
        except BaseException:
            self.close()
            raise

    def _given_state(self) -> bytes | None:
        if self.settings.state is None:
            if self.game.start.needs_state:
                raise SettingsError(
                    f"{self.game.title} needs a start state, and none was given",
                    hint="make one: python -m envfleet.environments.gameboy.start_state --rom ROM --output FILE",
                )
            return None
        path = Path(self.settings.state).expanduser()
        if not path.is_file():
            raise SettingsError(
                f"there is no start state at {path}",
                hint="make one: python -m envfleet.environments.gameboy.start_state --rom ROM --output FILE",
            )
        return path.read_bytes()

    # ---- episodes ----

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        emulator = self._running()
        emulator.load(self._start_state)
        emulator.hold(frozenset())
        self._begin(emulator)
        if self._draws:
            emulator.run(1, render=True)
        values = self._layout.read(emulator.memory)
        self._rewards.begin(values)
        self._steps, self._last_action, self._plays = 0, 0, True
        observation = {name: view.begin(values, emulator) for name, view in self._views.items()}
        return self._single(observation), self._info(self._look(values), False)

    def _begin(self, emulator: Emulator) -> None:
        """Follow the game file from the start state to the first decision."""
        start = self.game.start
        for name, what in start.write.items():
            value = self.game.memory[name]
            number = int(self.np_random.integers(1, 256 ** len(value.bytes_of(0)))) if what == "seed" else int(what)
            for offset, byte in enumerate(value.bytes_of(number)):
                emulator.memory[value.address + offset] = byte
        for buttons, frames in start.press:
            emulator.hold(frozenset(BUTTONS.index(button) for button in buttons))
            emulator.run(frames)
        emulator.hold(frozenset())
        if start.random_frames:
            emulator.run(int(self.np_random.integers(0, start.random_frames + 1)))
        for _ in range(start.at_most):
            if self._is_ready(self._layout.read(emulator.memory))[0]:
                return
            emulator.run(1)
        raise SettingsError(
            f"{self.game.title} was not ready after {start.at_most} frames: {start.until!r} is not true",
            hint="the start state or the memory map does not fit this ROM",
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._plays:
            raise ProtocolError("step() was called before reset()")
        emulator, chosen = self._running(), int(action)
        if not 0 <= chosen < len(self._actions):
            raise SettingsError(f"received the action {action!r}, expected 0 to {len(self._actions) - 1}")
        if self.settings.sticky and self.np_random.random() < self.settings.sticky:
            chosen = self._last_action
        self._last_action = chosen
        emulator.hold(self._actions[chosen])
        emulator.run(self.settings.frame_skip, render=self._draws)
        self._steps += 1
        values = self._layout.read(emulator.memory)
        reward = self._rewards.step(values)
        looked = self._look(values)
        ended = [ending for ending, is_true in zip(self.game.endings, looked, strict=False) if is_true]
        terminated, success = bool(ended), any(ending.success for ending in ended)
        truncated = not terminated and self._steps >= self.settings.episode_length
        observation = {name: view.see(values, emulator) for name, view in self._views.items()}
        info = self._info(looked, success)
        if terminated or truncated:
            info["reward_terms"] = dict(zip(self._rewards.names, self._rewards.totals, strict=True))
        return self._single(observation), reward, terminated, truncated, info

    def _info(self, looked: tuple[Any, ...], success: bool) -> dict[str, Any]:
        info: dict[str, Any] = dict(zip(self.game.info, looked[len(self.game.endings) :], strict=True))
        info["is_success"] = success
        return info

    def _single(self, observation: dict[str, Any]) -> Any:
        return observation if len(observation) > 1 else next(iter(observation.values()))

    def render(self) -> Any:
        """Return the screen as an RGB array, [144, 160, 3]."""
        return self._running().picture.copy() if self.render_mode == "rgb_array" else None

    # ---- state and end ----

    def get_state(self) -> dict[str, Any]:
        """Return everything that determines how the environment continues, as plain data."""
        emulator = self._running()
        return {
            "rom_and_game": self.game.title,
            "console": emulator.save(),
            "held": sorted(emulator.held),
            "steps": self._steps,
            "last_action": self._last_action,
            "plays": self._plays,
            "rewards": self._rewards.get_state(),
            "views": {name: view.get_memory() for name, view in self._views.items()},
            "generator": self.np_random.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state from an environment with the same settings."""
        if state["rom_and_game"] != self.game.title or state["views"].keys() != self._views.keys():
            raise StateError(
                f"the state is of {state['rom_and_game']!r} seen as {'+'.join(state['views'])}, "
                f"and this environment is {self.game.title!r} seen as {self.settings.observation}",
                hint="build the environment with the same settings as the one that gave the state",
            )
        self._running().load(np.asarray(state["console"], np.uint8), frozenset(state["held"]))
        self._steps, self._last_action, self._plays = state["steps"], state["last_action"], state["plays"]
        self._rewards.set_state(state["rewards"])
        for name, memory in state["views"].items():
            self._views[name].set_memory(memory)
        self.np_random.bit_generator.state = state["generator"]

    def _running(self) -> Emulator:
        if self._emulator is None:
            raise ProtocolError("the environment is closed")
        return self._emulator

    def close(self) -> None:
        emulator, self._emulator = self._emulator, None
        if emulator is not None:
            emulator.close()
