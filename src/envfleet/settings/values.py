"""Convert setting values to the type of their field, check them, and describe types and bounds in words."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from envfleet.errors import SettingsError
from envfleet.wording import shown

__all__ = ["bounds_text", "check_bounds", "converted", "expected", "kind_text", "lost_in_files", "plain", "shown"]

_BOUNDS = {"minimum": "at least", "above": "above", "maximum": "at most", "below": "below"}
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "above": lambda value, bound: value > bound,
    "maximum": lambda value, bound: value <= bound,
    "below": lambda value, bound: value < bound,
}


def converted(value: Any, kind: Any) -> Any:
    """Convert `value` to `kind` without loss; raise ValueError (or TypeError) if that is impossible."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return _as_read_back(value)
    if origin in {Union, UnionType}:
        return _first_that_fits(value, arguments)
    if origin is Literal:
        if value is False and "off" in arguments:  # YAML reads `off` as false
            return "off"
        hit = [option for option in arguments if option == value and type(option) is type(value)]
        return hit[0] if hit else _refuse()
    if _is_numpy_scalar(value):
        value = value.item()
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    if origin is Callable or kind is Callable or origin is type:
        return value if callable(value) or isinstance(value, str) else _refuse()
    return _converted_object(value, origin or kind, arguments)


def _converted_object(value: Any, kind: Any, arguments: tuple[Any, ...]) -> Any:
    if kind in {tuple, list} and isinstance(value, list | tuple):
        if kind is list or arguments[1:] == (...,):
            return kind(converted(item, arguments[0] if arguments else Any) for item in value)
        return tuple(converted(item, own) for item, own in zip(value, arguments, strict=True)) if arguments else value
    if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(dict, kind):
        keys, values = arguments or (Any, Any)
        return {converted(key, keys): converted(item, values) for key, item in value.items()}
    if isinstance(value, str) and kind is Path:
        return Path(value)
    return value if isinstance(value, kind) else _refuse()


def _as_read_back(value: Any) -> Any:
    """Return a value of any type as it comes back from a file, with tuples for lists.

    Files have neither tuples nor paths, and a new run and its resume must see the same. It is tuples because many
    environments and wrappers insist on them.
    """
    if isinstance(value, Mapping):
        return {key: _as_read_back(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_as_read_back, value))
    return plain(value) if isinstance(value, Path) or _is_numpy_scalar(value) else value


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")  # loaded already if there is a scalar; --help is faster without it
    return numpy is not None and isinstance(value, numpy.generic)


def _refuse() -> Any:
    raise ValueError


def _whole(value: Any) -> int:
    number = _number(value)
    return int(number) if not isinstance(number, float) or number.is_integer() else _refuse()


def _number(value: Any) -> float:
    if isinstance(value, str):  # YAML reads `1e-3` as text
        return int(value) if re.fullmatch(r"[+-]?\d[\d_]*", value) else float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else _refuse()


def _truth(value: Any) -> bool:
    words = {"true": True, "false": False}
    value = words.get(value.lower()) if isinstance(value, str) else value
    return value if isinstance(value, bool) else _refuse()


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    NoneType: lambda value: None if value is None or value in ("none", "None") else _refuse(),
    bool: _truth,
    int: _whole,
    float: lambda value: float(_number(value)),
    str: lambda value: value if isinstance(value, str) else str(value) if isinstance(value, PurePath) else _refuse(),
}


def _first_that_fits(value: Any, options: tuple[Any, ...]) -> Any:
    if not isinstance(value, str) and type(value) in options:
        return value
    # Text comes late: `1e-3` for `float | str` means the number. A path for `str | Path` stays text.
    rank = {NoneType: 0, bool: 1, int: 2, float: 3, str: 5, Path: 6}
    for option in sorted(options, key=lambda option: rank.get(option, 4)):
        try:
            return converted(value, option)
        except (TypeError, ValueError):
            continue
    return _refuse()


