"""Settings: one frozen dataclass per algorithm defines its flags, file keys and documentation.

A subclass of `Settings` declares its fields with `setting(default, help, bounds)`. Values are checked and converted to
the field's type, whether they come from Python, a file or the command line. All problems are reported together; an
unknown name is reported with the nearest valid one.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Self

from envfleet.errors import SettingsError
from envfleet.settings.spelling import as_flag, dotted_name, last_name
from envfleet.settings.values import bounds_text, check_bounds, converted, expected, kind_text, plain, shown

__all__ = [
    "Settings",
    "code_settings",
    "default_of",
    "differences",
    "dotted_keys",
    "grouped",
    "kinds_of",
    "name_of",
    "reference_table",
    "setting",
]


def setting(
    default: Any,
    help: str,  # noqa: A002  # the metadata key that tyro reads
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    choices: Iterable[Any] | None = None,
    advice: str | None = None,
) -> Any:
    """Declare a field of a `Settings` class. Bounds apply to every number in a tuple or list, but not to None.

    `advice` ends the message about a value of the wrong type.
    """
    metadata: dict[str, Any] = {"help": help, "minimum": minimum, "above": above, "maximum": maximum, "below": below}
    metadata |= {"choices": None if choices is None else tuple(choices), "advice": advice}
    if isinstance(default, dict | list):  # a new copy for each instance
        return dataclasses.field(default_factory=functools.partial(type(default), default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of settings: records which values were given, checks them, and converts to and from files."""

    # Other names of a setting: dotted key -> name here.
    aliases: ClassVar[Mapping[str, str]] = {}
    # Groups for help and documentation, in order: first setting of the group -> its name and text.
    groups: ClassVar[Mapping[str, tuple[str, str]]] = {}
    # Settings that one may expect here and that do not exist: name -> why, for the message.
    absent: ClassVar[Mapping[str, str]] = {}
    # Sections in which files may nest settings, as in {"training": {"learning_rate": 1e-3}}.
    sections: ClassVar[frozenset[str]] = frozenset({"training", "parallel", "settings"})

    def __new__(cls, *values: Any, **given: Any) -> Self:
        if values:
            received = ", ".join(map(shown, values))
            hint = f"settings are given by name: {cls.__name__}({next(iter(kinds_of(cls)), 'name')}=...)"
            raise SettingsError(f"{cls.__name__} received {received} without a name", hint=hint)
        if unknown := [name for name in given if name not in kinds_of(cls)]:
            raise _refusal(cls.__name__, [_no_such(name, kinds_of(cls), cls.absent) for name in unknown])
        self = super().__new__(cls)
        object.__setattr__(self, "_given", frozenset(given))
        return self

    def __post_init__(self) -> None:
        if found := self._settle({}):
            raise _refusal(type(self).__name__, found)

    @property
    def given(self) -> frozenset[str]:
        """Names of the settings that were given explicitly; the others have defaults or preset values."""
        given: frozenset[str] = self._given  # type: ignore[attr-defined]  # set in __new__, because the class is frozen
        return given

    def but(self, **changes: Any) -> Self:
        """Return a copy with changes, which count as given."""
        return self._copy(changes, self.given | changes.keys())

    def filled(self, preset: Mapping[str, Any]) -> Self:
        """Return a copy in which the preset fills settings that were not given; they do not count as given."""
        if unknown := [name for name in preset if name not in kinds_of(type(self))]:
            raise _refusal("the preset", [_no_such(name, kinds_of(type(self))) for name in unknown])
        return self._copy({name: value for name, value in preset.items() if name not in self.given}, self.given)

    def as_given(self, names: Iterable[str]) -> Self:
        """Return a copy in which exactly `names` count as given, for parsers that always pass every field."""
        return self._copy({}, frozenset(names))

    def _copy(self, changes: Mapping[str, Any], given: frozenset[str]) -> Self:
        values = {name: getattr(self, name) for name in kinds_of(type(self))}
        changed = type(self)(**{**values, **changes})
        object.__setattr__(changed, "_given", given)
        return changed

    def problems(self) -> list[str]:
        """Return settings that contradict each other, one line each. Subclasses extend the list of their base."""
        return []

    def _settle(self, written_as: Mapping[str, str]) -> list[str]:
        """Convert every value to its field's type; return all problems, with the names used in the file."""
        found: list[str] = []
        for field in dataclasses.fields(self):
            name, kind = field.name, kinds_of(type(self))[field.name]
            try:
                value = converted(getattr(self, name), kind)
                check_bounds(value, field.metadata)
            except (TypeError, ValueError):
                received, label = getattr(self, name), written_as.get(name, name)
                found.append(f"{label}: got {shown(received)}, expected {expected(kind, field.metadata, received)}")
            else:
                object.__setattr__(self, name, value)
        try:
            return found + self.problems()
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            if found:  # `problems` may fail on values that are already refused
                return found
            raise

    def to_json(self) -> dict[str, Any]:
        """Return all settings as plain data for JSON or YAML; functions and classes become "module:name"."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @classmethod
    def prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Preprocess the dotted keys of a file; a subclass may compute some settings from others."""
        return values

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, source: str) -> Self:
        """Build settings from a nested or flat mapping; errors name `source`, e.g. a file."""
        found: list[str] = []
        values: dict[str, Any] = {}
        written_as: dict[str, str] = {}
        for key, value in cls.prepared(dict(dotted_keys(cls, mapping))).items():
            name = name_of(cls, key)
            if name is None:
                found.append(_no_such(key, [*kinds_of(cls), *cls.aliases], cls.absent))
            elif name in values and not _are_same(values[name], value, kinds_of(cls)[name]):
                found.append(f"{key}: got {shown(value)}, but {written_as[name]} says {shown(values[name])}")
            else:
                values[name], written_as[name] = value, key
        required = [field.name for field in dataclasses.fields(cls) if default_of(field) is MISSING]
        if missing := [name for name in required if name not in values]:
            raise _refusal(source, [*found, *(f"{name}: missing, and it has no default" for name in missing)])
        draft = cls.__new__(cls, **values)
        for field in dataclasses.fields(cls):
            object.__setattr__(draft, field.name, values.get(field.name, default_of(field)))
        if found := found + draft._settle(written_as):
            raise _refusal(source, found)
        return cls(**values)


