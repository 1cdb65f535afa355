"""`python -m envfleet.cli.settings_page [FILE]`: generate the reference page of all settings."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from envfleet.algorithms.settings import ALGORITHMS, HARMLESS, TrainingSettings
from envfleet.settings import grouped, reference_table

__all__ = ["settings_page"]

_HEAD = """\
# All settings

This page is generated from the settings classes (`make settings-page`); a test keeps it current.

A setting has one name everywhere: `rollout_steps` is `PPO(rollout_steps=128)` in Python, `rollout_steps: 128` in a
YAML or JSON file, and `--rollout-steps 128` on the command line. Switches are `--overwrite` and `--no-overwrite`. The
command line wins over the file, the file over the preset of the environment's family, and the preset over the defaults
below. [Train](train.md) shows how to use them.
"""


def settings_page() -> str:
    """Return the page as Markdown."""
    common = {field.name for field in dataclasses.fields(TrainingSettings)}
    parts = [_HEAD, "## Every algorithm\n", *_tables(TrainingSettings, common)]
    for name, kind in ALGORITHMS.items():
        own = {field.name for field in dataclasses.fields(kind)} - common
        parts += [f"## `{name}`\n", f"{(kind.__doc__ or '').strip()}\n", *_tables(kind, own), _other_names(kind)]
    return "\n".join([*parts, _harmless()])


def _tables(kind: type[TrainingSettings], names: set[str]) -> list[str]:
    tables = []
    for title, text, fields in grouped(kind):
        chosen = [field for field in fields if field.name in names]
        if chosen:
            tables.append(f"### {title.capitalize()}\n\n{text}\n\n{reference_table(kind, chosen)}")
    return tables


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
