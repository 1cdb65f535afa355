"""Make a start state: play to where episodes should begin, by hand in a window or with a list of buttons.

    python -m envfleet.environments.gameboy.start_state --rom zelda.gbc --output start.state
    python -m envfleet.environments.gameboy.start_state --rom zelda.gbc --output start.state \\
        --press "none 600" "start 10" "none 120" "a 10"

In the window, the arrow keys move, A and S are the buttons A and B, and return is start. Closing it saves the state.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envfleet.environments.gameboy.cartridge import read_rom
from envfleet.environments.gameboy.emulator import pyboy_module
from envfleet.environments.gameboy.game_files import buttons_of
from envfleet.errors import EnvfleetError, SettingsError

__all__ = ["main", "make_start_state"]


def make_start_state(rom: Path, output: Path, presses: Sequence[str] | None, *, begin_with: Path | None = None) -> None:
    """Write the state after `presses` ("a 10": button A for ten frames). If None, open a window to play in."""
    steps = None if presses is None else [_press(text) for text in presses]
    cartridge = io.BytesIO(read_rom(rom, (), "any"))
    window = "SDL2" if steps is None else "null"
    console = pyboy_module().PyBoy(cartridge, window=window, sound_emulated=False, log_level="ERROR")
    try:
        if begin_with is not None:
            console.load_state(io.BytesIO(begin_with.read_bytes()))
        if steps is None:
            while console.tick():
                pass
        else:
            console.set_emulation_speed(0)
            _play(console, steps)
        with output.open("wb") as file:
            console.save_state(file)
    finally:
        console.stop(save=False)


def _press(text: str) -> tuple[tuple[str, ...], int]:
    words = text.split()
    if len(words) != 2 or not words[1].isdigit() or words[1] == "0":
        raise SettingsError(f"received --press {text!r}, expected buttons and frames, e.g. 'start 10' or 'none 60'")
    return buttons_of(words[0], "--press"), int(words[1])


def _play(console: Any, steps: Sequence[tuple[tuple[str, ...], int]]) -> None:
    for buttons, frames in steps:
        for button in buttons:
            console.button_press(button)
        console.tick(frames, True, False)
        for button in buttons:
            console.button_release(button)
    console.tick(1, True, False)  # release the last buttons in a separate frame


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Prints errors and returns 1."""
    parser = argparse.ArgumentParser(
        prog="python -m envfleet.environments.gameboy.start_state",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rom", type=Path, required=True, help="the ROM (.gb or .gbc)")
    parser.add_argument("--output", type=Path, required=True, help="the state file to write")
    parser.add_argument("--from-state", type=Path, help="start from another state file")
    parser.add_argument("--press", nargs="+", metavar="'BUTTONS FRAMES'", help="press these, without a window")
    given = parser.parse_args(arguments)
    try:
        make_start_state(given.rom, given.output, given.press, begin_with=given.from_state)
    except EnvfleetError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{given.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
