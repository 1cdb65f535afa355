"""The targets that DQN was built to, each with what was measured and whether it was reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.ppo.rounds import ratio
from benchmarks.ppo.targets import at_least, times_peer

Target = dict[str, Any]


def check_targets(results: Mapping[str, Any]) -> list[Target]:
    """Every target that these results say something about."""
    tables = results.get("tables", {})
    targets: list[Target] = []
    if "cartpole" in tables:
        rows = tables["cartpole"]["rows"]
        targets.append(at_least("CartPole-v1, `sync`: times the better Stable-Baselines3", times_peer(rows, "sync"), 3))
    if "million" in tables:
        found = ratio(tables["million"]["rows"], "prioritised", "uniform")
        targets.append(at_least("a million steps: speed by priority over that of an even draw", found, 0.7))
    if "balanced" in tables:
        found = ratio(tables["balanced"]["rows"], "overlap", "sync")
        targets.append(at_least("collecting as dear as learning: `overlap` over `sync`", found, 1.5))
    if "sampling" in results:
        found = results["sampling"]["share_of_gather"]
        targets.append(at_least("images from a million steps: share of a plain gather's speed", found, 0.7))
    return targets
