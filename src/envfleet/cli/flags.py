"""Command-line flags for the settings of an algorithm, including the names that other libraries use.

Flags are read as text and checked like the keys of a file, so that all problems are reported together.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro

from envfleet.errors import SettingsError
from envfleet.settings import Settings, grouped, own_names
from envfleet.settings.declaration import default_of, kinds_of
from envfleet.settings.spelling import as_flag, dotted_name

__all__ = ["Flags"]

# Inputs of `Settings.prepared`, which computes other settings from them; they are not in `aliases`.
_COMPUTED = ("num_envs_per_worker", "num_updates_per_iter")
_METAVARS = {
    "address": "ADDRESS",
    "backend": "{auto,sequential,threads,processes,ray}",
    "checkpoint_dir": "DIR",
    "env": "ENV",
    "env_kwargs": "NAME=VALUE ...",
    "hidden": "INT ...",
    "init_from": "RUN",
    "log_info": "KEY ...",
    "network": "NAME|MODULE:CLASS",
    "output_dir": "DIR",
    "policy": "MODULE:CLASS",
    "runtime_env": "FILE",
    "wrappers": "NAME|MODULE:FUNCTION [ARGUMENT=VALUE ...] ...",
}


class Flags:
    """The flags of a settings class. Help shows only those in `shown`; the others and all aliases work too.

    `own` are the settings that the environment declares. They form an extra group of flags.
    """

    def __init__(
        self, kind: type[Settings], shown: Iterable[str] | None = None, own: type[Settings] | None = None
    ) -> None:
        self._kind, self._own = kind, own
        self._shown = set(kinds_of(kind)) if shown is None else set(shown)
        others = [*(alias for alias in kind.aliases if alias.isidentifier()), *_COMPUTED]
        self._hidden = dict.fromkeys(others, str) | {  # the type each is parsed as
            name: _read_as(setting) for name, setting in kinds_of(kind).items() if name not in self._shown
        }

    def fields(self) -> list[tuple[str, Any, Any]]:
        """Return fields for a command's dataclass, one per group of options."""
        groups: list[tuple[str, Any, Any]] = []
        for title, text, fields in grouped(self._kind):
            if options := [_option(self._kind, field) for field in fields if field.name in self._shown]:
                groups.append(_group(title, text, options))
        if self._own is not None:
            names, text = own_names(self._own, self._kind), (self._own.__doc__ or "").partition("\n")[0]
            options = [_option(self._own, field) for field in dataclasses.fields(self._own) if field.name in names]
            groups.insert(1, _group("this_environment", text, options))
        return groups

    def parse(self, command: Any, arguments: Sequence[str], *, prog: str, examples: str) -> tuple[Any, dict[str, Any]]:
        """Return the parsed command and the given flags with their values as text.

        Includes unknown flags: the settings refuse them together with all other problems. tyro exits after --help and
        if a flag lacks its value.
        """
        visible, values = self._take_hidden(arguments)
        try:
            parsed, unknown = tyro.cli(command, prog=prog, args=visible, return_unknown_args=True)
        except SystemExit:
            if {"-h", "--help"} & set(visible):
                sys.stdout.write(examples)  # at the end, where the reader looks after the long list
            raise
        groups = [part for part in vars(parsed).values() if dataclasses.is_dataclass(part)]
        texts = {name: value for group in groups for name, value in vars(group).items()}
        for argument in visible:
            flag, name = _flag(argument)
            name = name if name in texts else name.removeprefix("no_")
            if flag and name in texts:
                values[as_flag(name)] = texts[name]
        self._refuse_empty(values)
        values |= self._unknown(unknown, prog)
        return parsed, {flag: self._pairs(flag, value) for flag, value in values.items()}

    def _refuse_empty(self, values: dict[str, Any]) -> None:
        """Refuse a list without words, unless it differs from the default: `--hidden` means no hidden layer."""
        defaults = {field.name: default_of(field) for field in dataclasses.fields(self._kind)}
        for flag, value in values.items():
            name = _flag(flag)[1]
            if value == () and defaults.get(name) in ((), {}):
                raise SettingsError(
                    f"{flag} has no value", hint=f"write {flag} {_METAVARS.get(name, 'VALUE ...')}, or leave it out"
                )

    def _unknown(self, words: Sequence[str], prog: str) -> dict[str, str]:
        """Return unknown flags with the words that follow them."""
        found: dict[str, str] = {}
        for word in words:
            flag, _ = _flag(word)
            if flag:
                found[flag] = word.partition("=")[2]
            elif found:
                newest = next(reversed(found))
                found[newest] = f"{found[newest]} {word}".lstrip()
            else:
                raise SettingsError(f"the command has {word!r}, which no flag takes", hint=f"see `{prog} --help`")
        if self._own is not None:  # a typo of an environment flag: let the environment's settings suggest the right one
            own = own_names(self._own, self._kind)
            names = [*own, *kinds_of(self._kind)]
            near = {flag: difflib.get_close_matches(_flag(flag)[1], names, n=1) for flag in found}
            if meant := {flag: found[flag] for flag, nearest in near.items() if nearest and nearest[0] in own}:
                self._own.from_mapping(meant, source="the command")
        return found

    def _pairs(self, flag: str, value: Any) -> Any:
        """Return the value of a flag. name=value is a mapping entry, or an argument of the word before it."""
        kind = kinds_of(self._kind).get(_flag(flag)[1])
        if get_origin(kind) is dict:
            from envfleet.training.environment import keyword_arguments

            return keyword_arguments(value)
        return _with_arguments(flag, value) if _lists_mappings(kind) else value

    def _take_hidden(self, arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
        """Split `arguments` into those without hidden flags, and the values of the hidden flags."""
        rest, values, left = [], {}, list(arguments)
        while left:
            argument = left.pop(0)
            flag, name = _flag(argument)
            if not flag or name not in self._hidden:
                rest.append(argument)
                continue
            words = [argument.partition("=")[2]] if "=" in argument else []
            many = self._hidden[name] is not str
            while left and not left[0].startswith("--") and (many or not words) and self._hidden[name] is not bool:
                words.append(left.pop(0))
            if not words and self._hidden[name] is str:
                raise SettingsError(f"{argument} has no value", hint=f"write {argument} VALUE")
            values[flag] = True if self._hidden[name] is bool else tuple(words) if many else words[0]
        return rest, values


def _lists_mappings(kind: Any) -> bool:
    """Whether `kind` is a list or tuple whose items may be mappings."""
    items = get_args(kind)[:1] if get_origin(kind) in {tuple, list} else ()
    return any(get_origin(option) is dict for item in items for option in get_args(item))


def _with_arguments(flag: str, words: Iterable[str]) -> list[str | dict[str, Any]]:
    """Return the words; a word followed by name=value arguments becomes {word: arguments}."""
    from envfleet.training.environment import keyword_arguments

    found: list[tuple[str, dict[str, Any]]] = []
    for word in words:
        if "=" not in word:
            found.append((word, {}))
        elif found:
            found[-1][1].update(keyword_arguments([word]))
        else:
            raise SettingsError(f"{flag} begins with {word!r}, expected a name before its arguments")
    return [{name: arguments} if arguments else name for name, arguments in found]


def _group(title: str, text: str, options: list[tuple[str, Any, Any]]) -> tuple[str, Any, Any]:
    name = re.sub(r"\W+", "_", title)  # a field of the command
    group = dataclasses.make_dataclass(name, options)
    marked = Annotated[group, tyro.conf.arg(help=text)]  # type: ignore[valid-type]  # made just now
    return name, marked, dataclasses.field(default_factory=group)


def _option(cls: type[Settings], field: dataclasses.Field[Any]) -> tuple[str, Any, Any]:
    kind, default = kinds_of(cls)[field.name], default_of(field)
    option = tyro.conf.arg(
        prefix_name=False,
        help=field.metadata["help"],
        metavar=None if kind is bool else _METAVARS.get(field.name, _metavar(kind)),
        help_behavior_hint="" if default is None or default in ((), {}) else f"(default: {_as_typed(default)})",
    )
    read_as = _read_as(kind)
    nothing = {bool: False, str: ""}.get(read_as, ())
    return field.name, Annotated[read_as, option], dataclasses.field(default=nothing)


def _flag(argument: str) -> tuple[str, str]:
    """Return the flag as spelled in help and its setting name; both are empty if `argument` is no flag."""
    if not argument.startswith("--"):
        return "", ""
    name = dotted_name(argument.partition("=")[0])
    return as_flag(name), name


def _read_as(kind: Any) -> Any:
    """Return the type that a flag is parsed as; the settings convert the value later.

    `tuple` has no item type: for one, tyro would import typeguard and asyncio with it, a fifth of the time of --help.
    """
    if kind is bool:
        return bool
    kinds = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    return tuple if any(get_origin(each) in {tuple, list, dict} for each in kinds) else str


def _metavar(kind: Any) -> str:
    options = [part for part in get_args(kind) if part is not type(None)]
    if get_origin(kind) in {Union, UnionType}:
        return _metavar(options[0])
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, options)) + "}"
    if get_origin(kind) in {tuple, list}:
        return f"{_metavar(options[0])} ..."
    return {int: "INT", float: "FLOAT", bool: "{true,false}"}.get(kind, "TEXT")


def _as_typed(default: Any) -> str:
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)
