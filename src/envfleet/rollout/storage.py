"""How a replay buffer stores observations: whole, or, for frame stacks, each frame once.

Entries number the ring row by row: with n environments, entry e is in row e // n, and its step leads to entry e + n.

A stack is rebuilt when it is sampled, from the frames of earlier entries. When a stack is written, it is compared with
the previous one. If it is not the same frames shifted by one (at the start of an episode or after a restart), its older
frames are stored aside. So reading returns exactly the bits that were written, however a wrapper pads its first stacks.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import Leaf

__all__ = ["Aside", "Stacks", "Store", "Whole", "entry_bytes", "equal", "stacked_leaves"]

Array = np.ndarray[Any, Any]
# Older frames are also stored aside if a stack does not continue within an episode. If more than this share of the
# stacks does not, the observation is no frame stack.
_FEW = 0.5


class Store(Protocol):
    """Stores the observations of one leaf of the observation space."""

    def write(self, entries: Array, observations: Array, begins: Array) -> None:
        """Store consecutive rows `[row, env, ...]` at `entries` [row, env].

        The first row is already stored, unless the store is empty. `begins` [row, env] marks stacks that need not
        continue those of the row before.
        """

    def read(self, entries: Array) -> Array:
        """Return the observations [entry, ...]."""

    def rows(self, entries: Array) -> dict[str, Array]:
        """Return the stored arrays of `entries` [row, env], to be written to a file."""

    def put_rows(self, entries: Array, parts: dict[str, Array]) -> None:
        """Store arrays returned by `rows`."""


class Whole:
    """Stores each observation unchanged."""

    def __init__(self, leaf: Leaf, entries: int) -> None:
        self._values = np.zeros((entries, *leaf.shape), leaf.dtype)

    def write(self, entries: Array, observations: Array, begins: Array) -> None:
        self._values[entries] = observations

    def read(self, entries: Array) -> Array:
        return self._values.take(entries, axis=0, mode="clip")  # entries are always in range: skip the check

    def rows(self, entries: Array) -> dict[str, Array]:
        return {"": self._values[entries]}

    def put_rows(self, entries: Array, parts: dict[str, Array]) -> None:
        self._values[entries] = parts[""]


class Stacks:
    """Stores the newest frame of each stack (the last along the axis), and older frames that no other entry holds.

    The frames of an environment are adjacent, so a stack is one contiguous piece of memory.
    """

    def __init__(self, leaf: Leaf, entries: int, n_envs: int, frames: int) -> None:
        self._name, self._shape, self._frames, self._n_envs = leaf.name, leaf.shape, frames, n_envs
        self._axis = _axis(leaf.shape, frames)
        self._deep = leaf.shape[self._axis] // frames  # channels of one frame
        one = list(leaf.shape)
        one[self._axis] = self._deep
        self._reach = frames - 1  # earlier entries that a stack is rebuilt from
        self._rows = entries // n_envs
        self._newest = np.zeros((entries, *one), leaf.dtype)  # at `_place` of its entry
        # Steps since the entry whose older frames were stored aside; from `_reach` on, they are not needed.
        self._age = np.zeros(entries, np.uint8)
        older = list(leaf.shape)
        older[self._axis] = self._deep * (frames - 1)
        self._older = Aside({"": (tuple(older), leaf.dtype)}, entries)
        self._empty = True

    # --- writing

    def write(self, entries: Array, observations: Array, begins: Array) -> None:
        goes_on = np.zeros(entries.shape, np.bool_)
        goes_on[1:] = equal(self._part(observations[1:], 0, -1), self._part(observations[:-1], 1, None))
        self._refuse(goes_on[1:] | begins[1:])
        if self._empty or not equal(self.read(entries[0])[None], observations[:1]).all():
            self._keep(entries[:1], observations[:1], goes_on[:1])
        self._empty = False
        self._keep(entries[1:], observations[1:], goes_on[1:])

    def _keep(self, entries: Array, observations: Array, goes_on: Array) -> None:
        self._older.drop(entries.reshape(-1))
        self._newest[self._place(entries)] = self._part(observations, -1, None)
        for at, on in zip(entries, goes_on, strict=True):
            before = self._age[(at - self._n_envs) % len(self._age)]
            self._age[at] = np.where(on, np.minimum(before, self._reach) + 1, 0)
        row, env = np.nonzero(~goes_on)
        self._older.put(entries[row, env], {"": self._part(observations[row, env][None], 0, -1)[0]})

    def _place(self, entries: Array, back: Array | int = 0) -> Array:
        """Positions of the newest frames of entries, or of the frames `back` steps earlier."""
        row, env = np.divmod(entries, self._n_envs)
        place: Array = env * self._rows + (row - back) % self._rows
        return place

    def _part(self, observations: Array, first: int, last: int | None) -> Array:
        """Return frames `first` to `last` of observations [row, env, ...]."""
        along: list[Any] = [slice(None)] * (2 + len(self._shape))
        along[2 + self._axis] = slice(first * self._deep, None if last is None else last * self._deep)
        part: Array = observations[tuple(along)]
        return part

    def _refuse(self, fits: Array) -> None:
        if fits.size and np.count_nonzero(~fits) > _FEW * fits.size:
            where = f" at {self._name!r}" if self._name else ""
            raise SettingsError(
                f"the observation{where} of the shape {self._shape} is no stack of the last {self._frames} frames: "
                f"{np.count_nonzero(~fits)} of {fits.size} were not the one before moved by one frame along axis "
                f"{self._axis}, with a new one at its end",
                hint="give frame_stack the number of frames that are stacked, or 1 to store observations as they are",
            )

    # --- reading

    def read(self, entries: Array) -> Array:
        at = self._place(entries[:, None], np.arange(self._reach, -1, -1))
        frames = self._newest.take(at, axis=0, mode="clip")  # [entry, frame, ...]
        age = self._age.take(entries)
        young = np.flatnonzero(age < self._reach)  # recently begun episodes: some of their frames are stored aside
        if len(young):
            back = age[young].astype(np.int64)
            kept = self._older.read((entries[young] - back * self._n_envs) % len(self._age))
            for place, steps, older in zip(young.tolist(), back.tolist(), self._frames_of(kept[""]), strict=True):
                frames[place, : self._reach - steps] = older[steps:]
        return self._joined(frames)

    def _frames_of(self, older: Array) -> Array:
        """[entry, ...] with frames along the axis -> [entry, frame, ...]."""
        shape = (len(older), *self._shape[: self._axis], self._reach, self._deep, *self._shape[self._axis + 1 :])
        return np.moveaxis(older.reshape(shape), 1 + self._axis, 1)

    def _joined(self, frames: Array) -> Array:
        """[entry, frame, ...] -> [entry, ...] with the frames along the axis."""
        return np.ascontiguousarray(np.moveaxis(frames, 1, 1 + self._axis)).reshape(len(frames), *self._shape)

    # --- files

    def rows(self, entries: Array) -> dict[str, Array]:
        at, values = self._older.held(entries.reshape(-1))
        return {
            "newest": self._newest[self._place(entries)],
            "age": self._age[entries],
            "older_at": at,
            "older": values[""],
        }

    def put_rows(self, entries: Array, parts: dict[str, Array]) -> None:
        self._older.drop(entries.reshape(-1))
        self._newest[self._place(entries)], self._age[entries] = parts["newest"], parts["age"]
        self._older.put(entries.reshape(-1)[parts["older_at"]], {"": parts["older"]})
        self._empty = False


class Aside:
    """Sparse storage for values that few entries have; it grows on demand."""

    BYTES_PER_ENTRY = 4
    _FIRST_SLOTS = 8

    def __init__(self, leaves: dict[str, tuple[tuple[int, ...], Any]], entries: int) -> None:
        slots = self._FIRST_SLOTS
        self._values = {name: np.zeros((slots, *shape), dtype) for name, (shape, dtype) in leaves.items()}
        self._slot = np.zeros(entries, np.int32)  # counted from 1; 0: none
        self._free = list(range(slots))

    @classmethod
    def slots_for(cls, count: int) -> int:
        """Number of slots after `count` entries were stored: it doubles when there are too few."""
        slots = cls._FIRST_SLOTS
        while slots < count:
            slots *= 2
        return slots

    def put(self, entries: Array, values: dict[str, Array]) -> None:
        """Store values [entry, ...] for entries that have none."""
        while len(self._free) < len(entries):
            size = len(next(iter(self._values.values())))
            self._values = {name: np.concatenate([array, np.zeros_like(array)]) for name, array in self._values.items()}
            self._free += range(size, 2 * size)
        slots = np.array([self._free.pop() for _ in range(len(entries))], np.int32)
        self._slot[entries] = slots + 1
        for name, value in values.items():
            self._values[name][slots] = value

    def read(self, entries: Array) -> dict[str, Array]:
        slots = self._slot[entries] - 1
        return {name: array[slots] for name, array in self._values.items()}

    def drop(self, entries: Array) -> None:
        slots = self._slot[entries]
        self._free += (slots[slots > 0] - 1).tolist()
        self._slot[entries] = 0

    def held(self, entries: Array) -> tuple[Array, dict[str, Array]]:
        """Return the indices of the entries that have values, and the values."""
        at = np.flatnonzero(self._slot[entries])
        return at, self.read(entries[at])


def entry_bytes(leaf: Leaf, frames: int) -> int:
    """Bytes per entry of a leaf stored whole (`frames` is 1), or of a stack of `frames` frames."""
    whole = int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize
    return whole if frames == 1 else whole // frames + 1 + Aside.BYTES_PER_ENTRY


def stacked_leaves(leaves: list[Leaf], frames: int) -> list[Leaf]:
    """Return the frame-stack leaves: their first or last dimension is `frames`, or, failing that, a multiple of it."""
    if frames == 1:
        return []
    boxes = [leaf for leaf in leaves if leaf.shape]
    exact = [leaf for leaf in boxes if frames in (leaf.shape[0], leaf.shape[-1])]
    found = exact or [leaf for leaf in boxes if leaf.shape[_axis(leaf.shape, frames)] % frames == 0]
    if not found:
        shapes = ", ".join(str(leaf.shape) for leaf in leaves)
        raise SettingsError(
            f"frame_stack is {frames}, but no part of the observation can be a stack of {frames} frames: {shapes}",
            hint="frames are stacked along the first or the last dimension",
        )
    return found


def _axis(shape: tuple[int, ...], frames: int) -> int:
    """Axis of the frames: the first or last dimension, whichever is `frames`, else the shorter one, as for channels."""
    last = len(shape) - 1
    if frames in (shape[0], shape[last]):
        return 0 if shape[0] == frames else last
    return last if shape[last] < shape[0] else 0


def equal(some: Array, others: Array) -> Array:
    """[row, env]: whether observations are identical, bit by bit."""
    bits = f"u{some.dtype.itemsize}"  # comparing floats would equate 0.0 with -0.0, and NaN never equals itself
    width = math.prod(some.shape[2:])  # -1 would not do if there are no environments
    same: Array = (some.view(bits) == others.view(bits)).reshape(*some.shape[:2], width).all(axis=2)
    return same
