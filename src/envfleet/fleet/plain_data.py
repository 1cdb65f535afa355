"""Converts Python values to plain data and back: without loss, and without running code.

Plain data is what strict JSON and a file of arrays can hold: None, bool, int, finite float, str, lists,
dictionaries with string keys, and NumPy arrays of native numbers. Any other value becomes a dictionary whose
key "$" names its kind: {"$": "tuple", "items": [1, 2]}. The module `plain_kinds` defines how each is written.

Guarantees:
- Identity. An object that occurs twice is written once, then as {"$": "same", "place": ...}. Arrays that overlap in
  memory are written as views of one piece of memory.
- Safety. Reading never imports, unpickles or calls anything that the data names. Classes are looked up only in modules
  that are already loaded; code (functions, classes, modules) is never created, only kept if the target has it.

A set keeps its members but not its iteration order. Keep the order of keys when writing the data to a file: the order
of dictionaries matters, and references point backwards.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from envfleet.errors import StateError

__all__ = ["MISSING", "TAG", "Kind", "Kinds", "Reader", "Writer", "damage_as_state_error", "is_same_class", "type_name"]

TAG = "$"
MISSING: Any = object()  # the target has no value at this place
_LONGEST_NUMBER = 4096  # bits; Python refuses to read decimals of more than 4300 digits
HINT = "give the environment a get_state() that returns plain data and a set_state(state) that takes it back"


def type_name(kind: type) -> str:
    """Full name of a class, for messages and states."""
    module = getattr(kind, "__module__", "builtins")  # some classes of C libraries have none
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def is_same_class(name: str, kind: type) -> bool:
    """Whether `name` is the `type_name` of `kind`, also if the main script has another module name here."""
    mains = ("__main__.", "__mp_main__.")
    if name.startswith(mains) or type_name(kind).startswith(mains):
        return name.rpartition(".")[2] == kind.__name__
    return name == type_name(kind)


@contextlib.contextmanager
def damage_as_state_error() -> Iterator[None]:
    """Report what a damaged state causes as a StateError."""
    try:
        yield
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise StateError(f"the state is damaged: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Kind:
    """How values of some types are written and read."""

    fits: Callable[[type], bool]
    write: Callable[[Writer, Any, str], dict[str, Any]]  # writer, value, place
    read: Callable[[Reader, dict[str, Any], Any, str], Any]  # reader, data, current value in the target, place
    has_identity: bool = False  # if it occurs twice, both must be the same object after reading


class Kinds:
    """The kinds by tag, and by the type of a value."""

    def __init__(self, by_tag: Mapping[str, Kind]) -> None:
        self.by_tag = by_tag
        self._tags: dict[type, str | None] = {}

    def can_write(self, kind: type) -> bool:
        return kind in {type(None), bool, int, float, str, list, dict} or self.tag_of(kind) is not None

    def tag_of(self, kind: type) -> str | None:
        if kind not in self._tags:
            self._tags[kind] = next((tag for tag, known in self.by_tag.items() if known.fits(kind)), None)
        return self._tags[kind]


class Writer:
    """Writes values as plain data; call `finish` after the last one."""

    def __init__(self, kinds: Kinds, hint: str = HINT) -> None:
        self._kinds, self.hint = kinds, hint
        self._places: dict[int, str] = {}
        self._alive: list[object] = []  # keeps objects alive, so that their ids stay unique
        self._arrays: list[tuple[np.ndarray, dict[str, Any]]] = []

    def note(self, value: object, place: str) -> None:
        """From now on, write `value` as a reference to `place`."""
        self._places[id(value)] = place
        self._alive.append(value)

    def write(self, value: Any, place: str) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if value.bit_length() <= _LONGEST_NUMBER else {TAG: "long number", "value": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {TAG: "float", "value": repr(value)}
        if (first_place := self._places.get(id(value))) is not None:
            return {TAG: "same", "place": first_place}
        if kind is list:
            self.note(value, place)
            return self.write_items(value, place)
        if kind is dict and TAG not in value and all(type(key) is str for key in value):
            self.note(value, place)
            return {key: self.write(item, f"{place}[{key!r}]") for key, item in value.items()}
        tag = self._kinds.tag_of(kind)
        if tag is None:
            raise StateError(f"{place} is of type {type_name(kind)}, which is not plain data", hint=self.hint)
        if self._kinds.by_tag[tag].has_identity:
            self.note(value, place)
        data = self._kinds.by_tag[tag].write(self, value, place)
        data[TAG] = tag
        return data

    def write_items(self, values: Iterable[Any], place: str) -> list[Any]:
        return [self.write(item, f"{place}[{index}]") for index, item in enumerate(values)]

    def write_array_later(self, array: np.ndarray) -> dict[str, Any]:
        """Return a dictionary that `finish` fills in, once it is known which arrays share memory."""
        data: dict[str, Any] = {}
        self._arrays.append((array, data))
        return data

    def finish(self) -> list[Any]:
        """Fill in the arrays; return the memory that several of them share."""
        by_owner: dict[int, list[tuple[np.ndarray, dict[str, Any]]]] = {}
        for array, data in self._arrays:
            by_owner.setdefault(id(memory_owner(array)), []).append((array, data))
        memory: list[Any] = []
        for members in by_owner.values():
            owner = memory_owner(members[0][0])
            foreign = owner.base is not None
            if foreign or not _need_their_memory([array for array, _ in members], owner):
                for array, data in members:
                    data.update(array_data(array), foreign=foreign)
            else:
                for array, data in members:
                    data.update(_view_data(array, owner, len(memory)))
                memory.append(array_data(owner.transpose(_axes_in_memory(owner))))
        return memory


class Reader:
    """Reads values back from plain data, for a freshly built target."""

    def __init__(self, kinds: Kinds, memory: list[dict[str, Any]]) -> None:
        self._kinds = kinds
        self._made: dict[str, Any] = {}
        self.memory = [array_from(data) for data in memory]

    def note(self, value: Any, place: str) -> Any:
        """From now on, resolve references to `place` as `value`."""
        self._made[place] = value
        return value

    def read(self, data: Any, current: Any, place: str) -> Any:
        if data is None or type(data) in {bool, int, float, str}:
            return data
        if type(data) is list:
            items = self.note([], place)
            items.extend(self.read_items(data, current, place))
            return items
        if type(data) is not dict:
            raise StateError(f"the state holds a {type_name(type(data))} at {place}, without a kind")
        if TAG not in data:
            mapping = self.note({}, place)
            for key, item in data.items():
                mapping[key] = self.read(item, entry_of(current, key), f"{place}[{key!r}]")
            return mapping
        tag = data[TAG]
        if tag == "same":
            if data["place"] not in self._made:
                raise StateError(f"the state refers at {place} to {data['place']}, which does not come before")
            return self._made[data["place"]]
        if not isinstance(tag, str) or tag not in self._kinds.by_tag:
            raise StateError(f"the state holds a value of unknown kind {tag!r} at {place}")
        return self.note(self._kinds.by_tag[tag].read(self, data, current, place), place)

    def read_items(self, data: list[Any], current: Any, place: str) -> list[Any]:
        return [self.read(item, item_of(current, index), f"{place}[{index}]") for index, item in enumerate(data)]


def item_of(current: Any, index: int) -> Any:
    """The target's item at `index`, or MISSING."""
    is_sequence = isinstance(current, list | tuple | deque)
    return current[index] if is_sequence and index < len(current) else MISSING


