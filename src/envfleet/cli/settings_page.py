"""`python -m envfleet.cli.settings_page [FILE]`: generate the reference page of all settings."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envfleet.algorithms.settings import ALGORITHMS, HARMLESS, TrainingSettings
from envfleet.environments.presets import families
from envfleet.settings import grouped, reference_table
from envfleet.settings.presets import Preset

__all__ = ["settings_page"]

_HEAD = """\
# All settings

This page is generated from the settings classes (`make settings-page`); a test keeps it current.

A setting has one name everywhere: `rollout_steps` is `PPO(rollout_steps=128)` in Python, `rollout_steps: 128` in a
YAML or JSON file, and `--rollout-steps 128` on the command line. Switches are `--overwrite` and `--no-overwrite`. The
command line wins over the file; then come a preset by name (`--preset`), the preset of the environment's family, and
the defaults below. **So these defaults apply only where no preset sets a value**: each algorithm has a table of its
presets, and the console prints every value that differs from the default. A setting that an algorithm declares
differently is listed again there. [Train](train.md) shows how to use them.
"""


def settings_page() -> str:
    """Return the page as Markdown."""
    common = {field.name: _declaration(field) for field in dataclasses.fields(TrainingSettings)}
    parts = [_HEAD, "## Every algorithm\n", *_tables(TrainingSettings, set(common))]
    for name, kind in ALGORITHMS.items():
        # Its own settings, and those that it declares differently.
        fields = dataclasses.fields(kind)
        own = {field.name for field in fields if common.get(field.name) != _declaration(field)}
        parts += [
            f"## `{name}`\n",
            f"{(kind.__doc__ or '').strip()}\n",
            *_tables(kind, own),
            _presets(name),
            _other_names(kind),
        ]
    return "\n".join([*parts, _harmless()])


def _declaration(field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    return field.type, field.default, dict(field.metadata)


def _tables(kind: type[TrainingSettings], names: set[str]) -> list[str]:
    tables = []
    for title, text, fields in grouped(kind):
        chosen = [field for field in fields if field.name in names]
        if chosen:
            tables.append(f"### {title.capitalize()}\n\n{text}\n\n{reference_table(kind, chosen)}")
    return tables


def _presets(algorithm: str) -> str:
    """Return a table of the presets for families of environments."""
    lines = ["### Presets\n", "By family of environments, for settings that you do not give.\n"]
    lines += ["| family | settings |", "|---|---|"]
    for preset in _presets_of(algorithm):
        values = ", ".join(f"`{name}={value}`" for name, value in {**preset.values, **preset.env}.items())
        lines.append(f"| {preset.name} | {values} |")
    return "\n".join(lines) + "\n"


def _presets_of(algorithm: str) -> Iterator[Preset]:
    module = importlib.import_module(f"envfleet.algorithms.{algorithm}_presets")
    yield from (value for value in vars(module).values() if isinstance(value, Preset))
    for family in families():
        declared = [family.PRESETS, *getattr(family, "OF_CLASS", {}).values()]
        of_algorithm = {
            preset.name: preset for presets in declared for key, preset in presets.items() if key == algorithm
        }
        yield from of_algorithm.values()


def _other_names(kind: type[TrainingSettings]) -> str:
    """Return a table of the aliases of the settings."""
    names: dict[str, list[str]] = {}
    for alias, name in kind.aliases.items():
        names.setdefault(name, []).append(f"`{alias}`")
    lines = ["### Names from other libraries\n", "Accepted in files, and as flags without the part before the dot.\n"]
    lines += ["| there | here |", "|---|---|"]
    lines += [f"| {', '.join(aliases)} | `{name}` |" for name, aliases in sorted(names.items())]
    return "\n".join(lines) + "\n"


def _harmless() -> str:
    names = ", ".join(f"`{name}`" for name in sorted(HARMLESS))
    return f"## What `resume` may change\n\n{names}. Changing any other setting requires a new run.\n"


if __name__ == "__main__":
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(settings_page())
    else:
        sys.stdout.write(settings_page())
