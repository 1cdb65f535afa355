"""The kinds of Python values that can be written as plain data: containers, arrays, generators, constants."""

from __future__ import annotations

import dataclasses
import enum
import functools
import logging
import pathlib
import random
import re
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from envfleet.errors import StateError
from envfleet.fleet.plain_data import (
    HINT,
    MISSING,
    Kind,
    Reader,
    Writer,
    array_data,
    array_from,
    entry_of,
    is_bytes_only,
    is_same_class,
    memory_owner,
    safe_dtype,
    type_name,
    view_from,
)

__all__ = ["PLAIN_KINDS"]

Data = dict[str, Any]


def _one_of(*kinds: type) -> Callable[[type], bool]:
    return lambda kind: kind in kinds


def _loaded_class(name: str, base: type) -> Any:
    """The class `name` ("module:Qualified.name") of a module that is already loaded."""
    module_name, _, path = name.partition(":")
    found: Any = sys.modules.get(module_name)
    for part in path.split("."):
        # vars(), not getattr(): a module or class may run code on attribute access.
        found = vars(found).get(part) if isinstance(found, types.ModuleType | type) else None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise StateError(f"the state names {name!r}, which is not a loaded subclass of {base.__name__}")
    return found


def _class_path(kind: type, base: type, place: str) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        _loaded_class(name, base)
    except StateError:
        raise StateError(
            f"{place} is a {type_name(kind)}, which another process could not find",
            hint=f"define {kind.__qualname__} at the top of its module",
        ) from None
    return name


# ---- numbers and text ----


def _write_scalar(writer: Writer, value: np.generic, place: str) -> Data:
    if not is_bytes_only(value.dtype):
        raise StateError(f"{place} is a scalar of type {value.dtype}, which is not plain data", hint=writer.hint)
    if value.dtype.kind in "biuU" or (value.dtype.kind == "f" and value.dtype.itemsize <= 8):
        return {"dtype": value.dtype.str, "value": writer.write(value.item(), place)}
    return {"array": array_data(np.array(value))}


def _read_scalar(reader: Reader, data: Data, _current: Any, place: str) -> Any:
    if "array" in data:
        return array_from(data["array"])[()]
    return safe_dtype(data["dtype"]).type(reader.read(data["value"], MISSING, place))


def _write_enum(writer: Writer, value: enum.Enum, place: str) -> Data:
    if value.name not in type(value).__members__:
        raise StateError(f"{place} is {value!r}, a combination of flags, which is not plain data", hint=writer.hint)
    return {"class": _class_path(type(value), enum.Enum, place), "name": value.name}


# ---- containers ----


def _items(writer: Writer, values: Iterable[Any], place: str) -> Data:
    return {"items": writer.write_items(values, place)}


def _read_tuple(reader: Reader, data: Data, current: Any, place: str) -> tuple[Any, ...]:
    return tuple(reader.read_items(data["items"], current, place))


def _read_deque(reader: Reader, data: Data, current: Any, place: str) -> deque[Any]:
    made: deque[Any] = reader.note(deque(maxlen=data["max_length"]), place)
    made.extend(reader.read_items(data["items"], current, place))
    return made


_MAPPINGS: dict[str, type] = {kind.__name__: kind for kind in (dict, OrderedDict, Counter, defaultdict)}
_FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in (bool, int, float, str, list, dict, set, deque)}


def _write_mapping(writer: Writer, value: dict[Any, Any], place: str) -> Data:
    data: Data = {"type": type(value).__name__}
    if isinstance(value, defaultdict) and value.default_factory is not None:
        if value.default_factory not in _FACTORIES.values():
            raise StateError(f"{place} is a defaultdict of {value.default_factory!r}", hint=writer.hint)
        data["factory"] = value.default_factory.__name__
    data["keys"] = writer.write_items(value.keys(), f"{place}.keys")
    data["values"] = writer.write_items(value.values(), place)
    return data


def _read_mapping(reader: Reader, data: Data, current: Any, place: str) -> Any:
    made = reader.note(_MAPPINGS[data["type"]](), place)
    if "factory" in data:
        made.default_factory = _FACTORIES[data["factory"]]
    keys = reader.read_items(data["keys"], MISSING, f"{place}.keys")
    for index, (key, item) in enumerate(zip(keys, data["values"], strict=True)):
        made[key] = reader.read(item, entry_of(current, key), f"{place}[{index}]")
    return made


