"""`python -m benchmarks.slow`: does `auto` find the fastest setup for slow simulators?

The simulators take some milliseconds per step, computing or waiting, and there are few of them. In interleaved rounds,
`auto` is compared with our backends at other settings and with Gymnasium's vector environments. Results go to
docs/benchmarks/slow.json, the page to docs/benchmarks-slow.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.interleave import quartiles
from benchmarks.load import busy_cores
from benchmarks.peers.install import python_of, reason_of_absence
from benchmarks.sessions import ROOT, Duration, Session, SessionError
from benchmarks.workloads import WORKLOADS
from envfleet.fleet.spec import default_group_count

OUTPUT = ROOT / "docs" / "benchmarks" / "slow.json"
PAGE = ROOT / "docs" / "benchmarks-slow.md"
COUNTS = (1, 2, 4, 8, 16)
CELLS = {
    "stepping": [*(name for name in WORKLOADS if name.startswith(("computed", "waited"))), "cartpole"],
    "training": [name for name in WORKLOADS if name.startswith(("computed", "waited"))],
}
TARGET = 0.95


def rows_for(what: str, n_envs: int) -> dict[str, dict[str, Any] | str]:
    """Return the settings of each of our rows by name, and the peer names of Gymnasium's rows."""
    several = sorted({min(count, n_envs) for count in (2, n_envs)} - {1})
    rows: dict[str, dict[str, Any] | str] = {"auto": {}, "sequential": {"backend": "sequential"}}
    if what == "stepping":
        for backend in ("processes", "threads"):
            rows |= {f"{backend}, {count} workers": {"backend": backend, "workers": count} for count in several}
        return rows | {"SyncVectorEnv": "gymnasium-sync", "AsyncVectorEnv": "gymnasium-async"}
    for acting in ("worker", "central"):
        for count in several or [1]:  # one environment: in a separate process
            rows[f"acting {acting}, {count} worker{'s' if count > 1 else ''}"] = {
                "backend": "processes",
                "workers": count,
                "acting": acting,
            }
    return rows


def start(what: str, workload: str, n_envs: int, row: dict[str, Any] | str) -> Session:
    shared = ["--workload", workload, "--envs", n_envs]
    if isinstance(row, dict):
        return Session("benchmarks.slow_session", ["--what", what, *shared, "--settings", json.dumps(row)])
    if reason := reason_of_absence("gymnasium"):
        raise SessionError(reason)
    return Session("benchmarks.peers.peer", ["--peer", row, *shared], python=python_of("gymnasium"))


def measure_cell(what: str, workload: str, n_envs: int, rounds: int, builds: int, duration: Duration) -> dict[str, Any]:
    """Measure all rows, each once per round, in rotating order.

    The rounds are split over `builds` fresh sets of processes: luck with memory layout and hashing lasts as long as a
    process, and is worth some percent if steps are cheap.
    """
    rows = rows_for(what, n_envs)
    rates: dict[str, list[float]] = {name: [] for name in rows}
    chosen: dict[str, Any] = {}
    for build in range(builds):
        with ExitStack() as stack:
            sessions: dict[str, Session] = {}
            for name in (*(name for name in rows if name != "auto"), "auto"):
                if name == "auto":  # it measures while it starts, so the others must be idle by then
                    for session in sessions.values():
                        session.wait_until_ready()
                sessions[name] = stack.enter_context(closing(start(what, workload, n_envs, rows[name])))
            sessions["auto"].wait_until_ready()
            order = list(rows)
            for index in range(build, rounds, builds):
                for name in order[index % len(order) :] + order[: index % len(order)]:
                    answer = sessions[name].measure(duration)
                    rates[name].append(answer["steps"] / answer["seconds"])
                    if name == "auto":
                        chosen = {key: answer[key] for key in ("backend", "workers", "acting") if key in answer}
    cell = {
        "workload": workload,
        "n_envs": n_envs,
        "rounds": rounds,
        "builds": builds,
        "seconds": duration.seconds,
        "chosen": chosen,
        "steps_per_second": {name: quartiles(values) for name, values in rates.items()},
        "rates": rates,
    }
    return cell | compared(what, cell)


def compared(what: str, cell: dict[str, Any]) -> dict[str, Any]:
    """Return the speed of `auto` divided by that of each row with other settings, as medians over the rounds.

    A row with the settings that `auto` chose measures the same thing again, so the mean of both counts.
    """
    rates, rows = cell["rates"], rows_for(what, cell["n_envs"])
    same = [name for name in rows if name != "auto" and _is_chosen(rows[name], cell["chosen"], cell["n_envs"])]
    ours = [statistics.fmean(rates[name][index] for name in ("auto", *same)) for index in range(cell["rounds"])]
    shares = {
        name: statistics.median(our / other for our, other in zip(ours, others, strict=True))
        for name, others in rates.items()
        if name not in ("auto", *same)
    }
    fastest = min(shares, key=lambda name: shares[name])
    return {"same_as_auto": same, "auto_over": shares, "fastest_other": fastest, "share": shares[fastest]}


