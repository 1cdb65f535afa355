"""A ROM that does nothing, with any title: tests write the console's memory."""

from __future__ import annotations

from pathlib import Path


def idle_rom(title: bytes = b"", *, bytes_in_all: int = 0x8000) -> bytes:
    """Return a ROM that sleeps forever between vertical-blank interrupts."""
    rom = bytearray(bytes_in_all)
    rom[0x40] = 0xD9  # reti
    rom[0x100:0x104] = bytes([0x00, 0xC3, 0x50, 0x01])  # nop; jp 0150
    rom[0x150:0x15A] = bytes([0x3E, 0x01, 0xE0, 0xFF, 0xFB, 0x76, 0x00, 0x18, 0xFC, 0x00])  # enable; halt; jr
    rom[0x134 : 0x134 + len(title)] = title
    checksum = 0
    for byte in rom[0x134:0x14D]:
        checksum = (checksum - byte - 1) & 0xFF
    rom[0x14D] = checksum
    return bytes(rom)


def write_idle_rom(folder: Path, title: bytes = b"", name: str = "idle.gb") -> Path:
    path = folder / name
    path.write_bytes(idle_rom(title))
    return path