# ---- arrays ----


def _write_array(writer: Writer, value: np.ndarray, place: str) -> Data:
    if value.dtype.kind == "O":
        return {"objects": writer.write_items(value.ravel().tolist(), place), "shape": list(value.shape)}
    if not is_bytes_only(value.dtype):
        raise StateError(f"{place} is an array of type {value.dtype}, which is not plain data", hint=writer.hint)
    return writer.write_array_later(value)


def _read_array(reader: Reader, data: Data, current: Any, place: str) -> np.ndarray:
    if "objects" in data:
        objects = np.empty(len(data["objects"]), object)
        for index, item in enumerate(reader.read_items(data["objects"], MISSING, place)):
            objects[index] = item
        return objects.reshape(data["shape"])
    if "memory" in data:
        return view_from(data, reader.memory)
    array = array_from(data)
    if data["foreign"] and isinstance(current, np.ndarray) and _can_take(current, array):
        current[...] = array
        return current
    return array


def _can_take(current: np.ndarray, array: np.ndarray) -> bool:
    """Whether `current` is a view into a simulator's memory that `array` fits; a new array would not update it."""
    is_foreign = memory_owner(current).base is not None and current.flags.writeable
    return is_foreign and (current.shape, current.dtype) == (array.shape, array.dtype)


# ---- generators ----

_BIT_GENERATORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


def _write_generator(writer: Writer, generator: np.random.Generator, place: str) -> Data:
    """State of a generator, and its seed sequence, which spawn() uses."""
    bits = generator.bit_generator
    if type(bits).__name__ not in _BIT_GENERATORS:
        raise StateError(f"{place} draws from a {type_name(type(bits))}, which is not plain data", hint=writer.hint)
    data: Data = {"state": writer.write(bits.state, f"{place}.state"), "seed": None}
    seed = bits.seed_seq
    if type(seed) is np.random.SeedSequence:
        details = (seed.entropy, seed.spawn_key, seed.pool_size, seed.n_children_spawned)
        data["seed"] = writer.write_items(details, f"{place}.seed")
    return data


def _read_generator(reader: Reader, data: Data, _current: Any, place: str) -> np.random.Generator:
    state = reader.read(data["state"], MISSING, f"{place}.state")
    seed = None
    if data["seed"] is not None:
        entropy, spawn_key, pool_size, children = reader.read_items(data["seed"], MISSING, f"{place}.seed")
        seed = np.random.SeedSequence(entropy, spawn_key=spawn_key, pool_size=pool_size, n_children_spawned=children)
    bits = _BIT_GENERATORS[state["bit_generator"]](seed)
    bits.state = state
    return np.random.Generator(bits)


def _write_python_random(writer: Writer, generator: random.Random, place: str) -> Data:
    version, words, gauss = generator.getstate()
    return {"version": version, "words": np.array(words, np.uint32), "gauss": writer.write(gauss, place)}


def _read_python_random(reader: Reader, data: Data, _current: Any, place: str) -> random.Random:
    generator = random.Random(0)
    words = tuple(data["words"].tolist())
    generator.setstate((data["version"], words, reader.read(data["gauss"], MISSING, place)))
    return generator


def _read_legacy_random(reader: Reader, data: Data, _current: Any, place: str) -> Any:
    state = reader.read(data["state"], MISSING, f"{place}.state")
    generator = np.random.RandomState(_BIT_GENERATORS[state["bit_generator"]](0))
    generator.set_state(state)
    return generator


# ---- values that stay as they were built ----

_CODE = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type,
    functools.partial, np.ufunc,
)  # fmt: skip
_CONSTANTS = (logging.Logger, pathlib.PurePath, re.Pattern, np.dtype)


def _description(value: Any) -> str:
    """The part of a constant that must match in the target; the value of a path, for example, may differ."""
    if isinstance(value, functools.partial):
        return f"partial of {_description(value.func)}"
    if isinstance(value, _CODE):
        return str(getattr(value, "__qualname__", getattr(value, "__name__", value)))
    return str(value) if isinstance(value, np.dtype) else type_name(type(value))


def _read_constant(_reader: Reader, data: Data, current: Any, place: str) -> Any:
    found = "nothing" if current is MISSING else _description(current)
    if found != data["description"]:
        raise StateError(
            f"{place} is {data['description']} in the state, and {found} in this environment",
            hint=f"build the environment in the same way; if this changes while it runs, {HINT}",
        )
    return current


