"""Targets of the DQN benchmark, with the measured values and whether each is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.ppo.rounds import ratio
from benchmarks.ppo.targets import times_peer
from benchmarks.wanted import Target, at_least


def check_targets(results: Mapping[str, Any]) -> list[Target]:
    """Return every target that these results cover."""
    tables = results.get("tables", {})
    targets: list[Target] = []
    if "cartpole" in tables:
        rows = tables["cartpole"]["rows"]
        targets.append(at_least("CartPole-v1, `sync`: relative to the faster SB3 row", times_peer(rows, "sync"), 3))
    if "million" in tables:
        found = ratio(tables["million"]["rows"], "prioritised", "uniform")
        targets.append(at_least("a million steps: prioritised speed relative to uniform", found, 0.7))
    if "balanced" in tables:
        found = ratio(tables["balanced"]["rows"], "overlap", "sync")
        targets.append(at_least("collecting as long as learning: `overlap` relative to `sync`", found, 1.5))
    if "sampling" in results:
        found = results["sampling"]["share_of_gather"]
        targets.append(at_least("images from a million steps: share of a plain gather's speed", found, 0.7))
    return targets
