"""Overhead of the fleet by number of environments, and speed-up of the thread backend."""

from __future__ import annotations

from typing import Any

from benchmarks.interleave import Procedure, measure_table
from benchmarks.rows import ROWS

SIZES = [2**power for power in range(11)]  # 1 to 1,024


def measure_growth(procedure: Procedure) -> list[dict[str, Any]]:
    """Measure the wall-clock microseconds that the fleet adds to each CartPole step, by number of environments."""
    growth = []
    for n_envs in SIZES:
        table = measure_table("cartpole", n_envs, [ROWS["fleet-step"]], procedure)
        row = table["rows"]["fleet-step"]
        if "absent" in row:
            growth.append({"n_envs": n_envs, "absent": row["absent"]})
            continue
        # Not from the fleet's absolute speed: the share compares measurements taken right after each other.
        limit_microseconds = 1e6 / table["limit"]["median"]
        overhead = {key: limit_microseconds * (1 / share - 1) for key, share in row["share"].items()}
        growth.append(
            {
                "n_envs": n_envs,
                "processes": table["processes"],
                "limit_microseconds": limit_microseconds,
                "overhead_microseconds": overhead["median"],
                "share": row["share"],
            }
        )
    return growth


def measure_threads(procedure: Procedure) -> dict[str, Any]:
    """Compare the speed-up of threads with that of independent processes, on a step that releases the GIL."""
    rows = [ROWS["fleet-threads"], ROWS["plain-loop"]]
    table = measure_table("hash", 64, rows, procedure)
    threads, plain = table["rows"]["fleet-threads"], table["rows"]["plain-loop"]
    if "absent" not in threads and "absent" not in plain:
        # Both speed-ups are over the same plain loop, so their ratio is the threads' share of the limit.
        table["speedup"] = {
            "processes": 1 / plain["share"]["median"],
            "threads": threads["share"]["median"] / plain["share"]["median"],
            "ratio": threads["share"],
        }
    return table