def _write_frozen(writer: Writer, value: Any, place: str) -> Data:
    names = [field.name for field in dataclasses.fields(value)]
    fields = {name: writer.write(getattr(value, name), f"{place}.{name}") for name in names}
    return {"class": type_name(type(value)), "fields": fields}


def _read_frozen(reader: Reader, data: Data, current: Any, place: str) -> Any:
    if not is_same_class(data["class"], type(current)):
        raise StateError(f"{place} is a {data['class']} in the state, and {current!r} here", hint=HINT)
    # A new object of the target's class: the current one may be a constant that other code shares.
    made = object.__new__(type(current))
    for field in dataclasses.fields(current):
        name, value = field.name, getattr(current, field.name, MISSING)
        if name in data["fields"] or field.default is dataclasses.MISSING:
            value = reader.read(data["fields"][name], value, f"{place}.{name}")
        object.__setattr__(made, name, value)  # of a setting that is newer than the state: as built
    return made


PLAIN_KINDS: dict[str, Kind] = {
    "float": Kind(_one_of(), lambda *_: {}, lambda _, data, *__: float(data["value"])),
    "long number": Kind(_one_of(), lambda *_: {}, lambda _, data, *__: int(data["value"], 16)),
    "complex": Kind(
        _one_of(complex),
        lambda writer, value, place: _items(writer, (value.real, value.imag), place),
        lambda *args: complex(*_read_tuple(*args)),
    ),
    "range": Kind(
        _one_of(range),
        lambda _, value, __: {"limits": [value.start, value.stop, value.step]},
        lambda _, data, *__: range(*data["limits"]),
    ),
    "bytes": Kind(
        _one_of(bytes, bytearray),
        lambda _, value, __: {"mutable": type(value) is bytearray, "array": array_data(np.frombuffer(value, np.uint8))},
        lambda _, data, *__: (bytearray if data["mutable"] else bytes)(array_from(data["array"]).tobytes()),
        has_identity=True,
    ),
    "scalar": Kind(lambda kind: issubclass(kind, np.generic), _write_scalar, _read_scalar),
    "enum": Kind(
        lambda kind: issubclass(kind, enum.Enum),
        _write_enum,
        lambda _, data, *__: _loaded_class(data["class"], enum.Enum).__members__[data["name"]],
    ),
    "tuple": Kind(_one_of(tuple), _items, _read_tuple),
    "named tuple": Kind(
        lambda kind: issubclass(kind, tuple) and hasattr(kind, "_fields"),
        lambda writer, value, at: {"class": _class_path(type(value), tuple, at), **_items(writer, value, at)},
        # Bypass the class's own __new__, which may run any code.
        lambda reader, data, *rest: tuple.__new__(
            _loaded_class(data["class"], tuple), _read_tuple(reader, data, *rest)
        ),
    ),
    "deque": Kind(
        _one_of(deque),
        lambda writer, value, place: {"max_length": value.maxlen, **_items(writer, value, place)},
        _read_deque,
        has_identity=True,
    ),
    "set": Kind(_one_of(set), _items, lambda *args: set(_read_tuple(*args)), has_identity=True),
    "frozen set": Kind(_one_of(frozenset), _items, lambda *args: frozenset(_read_tuple(*args))),
    "mapping": Kind(_one_of(*_MAPPINGS.values()), _write_mapping, _read_mapping, has_identity=True),
    "array": Kind(_one_of(np.ndarray), _write_array, _read_array, has_identity=True),
    "generator": Kind(_one_of(np.random.Generator), _write_generator, _read_generator, has_identity=True),
    "random": Kind(_one_of(random.Random), _write_python_random, _read_python_random, has_identity=True),
    "legacy random": Kind(
        _one_of(np.random.RandomState),
        lambda writer, value, place: {"state": writer.write(value.get_state(legacy=False), f"{place}.state")},
        _read_legacy_random,
        has_identity=True,
    ),
    "constant": Kind(
        lambda kind: issubclass(kind, _CODE + _CONSTANTS),
        lambda _, value, __: {"description": _description(value)},
        _read_constant,
    ),
    "frozen": Kind(
        lambda kind: dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen,  # type: ignore[attr-defined]
        _write_frozen,
        _read_frozen,
        has_identity=True,
    ),
}
