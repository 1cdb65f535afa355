"""One Game Boy without window and sound: buttons in; frames, memory, pictures and whole states out."""

from __future__ import annotations

import io
import warnings
import zlib
from typing import Any

import numpy as np

from envfleet.environments.gameboy.games import BUTTONS
from envfleet.errors import MissingExtraError, StateError

__all__ = ["Emulator", "pyboy_module"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def pyboy_module() -> Any:
    """PyBoy, or an error that names the pip command."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySDL2 tells on import which library it found; we open no window
            import pyboy
            import pyboy.utils
    except ImportError as error:
        raise MissingExtraError(
            "envfleet/GameBoy-v0 needs the emulator PyBoy, which is not installed",
            hint="pip install 'envfleet[gameboy]'",
        ) from error
    return pyboy


class Emulator:
    """A console with a cartridge in it, just switched on."""

    def __init__(self, rom: bytes) -> None:
        pyboy = pyboy_module()
        events = pyboy.utils.WindowEvent
        self._press = [getattr(events, _event("PRESS", button)) for button in BUTTONS]
        self._release = [getattr(events, _event("RELEASE", button)) for button in BUTTONS]
        self._held: frozenset[int] = frozenset()
        # From memory: given a path, PyBoy would look for saved games beside the ROM, and write some there.
        self._console: Any = pyboy.PyBoy(io.BytesIO(rom), window="null", sound_emulated=False, log_level="ERROR")
        self._console.set_emulation_speed(0)
        self.memory: Any = self._console.memory

    def hold(self, buttons: frozenset[int]) -> None:
        """From the next frame on, these buttons (numbers in BUTTONS) are down and no others."""
        if buttons != self._held:
            for button in sorted(self._held - buttons):
                self._console.send_input(self._release[button])
            for button in sorted(buttons - self._held):
                self._console.send_input(self._press[button])
            self._held = buttons

    def run(self, frames: int, *, render: bool = False) -> None:
        """Lets frames pass; the picture of the last one is drawn where it is asked for."""
        self._console.tick(frames, render, False)

    @property
    def picture(self) -> Bytes:
        """The last picture that was drawn, [144, 160, 3]; the next one is drawn over it."""
        picture: Bytes = self._console.screen.ndarray[:, :, :3]
        return picture

    @property
    def screen(self) -> Bytes:
        """The same with transparency, [144, 160, 4]: as it lies in memory."""
        screen: Bytes = self._console.screen.ndarray
        return screen

    def save(self) -> Bytes:
        """Everything inside the console, packed; between two runs, so that no button waits to be pressed."""
        buffer = io.BytesIO()
        self._console.save_state(buffer)
        # Most of it is the picture: a tenth or less is left.
        return np.frombuffer(zlib.compress(buffer.getvalue(), 1), np.uint8)

    def load(self, state: Bytes, held: frozenset[int] = frozenset()) -> None:
        """Goes on from what `save` gave, where the buttons `held` were down."""
        try:
            unpacked = zlib.decompress(state.tobytes())
        except zlib.error as error:
            raise StateError(f"the state of {len(state):,} bytes cannot be loaded: it is damaged") from error
        self.load_file(unpacked)
        self._held = held

    def load_file(self, state: bytes) -> None:
        """Goes on from a state file of PyBoy, with no button down."""
        try:
            self._console.load_state(io.BytesIO(state))
        except Exception as error:  # PyBoy raises its own, and whatever reading past the end gives
            raise StateError(
                f"the state of {len(state):,} bytes cannot be loaded: {type(error).__name__}: {error}",
                hint="it must come from this version of PyBoy (or an older one) and from the same ROM",
            ) from error
        self._held = frozenset()

    @property
    def held(self) -> frozenset[int]:
        return self._held

    def close(self) -> None:
        """Switches off; nothing is saved. It may be called twice."""
        console, self._console = self._console, None
        self.memory = None
        if console is not None:
            console.stop(save=False)


def _event(what: str, button: str) -> str:
    kinds = {"up": "ARROW_UP", "down": "ARROW_DOWN", "left": "ARROW_LEFT", "right": "ARROW_RIGHT"}
    return f"{what}_{kinds.get(button, f'BUTTON_{button.upper()}')}"