def _is_chosen(row: dict[str, Any] | str, chosen: dict[str, Any], n_envs: int) -> bool:
    """Return whether a row has the settings that `auto` chose; acting workers are at most as many as groups."""
    if isinstance(row, str):
        return False
    if row.get("backend") == "sequential":
        return bool(chosen["backend"] == "sequential")
    if not row:
        return False
    most = default_group_count(n_envs) if row.get("acting") == "worker" else n_envs
    return bool({**row, "workers": min(row["workers"], most)}.items() <= chosen.items())


def page(results: dict[str, Any]) -> str:
    machine = results["machine"]
    lines = [
        "# Slow simulators: does `auto` find the fastest setup?",
        "",
        "<!-- written by `python -m benchmarks.slow`; do not edit -->",
        "",
        (
            f"Measured on {machine['cores']} cores ({machine['cpu']}) in interleaved rounds. `auto` is compared with "
            "our backends at other numbers of workers and, for stepping, with SyncVectorEnv and AsyncVectorEnv. "
            "*Share* is the speed of `auto` divided by that of the fastest other row (median over the rounds). If a "
            f"row has the settings that `auto` chose, the mean of both counts as `auto`. The target is {TARGET}. The "
            "machine is shared: medians of the same settings, measured twice in a cell, differ by up to "
            f"{_largest_difference(results):.0%}. Picking the fastest of several noisy rows lowers the share."
        ),
    ]
    for what, title in (("stepping", "Stepping"), ("training", "Training with PPO")):
        cells = results["cells"].get(what, [])
        if not cells:
            continue
        below = sum(cell["share"] < TARGET for cell in cells)
        ways = dict.fromkeys((cell["rounds"], cell.get("builds", 1), cell["seconds"]) for cell in cells)
        how = "; ".join(
            f"{rounds} rounds of {seconds:g} s{f' in {builds} builds' if builds > 1 else ''}"
            for rounds, builds, seconds in ways
        )
        lines += ["", f"## {title}", "", f"{len(cells) - below} of {len(cells)} cells reach {TARGET} ({how}).", ""]
        lines += [
            "| step | environments | `auto` chose | steps/s | the fastest other | steps/s | share |",
            "| --- | ---: | --- | ---: | --- | ---: | ---: |",
        ]
        for cell in cells:
            rates, other = cell["steps_per_second"], cell["fastest_other"]
            choice = ", ".join(str(value) for value in cell["chosen"].values())
            lines.append(
                f"| {WORKLOADS[cell['workload']].title} | {cell['n_envs']} | {choice} | "
                f"{rates['auto']['median']:,.0f} | {other} | {rates[other]['median']:,.0f} | {cell['share']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def _largest_difference(results: dict[str, Any]) -> float:
    """Return the largest relative difference between two rows with the same settings."""
    differences = [0.0]
    for cell in (cell for cells in results["cells"].values() for cell in cells):
        auto = cell["steps_per_second"]["auto"]["median"]
        differences += [abs(auto / cell["steps_per_second"][name]["median"] - 1.0) for name in cell["same_as_auto"]]
    return max(differences)


def main(arguments: list[str]) -> int:
    from envfleet.machine import describe

    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow", description=__doc__)
    parser.add_argument("--what", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, help="measure only these; keep the other results")
    parser.add_argument("--envs", nargs="+", type=int, default=COUNTS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--builds", type=int, default=1, help="fresh sets of processes to split the rounds over")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    kept = json.loads(options.output.read_text()) if options.output.exists() else {"cells": {}}
    results: dict[str, Any] = {
        "machine": describe(),
        "load_before": busy_cores(),
        "cells": kept["cells"],
    }
    began = perf_counter()
    for what in options.what:
        measured = {(cell["workload"], cell["n_envs"]): cell for cell in results["cells"].get(what, [])}
        wanted = [name for name in CELLS[what] if options.workloads is None or name in options.workloads]
        for workload in wanted:
            for n_envs in options.envs:
                duration = Duration(options.seconds, options.seconds / 4)
                cell = measure_cell(what, workload, n_envs, options.rounds, options.builds, duration)
                measured[workload, n_envs] = cell
                print(
                    f"[{perf_counter() - began:5.0f} s] {what} {workload} {n_envs}: {cell['share']:.2f} of "
                    f"{cell['fastest_other']} with {cell['chosen']}",
                    file=sys.stderr,
                    flush=True,
                )
        order = list(CELLS[what])
        results["cells"][what] = sorted(
            measured.values(), key=lambda cell: (order.index(cell["workload"]), cell["n_envs"])
        )
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    if options.output == OUTPUT:
        PAGE.write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
