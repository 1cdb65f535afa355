"""Reads ROM files, and refuses those that cannot be played."""

from __future__ import annotations

from pathlib import Path

from envfleet.errors import SettingsError

__all__ = ["read_rom", "title_of"]

_BANK = 0x4000  # bytes
_HEADER_END = 0x150
_SIZE_CODES = range(9)  # number of doublings of 32 KB


def read_rom(path: Path, titles: tuple[str, ...], game: str) -> bytes:
    """Return the bytes of the ROM. Its title must be one of `titles`, if any are given."""
    if not path.is_file():
        raise SettingsError(
            f"there is no ROM at {path}",
            hint="leave `rom` out to play the adventure that ships with Envfleet, or name a file (.gb or .gbc)",
        )
    try:
        rom = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"the ROM {path} cannot be read: {error.strerror}") from error
    if len(rom) < _HEADER_END or not _has_header(rom):
        raise SettingsError(
            f"{path} is not a Game Boy ROM: its header does not check ({len(rom):,} bytes)",
            hint="expected an unpacked .gb or .gbc file",
        )
    expected = 0x8000 << rom[0x148] if rom[0x148] in _SIZE_CODES else len(rom)
    if len(rom) < expected or len(rom) % _BANK:
        raise SettingsError(
            f"the ROM {path} is cut off: {len(rom):,} bytes, and its header says {expected:,}",
            hint="copy or dump it again",
        )
    if titles and title_of(rom) not in titles:
        raise SettingsError(
            f"the ROM {path} is {title_of(rom)!r}, and the game {game!r} is for {' or '.join(map(repr, titles))}",
            hint="choose another game, or write a game file for this ROM (docs/gameboy.md)",
        )
    return rom


def title_of(rom: bytes) -> str:
    """The title in the header, without the maker's code and colour flag that newer ROMs store there."""
    return rom[0x134:0x143].partition(b"\0")[0].decode("latin-1")


def _has_header(rom: bytes) -> bool:
    checksum = 0
    for byte in rom[0x134:0x14D]:
        checksum = (checksum - byte - 1) & 0xFF
    return checksum == rom[0x14D]
