"""One Game Boy without window and sound: takes buttons; gives memory, screen images and full states."""

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
    """Import PyBoy, or raise an error that names the pip command."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on import, PySDL2 warns about the library it found; we open no window
            import pyboy
            import pyboy.utils
    except ImportError as error:
        raise MissingExtraError(
            "envfleet/GameBoy-v0 needs the emulator PyBoy, which is not installed",
            hint="pip install 'envfleet[gameboy]'",
        ) from error
    return pyboy


class Emulator:
    """A console with a cartridge, just switched on."""

    def __init__(self, rom: bytes) -> None:
        pyboy = pyboy_module()
        events = pyboy.utils.WindowEvent
        self._press = [getattr(events, _event("PRESS", button)) for button in BUTTONS]
        self._release = [getattr(events, _event("RELEASE", button)) for button in BUTTONS]
        self._held: frozenset[int] = frozenset()
        # Pass bytes: given a path, PyBoy would look for saved games beside the ROM, and write some there.
        self._console: Any = pyboy.PyBoy(io.BytesIO(rom), window="null", sound_emulated=False, log_level="ERROR")
        self._console.set_emulation_speed(0)
        self.memory: Any = self._console.memory

    def hold(self, buttons: frozenset[int]) -> None:
        """Hold exactly these buttons (indices into BUTTONS) from the next frame on."""
        if buttons != self._held:
            for button in sorted(self._held - buttons):
                self._console.send_input(self._release[button])
            for button in sorted(buttons - self._held):
                self._console.send_input(self._press[button])
            self._held = buttons

    def run(self, frames: int, *, render: bool = False) -> None:
        """Run for `frames` frames. `render` draws the last one."""
        self._console.tick(frames, render, False)

    @property
    def picture(self) -> Bytes:
        """The last drawn frame, [144, 160, 3]. This is a view that the next frame overwrites."""
        picture: Bytes = self._console.screen.ndarray[:, :, :3]
        return picture

    @property
    def screen(self) -> Bytes:
        """The same with an alpha channel, [144, 160, 4], as stored in memory."""
        screen: Bytes = self._console.screen.ndarray
        return screen

    def save(self) -> Bytes:
        """Return the full compressed state of the console. Call it between runs, when no button event is pending."""
        buffer = io.BytesIO()
        self._console.save_state(buffer)
        # Most of the state is the screen image, which compresses to a tenth or less.
        return np.frombuffer(zlib.compress(buffer.getvalue(), 1), np.uint8)

    def load(self, state: Bytes, held: frozenset[int] = frozenset()) -> None:
        """Restore a state that `save` returned while the buttons `held` were down."""
        try:
            unpacked = zlib.decompress(state.tobytes())
        except zlib.error as error:
            raise StateError(f"the state of {len(state):,} bytes cannot be loaded: it is damaged") from error
        self.load_file(unpacked)
        self._held = held

    def load_file(self, state: bytes) -> None:
        """Restore a PyBoy state file, with no button down."""
        try:
            self._console.load_state(io.BytesIO(state))
        except Exception as error:  # PyBoy's own exceptions, and any error from reading past the end
            raise StateError(
                f"the state of {len(state):,} bytes cannot be loaded: {type(error).__name__}: {error}",
                hint="it must come from this version of PyBoy (or an older one) and from the same ROM",
            ) from error
        self._held = frozenset()

    @property
    def held(self) -> frozenset[int]:
        return self._held

    def close(self) -> None:
        """Switch off without saving. Safe to call twice."""
        console, self._console = self._console, None
        self.memory = None
        if console is not None:
            console.stop(save=False)


def _event(what: str, button: str) -> str:
    kinds = {"up": "ARROW_UP", "down": "ARROW_DOWN", "left": "ARROW_LEFT", "right": "ARROW_RIGHT"}
    return f"{what}_{kinds.get(button, f'BUTTON_{button.upper()}')}"
