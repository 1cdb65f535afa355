"""Images of the environments: [height, width, 3]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

__all__ = ["bars", "gauge", "plane", "table", "view_from_above", "with_caption", "with_inset"]

Picture = NDArray[np.uint8]
_SIZE, _CAPTION, _INSET, _LEGEND = 360, 44, 150, 18
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


def with_inset(picture: Picture, inset: Picture) -> Picture:
    """The picture with a small one in its upper right corner."""
    page = Image.fromarray(picture)
    page.paste(Image.fromarray(inset), (page.width - inset.shape[1] - 6, 6))
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


def view_from_above(
    path: Sequence[tuple[float, float]], goal: tuple[float, float] | None = None, direction: float | None = None
) -> Picture:
    """An inset: the path of a robot from its start, and its goal, or an arrow in the direction of its task."""
    page, draw = _inset(f"green: {'goal' if direction is None else 'task'}, blue: path")
    middle, side = _INSET / 2, _INSET / 2 - 12
    start = path[0] if goal is None else (0.0, 0.0)  # goals are places, directions begin at the start
    points = [(x - start[0], y - start[1]) for x, y in path]
    reach = max(1.0, *(abs(part) for point in [*points, goal or (0.0, 0.0)] for part in point))

    def at(x: float, y: float) -> tuple[float, float]:
        return middle + x / reach * side, middle - y / reach * side

    draw.line((middle, 6, middle, _INSET - 6), _FAINT)
    draw.line((6, middle, _INSET - 6, middle), _FAINT)
    if direction is not None:
        _arrow(draw, (middle, middle), direction, side)
    if goal is not None:
        _disc(draw, at(*goal), 7, _GREEN)
    if len(points) > 1:
        draw.line([at(*point) for point in points], _BLUE, 2)
    _disc(draw, at(*points[0]), 3, _INK)
    _disc(draw, at(*points[-1]), 5, _BLUE)
    draw.text((6, 2), "from above", _INK, _font(11))
    return np.asarray(page).copy()


def gauge(target: float, speed: float, low: float, high: float) -> Picture:
    """An inset: a scale from `low` to `high` with the speed of the task and that of the robot."""
    page, draw = _inset("green: task, blue: speed")
    left, right, middle = 14, _INSET - 14, _INSET / 2

    def at(value: float) -> float:
        return left + (min(max(value, low), high) - low) / (high - low) * (right - left)

    draw.line((left, middle, right, middle), _INK, 2)
    for tick in range(math.ceil(low), math.floor(high) + 1):
        draw.line((at(tick), middle - 4, at(tick), middle + 4), _INK)
        draw.text((at(tick) - 3, middle + 8), str(tick), _INK, _font(11))
    x, y = at(target), middle - 6
    draw.polygon(((x, y), (x - 9, y - 20), (x + 9, y - 20)), fill=_GREEN)
    x, y = at(speed), middle + 26
    draw.polygon(((x, y), (x - 9, y + 20), (x + 9, y + 20)), fill=_BLUE)
    draw.text((left, 14), f"task {target:.2f}", _GREEN, _font(14))
    draw.text((left, _INSET - 24), f"speed {speed:.2f}", _BLUE, _font(14))
    return np.asarray(page).copy()


def _inset(legend: str) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    page = Image.new("RGB", (_INSET, _INSET + _LEGEND), _PAPER)
    draw = ImageDraw.Draw(page)
    draw.rectangle((0, 0, _INSET - 1, _INSET + _LEGEND - 1), outline=_INK)
    draw.text((8, _INSET), legend, _INK, _font(11))
    return page, draw


def _arrow(draw: ImageDraw.ImageDraw, start: tuple[float, float], angle: float, length: float) -> None:
    """An arrow; the angle is counter-clockwise from the right, as in mathematics."""

    def at(distance: float, aside: float) -> tuple[float, float]:
        x, y = math.cos(angle), math.sin(angle)
        return start[0] + distance * x - aside * y, start[1] - distance * y - aside * x

    draw.line((*start, *at(length - 10, 0)), _GREEN, 5)
    draw.polygon((at(length, 0), at(length - 18, 10), at(length - 18, -10)), fill=_GREEN)


def _page() -> tuple[Image.Image, ImageDraw.ImageDraw]:
    page = Image.new("RGB", (_SIZE, _SIZE), _PAPER)
    return page, ImageDraw.Draw(page)


def _disc(draw: ImageDraw.ImageDraw, at: tuple[float, float], radius: float, colour: tuple[int, int, int]) -> None:
    x, y = at
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def _font(size: int) -> Any:
    return ImageFont.load_default(size)
