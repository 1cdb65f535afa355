"""The file of pinned digests, by the fingerprint of the machine that made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["read", "renewed", "write"]

FILE = Path(__file__).with_name("digests.json")
Table = dict[str, dict[str, Any]]  # fingerprint -> {"computes with": words, "digests": {run: digest}}


def read() -> Table:
    table: Table = json.loads(FILE.read_text()) if FILE.exists() else {}
    return table


def write(table: Table) -> None:
    FILE.write_text(json.dumps(table, indent=2) + "\n")


def renewed(table: Table, machine: str, computes_with: str, found: dict[str, str]) -> tuple[Table, list[str]]:
    """Return the table with the digests `found` on this machine, and messages about the changes.

    A run that changed here changed everywhere, so its digests on other machines are dropped.
    """
    before = table.get(machine, {"digests": {}})["digests"]
    changed = [name for name in found if name in before and before[name] != found[name]]
    said = [f"{name}: {before[name]} became {found[name]}" for name in changed]
    said += [f"{name}: {found[name]} is new on this machine" for name in found if name not in before]
    said += [f"{name}: there is no such run any more" for name in before if name not in found]
    said.append(f"digests as before: {sum(before.get(name) == digest for name, digest in found.items())}")
    if changed:
        said.append("results have changed: a line in CHANGELOG.md says which and why")
    after: Table = {machine: {"computes with": computes_with, "digests": found}}
    for other, entry in table.items():
        if other != machine:
            kept = {name: digest for name, digest in entry["digests"].items() if name in found and name not in changed}
            after[other] = {**entry, "digests": kept}
            if kept != entry["digests"]:
                said.append(f"`make digests` is due on the machine {other} too ({entry['computes with']})")
    return after, said