def differences(settings: Settings) -> dict[str, Any]:
    """Return the settings that differ from their defaults, for printing."""
    pairs = {field.name: (getattr(settings, field.name), default_of(field)) for field in dataclasses.fields(settings)}
    return {name: value for name, (value, default) in pairs.items() if default is MISSING or value != default}


def grouped(cls: type[Settings]) -> list[tuple[str, str, list[dataclasses.Field[Any]]]]:
    """Return the settings of a class by group: name, text, fields."""
    members: dict[str, list[dataclasses.Field[Any]]] = {first: [] for first in cls.groups} or {"": []}
    current = next(iter(members))
    for field in dataclasses.fields(cls):
        current = field.name if field.name in members else current
        members[current].append(field)
    return [(*cls.groups.get(first, ("", "")), fields) for first, fields in members.items()]


def reference_table(cls: type[Settings], fields: Iterable[dataclasses.Field[Any]] | None = None) -> str:
    """Return a Markdown table of a class's settings, or of the given fields."""
    lines = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(cls) if fields is None else fields:
        default = default_of(field)
        as_written = "required" if default is MISSING else f"`{json.dumps(plain(default))}`"
        kind = ", ".join([kind_text(kinds_of(cls)[field.name]), *bounds_text(field.metadata)])
        cells = (f"`{field.name}`", kind, as_written, field.metadata.get("help", ""))
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


# ---- names ----


_KINDS: dict[type, dict[str, Any]] = {}


def kinds_of(cls: type[Settings]) -> dict[str, Any]:
    """Return the type of every field."""
    if cls not in _KINDS:
        hints = typing.get_type_hints(cls)
        _KINDS[cls] = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    return _KINDS[cls]


def code_settings(cls: type[Settings]) -> list[str]:
    """Return the names of settings that may be code: a function or class, or its name as module:name."""
    return [name for name, kind in kinds_of(cls).items() if _may_be_code(kind)]


def _may_be_code(kind: Any) -> bool:
    return typing.get_origin(kind) is Callable or any(map(_may_be_code, typing.get_args(kind)))


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field, or MISSING."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def name_of(cls: type[Settings], key: str) -> str | None:
    """Return the setting that a key refers to: a name or alias, possibly in a section, or a flag such as --n-envs."""
    key = dotted_name(key)
    if key in cls.aliases:
        return cls.aliases[key]
    section, _, name = key.rpartition(".")
    return name if name in kinds_of(cls) and (not section or section in cls.sections) else None


def dotted_keys(cls: type[Settings], mapping: Mapping[Any, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the keys of a nested mapping in dotted form, with their values."""
    for key, value in mapping.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and name_of(cls, dotted) is None and value:
            yield from dotted_keys(cls, value, f"{dotted}.")
        else:  # the value of a setting may itself be a mapping
            yield dotted, value


def _are_same(one: Any, other: Any, kind: Any) -> bool:
    """Whether two values convert to the same, as the number 8 and a flag's text '8' do."""
    try:
        return bool(converted(one, kind) == converted(other, kind))
    except (TypeError, ValueError):
        return bool(one == other)


_MOST_NAMES = 20  # maximum number of names in a message


def _no_such(name: str, valid: Iterable[str], absent: Mapping[str, str] | None = None) -> str:
    if absent and (why := absent.get(last_name(name))):
        return f"{name}: {why}"
    names = {valid_name.rpartition(".")[2]: valid_name for valid_name in [*valid][::-1]}
    near = difflib.get_close_matches(last_name(name), names, n=1, cutoff=0.5)
    if near:
        meant = as_flag(near[0]) if name.startswith("--") else names[near[0]]
        return f"{name}: there is no such setting; did you mean {meant}?"
    advice = f"there are {', '.join(sorted(names))}" if len(names) <= _MOST_NAMES else "docs/settings.md has all"
    return f"{name}: there is no such setting; {advice}"


def _refusal(source: str, found: list[str]) -> SettingsError:
    count = "a problem" if len(found) == 1 else f"{len(found)} problems"
    return SettingsError("\n".join([f"{source} has {count}:", *(f"  {line}" for line in found)]))
