"""Values in memory: the meaning of their bytes, and reading them in few pieces."""

from __future__ import annotations

import pytest

from envfleet.environments.gameboy.memory import Layout, Value, parse_kind


class Memory:
    """Bytes as PyBoy returns them; counts the reads."""

    def __init__(self, content: dict[int, int]) -> None:
        self.content, self.reads = content, 0

    def __getitem__(self, piece: slice) -> list[int]:
        self.reads += 1
        return [self.content.get(address, 0) for address in range(piece.start, piece.stop)]


@pytest.mark.parametrize(
    ("kind", "data", "number"),
    [
        ("u8", [200], 200),
        ("i8", [200], -56),
        ("i8", [100], 100),
        ("u16", [0x34, 0x12], 0x1234),
        ("u16be", [0x12, 0x34], 0x1234),
        ("bcd8", [0x42], 42),
        ("bcd16", [0x56, 0x03], 356),
        ("bcd16be", [0x03, 0x56], 356),
    ],
)
def test_bytes_and_numbers(kind: str, data: list[int], number: int) -> None:
    value = Value("value", 0xC000, kind)
    assert value.number(data) == number
    assert value.bytes_of(number) == data


def test_lists() -> None:
    assert Value("value", 0, "u16", 2).number([1, 0, 2, 1]) == [1, 258]
    assert parse_kind("u16[2]") == ("u16", 2)
    assert parse_kind("u8") == ("u8", 0)
    assert [parse_kind(text) for text in ("u7", "u8[0]", "u8[-1]", "u8[", "")] == [None] * 5


def test_near_values_are_read_in_one_piece_and_come_in_the_order_of_the_map() -> None:
    values = [Value("far", 0xFF98, "u8"), Value("b", 0xC005, "bcd16"), Value("a", 0xC000, "u8", 3)]
    memory = Memory({0xC000: 1, 0xC001: 2, 0xC002: 3, 0xC005: 0x99, 0xC006: 0x01, 0xFF98: 7})
    layout = Layout({value.name: value for value in values})
    assert layout.read(memory) == [7, 199, [1, 2, 3]]
    assert memory.reads == 2
