"""Benchmark the fleet against the limit of this machine and against other libraries.

`python -m benchmarks.fleet --output docs/benchmarks/fleet.json` takes about 40 minutes on 2 cores. Flags select parts,
rows, workloads and numbers of environments. Install the other libraries with `python -m benchmarks.peers.install`;
libraries that are not installed are reported as absent.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.growth import measure_growth, measure_threads
from benchmarks.interleave import LIMIT_PART, ROUNDS_PER_BUILD, Procedure, measure_table
from benchmarks.load import BUSY_CORES, busy_cores
from benchmarks.peers.install import versions
from benchmarks.rows import PEER_ROWS, ROWS, TABLE_ROWS
from benchmarks.sessions import Duration
from benchmarks.startup import measure_startup
from benchmarks.step_time import measure_step_time
from benchmarks.tables import render_page
from benchmarks.workloads import HASHED_BYTES, PYTHON_ITERATIONS

PARTS = ("tables", "step_time", "threads", "growth", "startup")
TABLE_WORKLOADS = ("cartpole", "halfcheetah", "breakout", "python")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = perf_counter()

    def report(message: str) -> None:
        minutes, seconds = divmod(int(perf_counter() - began), 60)
        print(f"[{minutes:3d}:{seconds:02d}] {message}", file=sys.stderr, flush=True)

    from envfleet.machine import describe, usable_cores

    procedure = Procedure(usable_cores(), options.pairs, Duration(options.seconds, options.warmup), report)
    load = busy_cores()
    if load > BUSY_CORES:
        report(f"warning: other work keeps {load:.1f} cores busy\nhint: measure alone on the machine")
    results: dict[str, Any] = {
        "machine": describe(),
        "load_before": load,
        "settings": {
            "pairs": options.pairs,
            "seconds": options.seconds,
            "limit_seconds": options.seconds * LIMIT_PART,
            "warmup": options.warmup,
            "rounds_per_build": ROUNDS_PER_BUILD,
            "python_iterations": PYTHON_ITERATIONS,
            "hashed_bytes": HASHED_BYTES,
        },
        "libraries": versions() if set(options.rows) & set(PEER_ROWS) else {},
    }
    if "startup" in options.parts:
        results["startup"] = measure_startup(repeats=options.pairs, report=report)
    if "tables" in options.parts:
        rows = [ROWS[name] for name in options.rows]
        results["tables"] = [
            measure_table(workload, n_envs, rows, procedure)
            for n_envs in options.envs
            for workload in options.workloads
        ]
    if "step_time" in options.parts:
        results["step_time"] = measure_step_time(procedure)
    if "threads" in options.parts:
        results["threads"] = measure_threads(procedure)
    if "growth" in options.parts:
        results["growth"] = measure_growth(procedure)
    results["minutes"] = (perf_counter() - began) / 60
    Console().print(Markdown(render_page(results)))
    if options.output is not None:
        if options.output.exists() and set(options.parts) != set(PARTS):  # the other parts stay as they are
            results = {**json.loads(options.output.read_text()), **{part: results[part] for part in options.parts}}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        report(f"written to {options.output}")
    return 1 if _failed(results) else 0


def _failed(results: dict[str, Any]) -> bool:
    """Return whether one of our own rows could not be measured; other libraries may be absent."""
    tables = [*results.get("tables", []), *([results["threads"]] if "threads" in results else [])]
    ours = [row for table in tables for name, row in table["rows"].items() if name not in PEER_ROWS]
    return any("absent" in row for row in [*ours, *results.get("growth", [])])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--rows", nargs="+", choices=TABLE_ROWS, default=TABLE_ROWS, help="table rows to measure")
    parser.add_argument("--workloads", nargs="+", choices=TABLE_WORKLOADS, default=list(TABLE_WORKLOADS))
    parser.add_argument("--envs", nargs="+", type=int, default=[64, 8], help="numbers of environments")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="other libraries too")
    parser.add_argument("--pairs", type=int, default=9, help="rounds; each row is measured once per round")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a measurement, without warm-up")
    parser.add_argument("--warmup", type=float, default=0.2, help="seconds of stepping before each measurement")
    parser.add_argument(
        "--output",
        type=Path,
        help="JSON file for the results (default: print only); parts that are not measured stay in it",
    )
    options = parser.parse_args(arguments)
    if not options.peers:
        options.rows = [name for name in options.rows if name not in PEER_ROWS]
    return options


if __name__ == "__main__":
    sys.exit(main())
