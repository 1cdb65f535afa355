"""Named values in the memory of a Game Boy: where they are, what their bytes mean, and how to read them quickly."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["KINDS", "Layout", "Value", "parse_kind"]

# How many bytes a number of each kind has; `be`: the high byte comes first; `bcd`: two decimal digits a byte.
KINDS = {"u8": 1, "i8": 1, "u16": 2, "u16be": 2, "bcd8": 1, "bcd16": 2, "bcd16be": 2}
_NEAR = 12  # bytes between two values that are read and thrown away rather than left out


@dataclass(frozen=True)
class Value:
    """One name of a game's memory map."""

    name: str
    address: int
    kind: str
    length: int = 0  # how many numbers, or 0 for one that is no list

    @property
    def size(self) -> int:
        """Bytes in all."""
        return KINDS[self.kind] * max(1, self.length)

    def number(self, data: Sequence[int]) -> Any:
        """The number, or the list of numbers, that these bytes mean."""
        if not self.length:
            return _number(self.kind, data)
        width = KINDS[self.kind]
        return [_number(self.kind, data[at : at + width]) for at in range(0, self.size, width)]

    def bytes_of(self, number: int) -> list[int]:
        """The bytes that mean a number."""
        if self.kind.startswith("bcd"):
            number = int(str(number), 16)
        order = "big" if self.kind.endswith("be") else "little"
        return list((number % 256 ** KINDS[self.kind]).to_bytes(KINDS[self.kind], order))


def parse_kind(text: str) -> tuple[str, int] | None:
    """Kind and length from `u8` or `u8[3]`; None where it is neither."""
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
    """All values of a game, read from memory in as few pieces as their addresses allow."""

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
        # One expression that takes all values: a loop over them would cost as much as everything else of a step.
        parts = [_taking(number, value, place[value.name]) for number, value in enumerate(values.values())]
        source = f"lambda data: [{', '.join(parts)}]"
        self._take: Callable[[list[int]], list[Any]] = eval(source, {"values": list(values.values())})

    def read(self, memory: Any) -> list[Any]:
        """Every value, in the order of the memory map; `memory` gives lists of bytes for slices."""
        data: list[int] = []
        for piece in self._pieces:
            data += memory[piece]
        return self._take(data)


def _taking(number: int, value: Value, at: int) -> str:
    """The expression for a value that begins at byte `at` of `data`; the usual kinds need no call."""
    if value.kind == "u8":
        return f"data[{at}:{at + value.length}]" if value.length else f"data[{at}]"
    if value.kind == "u16" and not value.length:
        return f"data[{at}] | data[{at + 1}] << 8"
    return f"values[{number}].number(data[{at}:{at + value.size}])"
