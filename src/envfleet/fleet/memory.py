"""The memory block of a fleet: its layout, and how it is shared between processes.

All arrays of a fleet are in one block, each on a 64-byte boundary: small separate arrays would be only
8-byte aligned, and results of vectorised arithmetic may change with alignment. Workers get the block's descriptor at
their start; the block is sized and mapped once the spaces are known.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from envfleet.fleet.os_compat import nameless_file

__all__ = ["ArrayPlace", "Block", "Division", "Layout", "aligned"]

Array = np.ndarray[Any, Any]
ALIGNMENT = 64
Travels = Literal["never", "step", "routine", "always"]  # with which commands the rows of an array travel


@dataclass(frozen=True)
class Division:
    """How an array is divided among the workers, and when its rows travel to or from a worker with its own block.

    Workers that share the caller's block need none of this (`transfer.py` reads it). The arrays named in `only_at` and
    `only_first` are divided alike and come earlier in the block.
    """

    # "weight_set": only the rows of the sets that routines read travel, once for all workers of a message.
    by: Literal["env", "group", "weight_set", "nothing"] = "env"
    axis: int = 0  # the axis of the environments or groups
    to_worker: Travels = "never"
    to_caller: Travels = "never"
    buffered: bool = False  # the first axis is the buffer; only the one that a routine fills travels
    slot: int | None = None  # an array of observations: it also travels if it is the slot that a command fills
    only_at: tuple[str, ...] = ()  # it has values only where one of these flags is set
    only_first: tuple[str, ...] = ()  # [buffer, time, env]: its first rows have values, one for each of these flags
    only_if: str | None = None  # it has values only if the first number of this array is not zero


@dataclass(frozen=True)
class ArrayPlace:
    """Position, shape, dtype and division of one array in the block."""

    offset: int
    shape: tuple[int, ...]
    dtype: str
    division: Division

    def view(self, buffer: mmap.mmap) -> Array:
        return np.ndarray(self.shape, np.dtype(self.dtype), buffer, self.offset)


@dataclass
class Layout:
    """The arrays of a block, in the order in which they were added."""

    size: int = 0
    places: dict[str, ArrayPlace] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[int, ...], dtype: Any, division: Division = Division()) -> ArrayPlace:
        kind = np.dtype(dtype)
        place = ArrayPlace(self.size, shape, kind.str, division)
        count = int(np.prod(shape, dtype=np.int64))
        self.size += -(-max(count * kind.itemsize, 1) // ALIGNMENT) * ALIGNMENT
        self.places[name] = place
        return place

    def views(self, buffer: mmap.mmap) -> dict[str, Array]:
        return {name: place.view(buffer) for name, place in self.places.items()}


class Block:
    """Memory for one layout; shared through `fd` or private to this process (`fd` is None)."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = fd
        self.buffer: mmap.mmap | None = None

    @classmethod
    def create(cls, *, shared: bool) -> Block:
        return cls(nameless_file("envfleet") if shared else None)

    def allocate(self, size: int) -> mmap.mmap:
        """Set the block's size (once, by its owner) and map it."""
        if self.fd is not None:
            os.ftruncate(self.fd, size)
        return self.map(size)

    def map(self, size: int) -> mmap.mmap:
        self.buffer = mmap.mmap(-1, size) if self.fd is None else mmap.mmap(self.fd, size)
        return self.buffer

    def close(self) -> None:
        """Close the descriptor; the memory itself lives as long as an array refers to it."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        self.buffer = None


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros in private memory, aligned to 64 bytes."""
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.zeros(count + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    found: Array = raw[start : start + count].view(dtype).reshape(shape)
    return found
