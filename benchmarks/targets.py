"""Targets of the fleet benchmark, with the measured values and whether each is reached."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.rows import PEER_ROWS, ROWS
from benchmarks.workloads import WORKLOADS

# (row, environments): the share of its bound to reach on each workload. The bound of `step` is the limit in lockstep.
# Half batches do not wait for all environments, so their bound is the limit itself. Earlier targets of 0.75 to 0.95 of
# the limit were withdrawn once the bound was measured: a loop in Python cannot reach them on cheap environments, and a
# loop in C would require a compiler from every user. The present targets keep the speed from falling.
BOUNDS = {"fleet-step": "in-step", "fleet-half-batches": None}
SHARES = {
    ("fleet-step", 64): {"cartpole": 0.65, "halfcheetah": 0.75, "breakout": 0.90, "python": 0.90},
    ("fleet-half-batches", 64): {"cartpole": 0.45, "halfcheetah": 0.78, "breakout": 0.92, "python": 0.95},
    ("fleet-step", 8): {"cartpole": 0.35, "halfcheetah": 0.65, "breakout": 0.85, "python": 0.85},
}
# Known reasons for missed targets.
FEW_CHEAP = (
    "8 cheap steps take less time than waking two processes; "
    "`auto` steps them in the caller ([slow](benchmarks-slow.md))"
)
LARGE_FLEETS = "probably because large fleets do not fit into the CPU caches; the environments get slower too"
TIMES_ASYNC = 10.0
THREADS = 0.9
IMPORT_SECONDS, READY_SECONDS, WORKER_MEGABYTES = 0.3, 1.0, 30.0
# 'Flat' on a noisy machine: at most this factor, or this many microseconds, above the lowest value so far.
FLAT_FACTOR, FLAT_MICROSECONDS = 1.15, 0.5

Target = dict[str, Any]


def check_targets(results: dict[str, Any]) -> list[Target]:
    """Return every target that these results cover."""
    targets: list[Target] = []
    for table in results.get("tables", []):
        targets += _share_targets(table)
        targets += _comparisons(table)
    if "speedup" in results.get("threads", {}):
        ratio = results["threads"]["speedup"]["ratio"]["median"]
        targets.append(_at_least("threads: share of independent processes' speed-up", ratio, THREADS))
    if "growth" in results:
        targets.append(_growth_target(results["growth"]))
    if "startup" in results:
        targets += _startup_targets(results["startup"])
    return targets


def ratio_of_rows(table: dict[str, Any], ours: str, theirs: str) -> float | None:
    """Return how many times as fast `ours` is as `theirs`: the median over the rounds that have both."""
    rows = [table["rows"].get(name, {}) for name in (ours, theirs)]
    shares: list[dict[int, float]] = [{pair["round"]: pair["share"] for pair in row.get("pairs", [])} for row in rows]
    common = shares[0].keys() & shares[1].keys()
    if any("absent" in row for row in rows) or not common:
        return None
    return median(shares[0][number] / shares[1][number] for number in common)


def _share_targets(table: dict[str, Any]) -> Iterator[Target]:
    for (row, n_envs), shares in SHARES.items():
        measured = table["rows"].get(row)
        if n_envs == table["n_envs"] and table["workload"] in shares and measured is not None:
            bound = BOUNDS[row]
            if bound is None:
                what, share = "the limit", None if "absent" in measured else measured["share"]["median"]
            else:
                what, share = "the limit in lockstep", ratio_of_rows(table, row, bound)
            yield _at_least(f"{ROWS[row].title}: share of {what}, {_where(table)}", share, shares[table["workload"]])


def _comparisons(table: dict[str, Any]) -> Iterator[Target]:
    others = [*PEER_ROWS, *(["plain-loop"] if table["n_envs"] == 64 else [])]
    for other in others:
        ours = "fleet-half-batches" if other.endswith("half-batches") else "fleet-step"
        times = ratio_of_rows(table, ours, other)
        if times is not None:
            name = f"speed relative to {ROWS[other].title}, {_where(table)}"
            few_cheap = (table["workload"], table["n_envs"], other) == ("cartpole", 8, "gymnasium-sync")
            yield _target(name, "> 1", times, times > 1, FEW_CHEAP if few_cheap else "")
            if other == "gymnasium-async" and (table["workload"], table["n_envs"]) == ("cartpole", 64):
                yield _at_least(name, times, TIMES_ASYNC)


def _growth_target(growth: list[dict[str, Any]]) -> Target:
    name = "overhead per environment step: flat or falling from 1 to 1,024 environments"
    wanted = f"<= {FLAT_FACTOR:g} × the lowest so far (or {FLAT_MICROSECONDS:g} µs above it)"
    overheads = [point.get("overhead_microseconds") for point in growth]
    least, worst, flat = float("inf"), 0.0, True
    for overhead in overheads:
        if overhead is None:
            return _target(name, wanted, None, False)
        if least < float("inf"):
            worst = max(worst, overhead / least)
            flat = flat and overhead <= max(least * FLAT_FACTOR, least + FLAT_MICROSECONDS)
        least = min(least, overhead)
    return _target(name, wanted, worst, flat, LARGE_FLEETS)


def _startup_targets(startup: dict[str, Any]) -> Iterator[Target]:
    more = startup["import_seconds_more"]["median"]
    yield _below("seconds for `from envfleet import make` minus `import gymnasium`", more, IMPORT_SECONDS)
    for script, seconds in startup["ready_seconds"].items():
        name = f"seconds until 64 CartPole-v1 on 2 worker processes are ready ({script})"
        yield _below(name, seconds["median"], READY_SECONDS)
    for script, figures in startup["memory_mb"]["workers"].items():
        name = f"MB per worker minus its environments ({script})"
        yield _below(name, figures["beyond_environments"], WORKER_MEGABYTES)


def _where(table: dict[str, Any]) -> str:
    return f"{WORKLOADS[table['workload']].title}, {table['n_envs']} environments"


def _at_least(name: str, measured: float | None, wanted: float) -> Target:
    return _target(name, f">= {wanted:g}", measured, measured is not None and measured >= wanted)


def _below(name: str, measured: float, wanted: float) -> Target:
    return _target(name, f"< {wanted:g}", measured, measured < wanted)


def _target(name: str, wanted: str, measured: float | None, reached: bool, why: str = "") -> Target:
    """`why` explains a target that is missed."""
    return {"target": name, "wanted": wanted, "measured": measured, "reached": reached, "why": why}
