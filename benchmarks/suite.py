"""Shared code of the algorithm benchmarks: options, machine facts, measured parts and the results file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import tables
from benchmarks.load import BUSY_CORES, busy_cores
from benchmarks.peers.install import reason_of_absence, version_of
from benchmarks.ppo.rounds import Procedure
from benchmarks.ppo.rows import LIBRARY

Results = dict[str, Any]


def measure_parts(
    options: argparse.Namespace,
    everything: Sequence[str],
    packages: Sequence[str],
    measure: Callable[[str, Procedure, Results], None],
) -> tuple[Results, Procedure]:
    """Measure the selected parts; keep the results file's earlier figures of the others, and their machine."""
    began = perf_counter()

    def report(message: str) -> None:
        minutes, seconds = divmod(int(perf_counter() - began), 60)
        print(f"[{minutes:3d}:{seconds:02d}] {message}", file=sys.stderr, flush=True)

    whole = set(options.parts) == set(everything)
    here = _circumstances(options, packages)
    results = {**here, **_kept(None if whole else options.output)}
    if here["load_before"] > BUSY_CORES:
        busy = f"{here['load_before']:.1f}"
        report(f"warning: other work keeps {busy} cores busy\nhint: measure alone on the machine")
    procedure = Procedure(here["machine"]["cores"], options.rounds, options.seconds, report)
    for name in options.parts:
        before = perf_counter()
        measure(name, procedure, results)
        results["cpu_of"][name] = here["machine"]["cpu"]
        results["minutes_of"][name] = (perf_counter() - before) / 60
    results["minutes"] = sum(results["minutes_of"].values())
    return results, procedure


def write_results(results: Results, output: Path, procedure: Procedure) -> None:
    tables.write_results(results, output)
    procedure.report(f"written to {output}")


def _kept(output: Path | None) -> Results:
    empty: Results = {"tables": {}, "minutes_of": {}, "cpu_of": {}}
    if output is None or not output.exists():
        return empty
    return {**empty, **json.loads(output.read_text())}


def _circumstances(options: argparse.Namespace, packages: Sequence[str]) -> Results:
    from envfleet.machine import describe

    absent = reason_of_absence(LIBRARY)
    return {
        "machine": describe(),
        "load_before": busy_cores(),
        "settings": {"rounds": options.rounds, "seconds": options.seconds},
        "libraries": {name.replace("_", "-"): absent or version_of(LIBRARY, name) for name in packages},
    }


def read_options(
    arguments: Sequence[str] | None, name: str, description: str | None, parts: Sequence[str], *, rounds: int
) -> argparse.Namespace:
    """Parse the options: what to measure, how often, how long, and where the results go."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts, help="what to measure")
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds; each row is measured once per round")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a measurement (at least one cycle)")
    parser.add_argument("--output", type=Path, help="JSON file for the results (default: print only)")
    return parser.parse_args(arguments)
