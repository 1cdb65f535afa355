"""Settings files: YAML, or JSON with comments and trailing commas."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envfleet.errors import SettingsError

__all__ = ["parse_json", "read_settings_file"]

_DEEPEST = 50  # levels of nesting; real settings need few

# Strings are matched first, so that `//` inside a string is not taken for a comment.
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STRING_OR_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\\n])*")|,(?=\s*[}\]])')


def read_settings_file(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML or JSON file; an empty file gives an empty mapping."""
    path = Path(path)
    readers: dict[str, Callable[[str, Path], Any]] = {".yaml": _yaml, ".yml": _yaml, ".json": _json, ".jsonc": _json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise SettingsError(f"got the settings file {path}, expected a name that ends in {', '.join(readers)}")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(f"there is no settings file {path}", hint=_near_files(path, tuple(readers))) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error}") from error
    try:
        content = reader(text, path)
        too_deep = _is_deeper(content, _DEEPEST)
    except RecursionError:
        too_deep = True
    if too_deep:
        raise SettingsError(f"{path} is nested too deeply, expected at most {_DEEPEST} levels")
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path} holds a {type(content).__name__}, expected settings as `name: value`")
    return content


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _is_deeper(content: Any, levels: int) -> bool:
    """Whether the nesting exceeds `levels`. Iterative, because recursion would hit the same limit as the reader."""
    level = [content]
    for _ in range(levels + 1):
        parts = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = list({id(item): item for part in parts for item in part}.values())
    return bool(level)


def _near_files(path: Path, suffixes: tuple[str, ...]) -> str | None:
    folder = path.parent
    names = sorted(file.name for file in folder.iterdir() if file.suffix in suffixes) if folder.is_dir() else []
    return f"in {folder} there are {', '.join(names[:10])}" if names else None


def _bad(path: Path, line: int, words: str) -> SettingsError:
    return SettingsError(f"{path}, line {line}: {words}")


def _yaml(text: str, path: Path) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Accepts plain values only and refuses duplicate keys."""

    def mapping(loader: Loader, node: yaml.MappingNode) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if str(key.value) in lines:
                raise _bad(path, line, f"{key.value} is there twice, first in line {lines[str(key.value)]}")
            lines[str(key.value)] = line
        return loader.construct_mapping(node, deep=True)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _bad(path, mark.line + 1 if mark else 1, error.problem or "this is not YAML") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not YAML: {error}") from error


def _json(text: str, path: Path) -> Any:
    def blank(match: re.Match[str]) -> str:
        # Keep line breaks, so that messages name the right line.
        return match[1] or re.sub(r"[^\n]", " ", match[0])

    bare = _STRING_OR_LAST_COMMA.sub(blank, _STRING_OR_COMMENT.sub(blank, text))
    try:
        return json.loads(bare, object_pairs_hook=lambda pairs: _without_twice(pairs, path)) if bare.strip() else None
    except json.JSONDecodeError as error:
        raise _bad(path, error.lineno, f"{error.msg[0].lower()}{error.msg[1:]}") from error


def _without_twice(pairs: list[tuple[str, Any]], path: Path) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(f"{path}: {', '.join(twice)} is there twice")
    return dict(pairs)
