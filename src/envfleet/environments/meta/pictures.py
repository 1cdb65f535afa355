"""Images of the environments: [height, width, 3]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

__all__ = ["bars", "plane", "table", "with_caption"]

Picture = NDArray[np.uint8]
_SIZE, _CAPTION = 360, 44
_PAPER, _INK, _FAINT = (255, 255, 255), (36, 41, 47), (208, 215, 222)
_GREEN, _RED, _BLUE, _YELLOW = (45, 164, 78), (207, 34, 46), (9, 105, 218), (255, 223, 93)


def with_caption(picture: Picture, *lines: str) -> Picture:
    """The picture with lines of text below it."""
    height, width = picture.shape[:2]
    page = Image.new("RGB", (width, height + _CAPTION), _PAPER)
    page.paste(Image.fromarray(picture), (0, 0))
    draw = ImageDraw.Draw(page)
    for row, line in enumerate(lines):
        draw.text((8, height + 4 + 19 * row), line, _INK, _font(14))
    return np.asarray(page).copy()


def bars(chances: Sequence[float], pulls: NDArray[np.int64], last: int) -> Picture:
    """A bandit: the chance of each arm as a bar, below it the pulls that paid (green) and did not (red)."""
    page, draw = _page()
    width = (_SIZE - 40) / len(chances)
    base, top = _SIZE - 110, 20
    for arm, chance in enumerate(chances):
        left, right = 20 + arm * width + 0.12 * width, 20 + (arm + 1) * width - 0.12 * width
        draw.rectangle((left, top, right, base), outline=_FAINT)
        draw.rectangle((left, base - chance * (base - top), right, base), fill=_BLUE)
        if arm == last:
            draw.rectangle((left - 3, top - 3, right + 3, base + 3), outline=_INK, width=3)
        draw.text((left, base + 8), str(pulls[1, arm]), _GREEN, _font(22))
        draw.text((left, base + 40), str(pulls[0, arm]), _RED, _font(22))
    draw.text((20, base + 76), "blue: chance to pay; pulls that paid and did not", _INK, _font(12))
    return np.asarray(page).copy()


def table(means: NDArray[Any], visits: NDArray[np.int64], at: int) -> Picture:
    """A decision process: the mean reward of each state (row) and action (column), with the visits as numbers."""
    page, draw = _page()
    states, actions = means.shape
    wide, high = (_SIZE - 60) / actions, (_SIZE - 50) / states
    for state in range(states):
        y = 25 + state * high
        draw.text((8, y + 5), str(state), _INK, _font(14))
        for action in range(actions):
            x = 40 + action * wide
            share = min(1.0, abs(float(means[state, action])) / 3.0)
            full = _GREEN if means[state, action] > 0 else _RED
            colour = tuple(round(255 + share * (part - 255)) for part in full)
            draw.rectangle((x, y, x + wide - 2, y + high - 2), fill=colour)
            if visits[state, action]:
                draw.text((x + wide / 2 - 6, y + 5), str(visits[state, action]), _INK, _font(14))
        if state == at:
            draw.rectangle((36, y - 3, _SIZE - 18, y + high), outline=_BLUE, width=3)
    draw.text((40, 4), "columns: actions; green: mean reward above 0", _INK, _font(12))
    return np.asarray(page).copy()


def plane(
    path: Sequence[tuple[float, float]], goal: tuple[float, float], radius: float, wind: tuple[float, float]
) -> Picture:
    """A robot in the plane: its path, the goal, and the wind as an arrow."""
    page, draw = _page()

    def at(x: float, y: float) -> tuple[float, float]:
        return _SIZE / 2 + x * _SIZE / 4, _SIZE * 0.6 - y * _SIZE / 4

    for line in (-1, 0, 1):
        draw.line((*at(line, -3), *at(line, 3)), _FAINT)
        draw.line((*at(-3, line), *at(3, line)), _FAINT)
    _disc(draw, at(*goal), max(4.0, radius * _SIZE / 4), _YELLOW)
    if any(wind):
        draw.line((40, 40, 40 + 350 * wind[0], 40 - 350 * wind[1]), _RED, 3)
        _disc(draw, (40, 40), 4, _RED)
    if len(path) > 1:
        draw.line([at(*point) for point in path], _BLUE, 2)
    _disc(draw, at(*path[0]), 3, _INK)
    x, y = at(*path[-1])
    _disc(draw, (min(max(x, 6), _SIZE - 6), min(max(y, 6), _SIZE - 6)), 6, _BLUE)  # at the edge if it is outside
    return np.asarray(page).copy()


def _page() -> tuple[Image.Image, ImageDraw.ImageDraw]:
    page = Image.new("RGB", (_SIZE, _SIZE), _PAPER)
    return page, ImageDraw.Draw(page)


def _disc(draw: ImageDraw.ImageDraw, at: tuple[float, float], radius: float, colour: tuple[int, int, int]) -> None:
    x, y = at
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def _font(size: int) -> Any:
    return ImageFont.load_default(size)
