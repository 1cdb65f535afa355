"""`procgen/<game>`: a Procgen game as a Gymnasium environment."""

from __future__ import annotations

import dataclasses
import operator
import zlib
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envfleet.capabilities import HeldOut
from envfleet.environments import PROCGEN_GAMES
from envfleet.environments.procgen.library import PICTURE, Game, find_library
from envfleet.environments.procgen.settings import EXPLORATION_LEVELS, ProcgenSettings, mode_problem
from envfleet.errors import ProtocolError, SettingsError, StateError
from envfleet.settings import Settings
from envfleet.wording import did_you_mean

__all__ = ["ProcgenEnv"]

_MODES = {"easy": 0, "hard": 1, "extreme": 2, "memory": 10, "exploration": 1}
ACTIONS = 15


class ProcgenEnv(gymnasium.Env[NDArray[np.uint8], Any]):
    """One Procgen game. Takes the game's name and the fields of `ProcgenSettings`.

    A time-out terminates an episode, as in all published results. The library has already replaced the final frame when
    it returns, so the last observation of an episode repeats the one before.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}
    settings_class: ClassVar[type[Settings]] = ProcgenSettings

    def __init__(self, game: str, *, render_mode: str | None = None, **settings: Any) -> None:
        if game not in PROCGEN_GAMES:
            hint = did_you_mean(game, PROCGEN_GAMES, ", ".join(PROCGEN_GAMES))
            raise SettingsError(f"there is no Procgen game {game!r}", hint=hint)
        if render_mode not in (None, "rgb_array"):
            raise SettingsError(f"received render_mode {render_mode!r}, expected 'rgb_array' or none")
        self.game, self.settings, self.render_mode = game, ProcgenSettings(**settings), render_mode
        if problem := mode_problem(game, self.settings.distribution_mode):
            raise SettingsError(problem)
        find_library()  # raises here if there is none, not only in the first reset
        self.observation_space = spaces.Box(0, 255, PICTURE, np.uint8)
        self.action_space = spaces.Discrete(ACTIONS)
        self._options = _options(game, self.settings)
        self._playing: Game | None = None
        self._begun = False  # an episode is running
        self._waiting = False  # the first frame of the next episode is already in the buffer
        self._closed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        if self._closed:
            raise ProtocolError("the environment is closed")
        if seed is not None or self._playing is None:
            self._restart(seed)
        elif not self._waiting:
            self._playing.begin_next()
        assert self._playing is not None
        self._begun, self._waiting = True, False
        return self._playing.picture.copy(), {"level": self._playing.level, "is_success": False}

    def _restart(self, seed: int | None) -> None:
        """Start the game again, with levels drawn from `seed`."""
        if self._playing is not None:
            self._playing.close()
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed % 2**31
        self._playing = Game(self.game, drawn, self._options, draws_screen=self.render_mode is not None)

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        playing = self._playing
        if playing is None or not self._begun:
            raise ProtocolError("step() was called before reset()")
        try:
            chosen = operator.index(action)
        except TypeError:
            chosen = -1
        if not 0 <= chosen < ACTIONS:
            raise SettingsError(f"received the action {action!r}, expected 0 to {ACTIONS - 1}")
        level, before = playing.level, playing.picture.copy()
        reward, ended = playing.step(chosen)
        self._begun, self._waiting = not ended, ended
        info = {"level": level, "is_success": playing.solved}
        return before if ended else playing.picture.copy(), reward, ended, False, info

    def render(self) -> Any:
        """Return the large image of the game, [512, 512, 3]."""
        if self.render_mode != "rgb_array":
            return None
        if self._playing is None:
            raise ProtocolError("render() was called before reset()")
        return self._playing.draw_screen()

    def generalisation(self) -> HeldOut | None:
        """All levels, if training uses only some of them (`envfleet.capabilities.HoldsOut`)."""
        if not self.settings.num_levels or self.settings.distribution_mode == "exploration":
            return None
        first, last = self.settings.start_level, self.settings.start_level + self.settings.num_levels - 1
        return HeldOut(f"levels {first:,} to {last:,}", "all levels", {"num_levels": 0, "start_level": 0})

    # ---- state and end ----

    def get_state(self) -> dict[str, Any]:
        """Return everything that determines how the environment continues, as plain data."""
        playing = None if self._playing is None else self._playing.save()
        return {
            "game": self.game,
            "settings": dataclasses.asdict(self.settings),
            "playing": playing,
            "checksum": _checksum(playing),
            "begun": self._begun,
            "waiting": self._waiting,
            "generator": self.np_random.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state from an environment with the same game and settings."""
        if (state["game"], state["settings"]) != (self.game, dataclasses.asdict(self.settings)):
            raise StateError(
                f"the state is of {state['game']} with {state['settings']}, and this environment is {self.game} with "
                f"{dataclasses.asdict(self.settings)}",
                hint="build the environment with the same settings as the one that gave the state",
            )
        playing, checksum = state["playing"], state.get("checksum")  # earlier versions did not record it
        if playing is not None:
            if checksum is not None and _checksum(playing) != checksum:  # the library would end the process
                raise StateError(
                    f"the state of {self.game} is damaged: its bytes do not match their checksum",
                    hint="restore another checkpoint",
                )
            if self._playing is None:
                self._restart(0)  # any seed will do: the state brings its own levels and generator
            assert self._playing is not None
            self._playing.load(playing)
        self._begun, self._waiting = state["begun"], state["waiting"]
        self.np_random.bit_generator.state = state["generator"]

    def close(self) -> None:
        self._closed = True
        playing, self._playing = self._playing, None
        if playing is not None:
            playing.close()


def _checksum(playing: bytes | None) -> int | None:
    return zlib.crc32(playing) if isinstance(playing, bytes) else None


def _options(game: str, settings: ProcgenSettings) -> dict[str, int | bool]:
    """The settings in the library's form. The mode exploration is one level of the mode hard."""
    values: dict[str, int | bool] = {
        field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)
    }
    values["distribution_mode"] = _MODES[settings.distribution_mode]
    if settings.distribution_mode == "exploration":
        values |= {"num_levels": 1, "start_level": EXPLORATION_LEVELS[game]}
    return values
