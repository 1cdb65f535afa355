"""Draw docs/images/lantern_isle.png: six moments of a game that the bot plays.

python -m rom.picture
"""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from envfleet.environments.gameboy.emulator import Emulator
from envfleet.environments.gameboy.environment import GameBoyEnv
from rom.build import BINARY
from rom.measure import current_values
from rom.page import ROOT
from rom.solver import Bot

PICTURE = ROOT / "docs/images/lantern_isle.png"
SEED = 2
TITLE_FRAMES = 110  # until the title is on the screen


def main() -> None:
    shots = [_title(), *_game()]
    width, height = 328, 296  # of an enlarged shot with its margin
    sheet = Image.new("RGB", (3 * width - 8, 2 * height - 8), (255, 255, 255))
    for number, shot in enumerate(shots):
        enlarged = Image.fromarray(np.ascontiguousarray(shot)).resize((320, 288), Image.Resampling.NEAREST)
        sheet.paste(enlarged, (number % 3 * width, number // 3 * height))
    sheet.convert("P", palette=Image.Palette.ADAPTIVE, colors=8).save(PICTURE, optimize=True)


def _title() -> Any:
    emulator = Emulator(BINARY.read_bytes())
    emulator.run(TITLE_FRAMES, render=True)
    shot = emulator.picture.copy()
    emulator.close()
    return shot


def _game() -> list[Any]:
    """Shots of the start, a cut bush, the found key, the screen with the door, and the lamp."""
    env, bot = GameBoyEnv(render_mode="rgb_array"), Bot()
    env.reset(seed=SEED)
    shots, ended = [env.render()], False
    wanted = ["bushes_cut", "has_key", "door_open"]
    while not ended:
        values = current_values(env)
        if wanted and values[wanted[0]]:
            shots.append(env.render())
            wanted.pop(0)
        _, _, terminated, truncated, _ = env.step(bot.act(values))
        ended = terminated or truncated
    shots.append(env.render())
    env.close()
    return shots


if __name__ == "__main__":
    main()