def entry_of(current: Any, key: Any) -> Any:
    """The target's value under `key`, or MISSING."""
    return current.get(key, MISSING) if isinstance(current, dict) else MISSING


# ---- arrays ----


def _is_native_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf" and dtype.isnative and dtype.itemsize <= 8


def is_bytes_only(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype.str` and the bytes are enough: numbers, bytes, text, dates; no objects, no fields."""
    return dtype.kind in "biufcSUMm"


def safe_dtype(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if not is_bytes_only(dtype):
        raise StateError(f"the state holds values of type {name!r}, which is not plain data")
    return dtype


def memory_owner(array: np.ndarray) -> np.ndarray:
    """The array at the end of the chain of views; its base is None if NumPy owns the memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def array_data(array: np.ndarray) -> dict[str, Any]:
    """Copy of an array of numbers, text or times as plain data; keeps its memory layout, which affects sums."""
    axes = _axes_in_memory(array)
    if axes != sorted(axes) and array.transpose(axes).flags.c_contiguous:
        return {**array_data(array.transpose(axes)), "axes": axes}
    if _is_native_number(array.dtype):
        return {"value": array.copy(order="C")}
    as_bytes = np.frombuffer(array.tobytes(), np.uint8).copy()
    return {"value": as_bytes, "dtype": array.dtype.str, "shape": list(array.shape)}


def array_from(data: dict[str, Any]) -> np.ndarray:
    """New array from the result of `array_data`."""
    value = data["value"]
    if type(value) is not np.ndarray or not _is_native_number(value.dtype):
        raise StateError(f"the state holds {value!r} in place of an array of numbers")
    array: np.ndarray = value.copy(order="C")
    if "dtype" in data:
        array = np.frombuffer(bytearray(array.tobytes()), safe_dtype(data["dtype"]))
        array = array.reshape(data["shape"]).copy()
    return array.transpose(np.argsort(data["axes"])) if "axes" in data else array


def _axes_in_memory(array: np.ndarray) -> list[int]:
    """The axes, from the largest stride to the smallest."""
    return sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))


def _need_their_memory(arrays: list[np.ndarray], owner: np.ndarray) -> bool:
    """Whether copies of the arrays would lose information, because they overlap or one has gaps."""
    if len(arrays) == 1:
        # Strides can change the last bit of a sum, but that is not worth saving memory far larger than the array.
        has_gaps = not arrays[0].transpose(_axes_in_memory(arrays[0])).flags.c_contiguous
        return has_gaps and owner.nbytes <= 4 * arrays[0].nbytes
    bounds = sorted(np.lib.array_utils.byte_bounds(array) for array in arrays if array.size)
    return any(low < high_before for (_, high_before), (low, _) in itertools.pairwise(bounds))


def _view_data(array: np.ndarray, owner: np.ndarray, memory: int) -> dict[str, Any]:
    offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    shape, strides = list(array.shape), list(array.strides)
    return {"memory": memory, "dtype": array.dtype.str, "shape": shape, "strides": strides, "offset": offset}


def view_from(data: dict[str, Any], memory: list[np.ndarray]) -> np.ndarray:
    """View as described by `_view_data`; NumPy refuses one that would reach outside the memory."""
    shape, strides = tuple(data["shape"]), tuple(data["strides"])
    dtype, buffer = safe_dtype(data["dtype"]), memory[data["memory"]]
    return np.ndarray(shape, dtype, buffer, data["offset"], strides)
