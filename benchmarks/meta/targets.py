"""Targets of the benchmark, with the measured values and whether each is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.ppo.rounds import ratio
from benchmarks.wanted import Target, at_least

# Table -> row, the row that it is compared with, the least ratio.
WANTED = {
    "antdir-8": [("random", "limit", 0.9), ("recurrent", "limit", 0.85), ("recurrent", "pipes-recurrent", 1.6)],
    "antdir-16": [("random", "limit", 0.9), ("recurrent", "limit", 0.85), ("recurrent", "pipes-recurrent", 1.6)],
    "pointrobotsparse-16": [("recurrent", "pipes-recurrent", 10.0)],
}


def check_targets(results: Mapping[str, Any]) -> list[Target]:
    """Return every target that these results cover."""
    targets: list[Target] = []
    for name, table in results.get("tables", {}).items():
        rows = table["rows"]
        for ours, other, wanted in WANTED[name]:
            words = f"{table['title']}: {rows[ours]['title']}, relative to {rows[other]['title']}"
            targets.append(at_least(words, ratio(rows, ours, other), wanted))
    return targets
