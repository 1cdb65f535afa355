"""Observations of the Game Boy: numbers from memory, screen images, or the tiles of the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from envfleet.environments.gameboy.emulator import Emulator
from envfleet.environments.gameboy.expressions import compile_all
from envfleet.environments.gameboy.games import Game, Tiles, Window

__all__ = ["Features", "Pixels", "ScreenTiles", "View", "view_of"]

Array = np.ndarray[Any, Any]
_HEIGHT, _WIDTH = 144, 160
# Weights of red, green, blue and alpha in the brightness, in 256ths.
_BRIGHTNESS = np.array([77, 150, 29, 0], np.float32)


class View(Protocol):
    """One kind of observation. Its memory between steps is part of the environment's state."""

    space: spaces.Box[Any]
    needs_picture: bool

    def begin(self, values: Sequence[Any], emulator: Emulator) -> Array: ...
    def see(self, values: Sequence[Any], emulator: Emulator) -> Array: ...
    def get_memory(self) -> Array | None: ...
    def set_memory(self, memory: Array | None) -> None: ...


def view_of(kind: str, game: Game, *, stack: int, shrink: int) -> View:
    """Return the view for a part of the `observation` setting."""
    if kind == "features":
        return Features(game)
    if kind == "pixels":
        return Pixels(stack, shrink)
    return ScreenTiles() if game.tiles is None else MemoryTiles(game, game.tiles)


class _WithoutMemory:
    """Base of views that keep nothing between steps."""

    needs_picture = False

    def begin(self, values: Sequence[Any], emulator: Emulator) -> Array:
        return self.see(values, emulator)

    def see(self, values: Sequence[Any], emulator: Emulator) -> Array:
        raise NotImplementedError

    def get_memory(self) -> Array | None:
        return None

    def set_memory(self, memory: Array | None) -> None:
        pass


class Features(_WithoutMemory):
    """The game file's features as one float32 vector. A category beyond its size is all zeros."""

    def __init__(self, game: Game) -> None:
        expressions: list[str] = []
        self._ranges: list[tuple[int, int, str, int]] = []  # expression, first index, kind, size
        self._windows: list[tuple[int, int, _WindowReader]] = []  # expression, first index, reader
        self.names: list[str] = []
        self._numbers: list[tuple[int, int]] = []  # expression and index of plain numbers
        for feature in game.features:
            place = len(self.names)
            if feature.window is not None:
                self._windows.append((len(expressions), place, _WindowReader(feature.window, game)))
                expressions += [feature.window.x, feature.window.y]
            elif feature.kind == "number":
                self._numbers.append((len(expressions), place))
                expressions.append(feature.expression)
            else:
                self._ranges.append((len(expressions), place, feature.kind, feature.size))
                expressions.append(feature.expression)
            many = feature.size > 1 or feature.kind != "number"
            self.names += [f"{feature.name}[{i}]" for i in range(feature.size)] if many else [feature.name]
        self._compute = compile_all(expressions, game.lengths, where=f"{game.source}: features")
        self._plain = np.array([place for _, place in self._numbers], np.intp)
        self._take = [number for number, _ in self._numbers]
        self.space: spaces.Box[Any] = spaces.Box(-np.inf, np.inf, (len(self.names),), np.float32)

    def see(self, values: Sequence[Any], emulator: Emulator) -> Array:
        computed = self._compute(values)
        row = np.zeros(len(self.names), np.float32)
        row[self._plain] = [computed[number] for number in self._take]
        for number, place, kind, size in self._ranges:
            value = int(computed[number])
            if kind == "bits":
                row[place : place + size] = [value >> bit & 1 for bit in range(size)]
            elif 0 <= value < size:
                row[place + value] = 1.0
        for number, place, window in self._windows:
            row[place : place + window.size] = window.read(values, int(computed[number]), int(computed[number + 1]))
        return row