def check_bounds(value: Any, metadata: Mapping[str, Any]) -> None:
    """Raise ValueError if a number is out of its field's bounds, or a value is not one of the choices."""
    if isinstance(value, tuple | list):
        for item in value:
            check_bounds(item, metadata)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        bounds = {name: metadata[name] for name in _BOUNDS if metadata.get(name) is not None}
        if not all(_HOLDS[name](value, bound) for name, bound in bounds.items()):  # NaN fails every bound
            _refuse()
    choices = metadata.get("choices")
    if choices is not None and not isinstance(value, tuple | list | None) and value not in choices:
        _refuse()


# ---- words ----


def bounds_text(metadata: Mapping[str, Any]) -> list[str]:
    """Return the bounds of a field in words."""
    words = [f"{word} {metadata[name]}" for name, word in _BOUNDS.items() if metadata.get(name) is not None]
    choices = metadata.get("choices")
    return words if choices is None else [*words, f"one of {', '.join(map(shown, choices))}"]


def expected(kind: Any, metadata: Mapping[str, Any], received: Any) -> str:
    """Describe what a field accepts, and suggest the choice nearest to the received value."""
    text = ", ".join([kind_text(kind), *bounds_text(metadata)])
    options = metadata.get("choices") or [item for item in _flat(kind) if isinstance(item, str)]
    near = difflib.get_close_matches(shown(received), [repr(option) for option in options], n=1)
    if near:
        return f"{text}; did you mean {near[0]}?"
    return f"{text}; {metadata['advice']}" if metadata.get("advice") else text


def _flat(kind: Any) -> list[Any]:
    return [item for part in get_args(kind) for item in _flat(part)] if get_args(kind) else [kind]


def kind_text(kind: Any) -> str:
    """Return a type in words, for people who do not write Python."""
    origin, arguments = get_origin(kind), get_args(kind)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none", Any: "any"}
    if kind in words:
        return words[kind]
    if origin in {Union, UnionType}:
        return " or ".join(kind_text(option) for option in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(shown, arguments)) if len(arguments) > 1 else shown(arguments[0])
    if origin in {tuple, list}:
        parts = [kind_text(part) for part in arguments or (Any,) if part is not ...]
        many = {"a whole number": "whole numbers", "a number": "numbers", "text": "texts"}
        return f"a list of {many.get(parts[0], parts[0])}" if len(parts) == 1 else f"a list: {', '.join(parts)}"
    if origin is Callable or kind is Callable:
        return "a function (module:name)"
    if kind is Path:
        return "a path"
    base = origin or kind
    if isinstance(base, type) and issubclass(dict, base):
        return "a mapping with text keys" if arguments[:1] == (str,) else "a mapping"
    return str(getattr(kind, "__name__", kind))


def lost_in_files(name: str, value: Any) -> list[str]:
    """Return the parts of a converted value that would not come back from a file as they are, one line each."""
    if isinstance(value, Mapping):
        found = [f"{name}: got the key {shown(key)}, expected text" for key in value if not isinstance(key, str)]
        return found + [line for key, item in value.items() for line in lost_in_files(f"{name}.{key}", item)]
    if isinstance(value, tuple):
        return [line for place, item in enumerate(value) for line in lost_in_files(f"{name}[{place}]", item)]
    if type(value) in {NoneType, bool, int, float, str}:
        return []
    received = f"{name}: got {shown(value)}, expected numbers, text, lists or mappings, because the run records it"
    return [f"{received}; for anything else use functools.partial(...) or a function of your own module"]


def plain(value: Any) -> Any:
    """Return a value as plain data for JSON and YAML."""
    if _is_numpy_scalar(value):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if callable(value):
        # An object that can be called, e.g. functools.partial, has no name of its own that could be imported.
        return f"{value.__module__}:{getattr(value, '__qualname__', f'<{type(value).__qualname__}>')}"
    raise SettingsError(f"got {shown(value)} in the settings, which a file cannot hold")
