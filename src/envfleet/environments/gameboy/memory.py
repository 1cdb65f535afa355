"""Named values in the memory of a Game Boy: their addresses and types, and fast reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["KINDS", "Layout", "Value", "parse_kind"]

# Bytes per number of each type. `be`: high byte first. `bcd`: two decimal digits per byte.
KINDS = {"u8": 1, "i8": 1, "u16": 2, "u16be": 2, "bcd8": 1, "bcd16": 2, "bcd16be": 2}
_NEAR = 12  # gaps of up to this many bytes are read too, to save a separate read


@dataclass(frozen=True)
class Value:
    """One name of a game's memory map."""

    name: str
    address: int
    kind: str
    length: int = 0  # length of the list, or 0 for a single number

    @property
    def size(self) -> int:
        """Total bytes."""
        return KINDS[self.kind] * max(1, self.length)

    def number(self, data: Sequence[int]) -> Any:
        """Decode these bytes to a number or a list of numbers."""
        if not self.length:
            return _number(self.kind, data)
        width = KINDS[self.kind]
        return [_number(self.kind, data[at : at + width]) for at in range(0, self.size, width)]

    def bytes_of(self, number: int) -> list[int]:
        """Encode a number."""
        if self.kind.startswith("bcd"):
            number = int(str(number), 16)
        order = "big" if self.kind.endswith("be") else "little"
        return list((number % 256 ** KINDS[self.kind]).to_bytes(KINDS[self.kind], order))


def parse_kind(text: str) -> tuple[str, int] | None:
    """Parse type and length from `u8` or `u8[3]`; None if invalid."""
    match = re.fullmatch(r"(\w+?)(?:\[(\d+)\])?", text)
    if match is None or match[1] not in KINDS or match[2] == "0":
        return None
    return match[1], int(match[2] or 0)


def _number(kind: str, data: Sequence[int]) -> int:
    if kind == "u8":
        return data[0]
    if kind == "i8":
        return data[0] - 256 if data[0] > 127 else data[0]
    digits = [10 * (byte >> 4) + (byte & 15) for byte in data] if kind.startswith("bcd") else data
    base = 100 if kind.startswith("bcd") else 256
    low_first = digits if len(digits) == 1 or not kind.endswith("be") else digits[::-1]
    return sum(digit * base**place for place, digit in enumerate(low_first))


class Layout:
    """All values of a game, read from memory in as few slices as their addresses allow."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = dict(values)
        pieces: list[tuple[int, int]] = []
        for value in sorted(values.values(), key=lambda value: value.address):
            end = value.address + value.size
            if pieces and value.address - pieces[-1][1] <= _NEAR:
                pieces[-1] = (pieces[-1][0], max(pieces[-1][1], end))
            else:
                pieces.append((value.address, end))
        self._pieces = [slice(start, end) for start, end in pieces]
        place = {}
        at = 0
        for start, end in pieces:
            for value in values.values():
                if start <= value.address < end:
                    place[value.name] = at + value.address - start
            at += end - start
        # One compiled expression reads all values: a loop over them would cost as much as the rest of a step.
        parts = [_taking(number, value, place[value.name]) for number, value in enumerate(values.values())]
        source = f"lambda data: [{', '.join(parts)}]"
        self._take: Callable[[list[int]], list[Any]] = eval(source, {"values": list(values.values())})

    def read(self, memory: Any) -> list[Any]:
        """Return every value, in the order of the memory map. `memory` returns lists of bytes for slices."""
        data: list[int] = []
        for piece in self._pieces:
            data += memory[piece]
        return self._take(data)


def _taking(number: int, value: Value, at: int) -> str:
    """The expression for a value that begins at byte `at` of `data`. The common types need no call."""
    if value.kind == "u8":
        return f"data[{at}:{at + value.length}]" if value.length else f"data[{at}]"
    if value.kind == "u16" and not value.length:
        return f"data[{at}] | data[{at + 1}] << 8"
    return f"values[{number}].number(data[{at}:{at + value.size}])"