class _WindowReader:
    """Reads the cells around a position and maps each kind to its number."""

    def __init__(self, window: Window, game: Game) -> None:
        self.size = window.size
        self._place = list(game.memory).index(window.cells)
        self._width, self._radius, self._outside = window.width, window.radius, window.outside
        self._height = game.memory[window.cells].length // window.width
        last = window.values[-1]
        self._table = [*window.values, *[last] * (256 - len(window.values))]

    def read(self, values: Sequence[Any], x: int, y: int) -> list[float]:
        cells, table, width, radius = values[self._place], self._table, self._width, self._radius
        left, right = max(0, x - radius), min(width, x + radius + 1)
        before, after = [self._outside] * (left - x + radius), [self._outside] * (x + radius + 1 - right)
        seen: list[float] = []
        for row in range(y - radius, y + radius + 1):
            if 0 <= row < self._height and left < right:
                seen += before
                seen += [table[cell] for cell in cells[row * width + left : row * width + right]]
                seen += after
            else:
                seen += [self._outside] * (2 * radius + 1)
        return seen


class Pixels:
    """The last frames in grey, downscaled by averaging: [height, width, stack], newest last."""

    needs_picture = True

    def __init__(self, stack: int, shrink: int) -> None:
        self._stack, self._shrink = stack, shrink
        self._shape = (_HEIGHT // shrink, _WIDTH // shrink)
        self.space: spaces.Box[Any] = spaces.Box(0, 255, (*self._shape, stack), np.uint8)
        self._seen: list[Array] = [np.zeros(self._shape, np.uint8)] * stack  # newest last
        self._weights = np.tile(_BRIGHTNESS, shrink) / np.float32(256 * shrink * shrink)

    def begin(self, values: Sequence[Any], emulator: Emulator) -> Array:
        self._seen = [self._grey(emulator.screen)] * self._stack
        return self.get_memory()

    def see(self, values: Sequence[Any], emulator: Emulator) -> Array:
        self._seen = [*self._seen[1:], self._grey(emulator.screen)]
        return self.get_memory()

    def _grey(self, screen: Array) -> Array:
        """Mean brightness, rounded down. float32 holds every sum exactly, because they are whole numbers."""
        step = self._shrink
        rows = screen[::step]
        for row in range(1, step):
            rows = np.add(rows, screen[row::step], dtype=np.uint16)
        # One product sums columns and colours: `step` pixels of four numbers lie side by side.
        total = rows.reshape(-1, 4 * step).astype(np.float32) @ self._weights
        return total.astype(np.uint8).reshape(self._shape)

    def get_memory(self) -> Array:
        stacked = np.empty(self.space.shape, np.uint8)
        for place, picture in enumerate(self._seen):
            stacked[:, :, place] = picture
        return stacked

    def set_memory(self, memory: Array | None) -> None:
        assert memory is not None
        self._seen = [memory[:, :, place].copy() for place in range(self._stack)]


class MemoryTiles(_WithoutMemory):
    """The cells that the game keeps in memory, [height, width]."""

    def __init__(self, game: Game, tiles: Tiles) -> None:
        self._place = list(game.memory).index(tiles.cells)
        self._shape = (tiles.height, tiles.width)
        self.space: spaces.Box[Any] = spaces.Box(0, tiles.kinds - 1, self._shape, np.uint8)

    def see(self, values: Sequence[Any], emulator: Emulator) -> Array:
        return np.array(values[self._place], np.uint8).reshape(self._shape)


class ScreenTiles(_WithoutMemory):
    """The numbers of the 18 x 20 background tiles on the screen, for any game."""

    def __init__(self) -> None:
        self.space: spaces.Box[Any] = spaces.Box(0, 255, (18, 20), np.uint8)
        self._rows, self._columns = np.arange(18)[:, None], np.arange(20)[None, :]

    def see(self, values: Sequence[Any], emulator: Emulator) -> Array:
        memory = emulator.memory
        control, scroll_y, scroll_x = memory[0xFF40], memory[0xFF42], memory[0xFF43]
        start = 0x9C00 if control & 0x08 else 0x9800
        tiles = np.array(memory[start : start + 0x400], np.uint8).reshape(32, 32)
        seen: Array = tiles[(self._rows + scroll_y // 8) % 32, (self._columns + scroll_x // 8) % 32]
        return seen
