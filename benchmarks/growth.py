"""How the fleet's cost grows with the number of environments, and what threads give."""

from __future__ import annotations

from typing import Any

from benchmarks.interleave import Procedure, measure_table
from benchmarks.rows import ROWS

SIZES = [2**power for power in range(11)]  # 1 to 1,024


def measure_growth(procedure: Procedure) -> list[dict[str, Any]]:
    """Wall-clock microseconds that the fleet adds to each CartPole step, over the number of environments."""
    growth = []
    for n_envs in SIZES:
        table = measure_table("cartpole", n_envs, [ROWS["fleet-step"]], procedure)
        row = table["rows"]["fleet-step"]
        if "absent" in row:
            growth.append({"n_envs": n_envs, "absent": row["absent"]})
            continue
        # From the limit and the share, not from the fleet's own speed: both were measured at the same time.
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
    """The speed-up of threads over the plain loop against that of independent processes, without the GIL."""
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
