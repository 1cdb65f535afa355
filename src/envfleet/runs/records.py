"""Records of a TensorBoard event file: each is its length, its bytes, and a checksum of both.

TensorBoard's own writer computes the checksums byte by byte in Python, which took a third of the time of all reporting.
A CRC is linear: the checksum of a message is the XOR of what each of its bytes adds, and that depends only on the byte
and on its distance from the end. So a table of these and a few calls of NumPy give the same number.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np

__all__ = ["Checksum", "RecordWriter"]

_POLYNOMIAL = np.uint32(0x82F63B78)  # Castagnoli, its bits reversed
_MASK, _ONES = 0xA282EAD8, 0xFFFFFFFF
_BLOCK = 1024  # bytes of a message at a time: keeps the table small


class RecordWriter:
    """Appends records to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._checksum = Checksum()

    def write(self, content: bytes) -> None:
        length = struct.pack("<Q", len(content))
        self._file.write(b"".join([length, self._checksum.masked(length), content, self._checksum.masked(content)]))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Checksum:
    """CRC-32C of messages of at least four bytes."""

    def __init__(self) -> None:
        values = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            values = np.where(values & 1, values >> 1 ^ _POLYNOMIAL, values >> 1)
        self._added = values[None, :]  # [distance from the end, byte]; grows up to two blocks

    def of(self, message: bytes) -> int:
        """Return the checksum."""
        values, register, begin = np.frombuffer(message, np.uint8).copy(), _ONES, 0
        while begin < len(values):
            rest = len(values) - begin
            block = values[begin : begin + (rest if rest < 2 * _BLOCK else _BLOCK)]
            block[:4] ^= np.frombuffer(struct.pack("<I", register), np.uint8)  # the register so far
            self._grow(len(block))
            distances = np.arange(len(block) - 1, -1, -1)
            register = int(np.bitwise_xor.reduce(self._added[distances, block]))
            begin += len(block)
        return register ^ _ONES

    def masked(self, message: bytes) -> bytes:
        """Return the checksum as it is stored. It is masked, because records may contain checksums."""
        found = self.of(message)
        rotated = (found >> 15 | found << 17) & _ONES
        return struct.pack("<I", (rotated + _MASK) & _ONES)

    def _grow(self, length: int) -> None:
        if length <= len(self._added):
            return
        rows = [*self._added]
        while len(rows) < 2 * length:  # a zero byte after the message moves each byte further from the end
            rows.append(rows[0][rows[-1] & 0xFF] ^ rows[-1] >> 8)
        self._added = np.stack(rows)
