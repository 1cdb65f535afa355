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
            targets.append(at_least(words, ratio(rows, ours, other), wanted, _reason(rows, ours, other)))
    return targets


def _reason(rows: Mapping[str, Any], ours: str, other: str) -> str:
    """Explain a missed target by what was measured of its parts."""
    reasons = []
    waiting = ratio(rows, "waiting", "limit")
    if other == "limit" and waiting:
        reasons.append(f"processes that wait for each other after every rollout reach {waiting['median']:.2f}")
    if time := rows[ours].get("time"):
        reasons.append(f"the policy takes {time['acting']:.0%} of the time")
    return "; ".join(reasons)
