"""Benchmark the schedule `async`: its speed beside `overlap` with unequal workers, and its learning beside `sync`.

`python -m benchmarks.asynchrony --output docs/benchmarks/async.json` measures everything and writes the page. Speed
takes about 6 minutes on 2 otherwise idle cores; learning takes minutes for cartpole and acrobot, and about an hour for
lunarlander. With `--parts` it measures only those parts and keeps the rest of that file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.asynchrony import learning, speed
from benchmarks.asynchrony.page import PAGE, RESULTS, render_page
from benchmarks.load import busy_cores
from benchmarks.tables import publish

PARTS = ("speed", "learning")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = perf_counter()

    def report(message: str) -> None:
        print(f"[{perf_counter() - began:6.0f} s] {message}", file=sys.stderr, flush=True)

    results = _circumstances(options)
    if "speed" in options.parts:
        results["speed"] = speed.measure(options.rounds, options.seconds, report)
        results["settings"] = {"rounds": options.rounds, "seconds": options.seconds}
    if "learning" in options.parts:
        results["learning"] = {**results.get("learning", {}), **learning.measure(options.tasks, report)}
    results["minutes"] = results.get("minutes", 0.0) + (perf_counter() - began) / 60
    publish(results, render_page(results), options.output, RESULTS, PAGE)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.asynchrony",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--tasks", nargs="+", choices=learning.TASKS, default=["cartpole", "acrobot"], help="to learn")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the speed measurement")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a speed measurement")
    parser.add_argument("--output", type=Path, help="JSON file for the results (default: print only)")
    return parser.parse_args(arguments)


def _circumstances(options: argparse.Namespace) -> dict[str, Any]:
    """Return the machine and its load, and the earlier results if only some parts are measured."""
    from envfleet.machine import describe

    kept: dict[str, Any] = {}
    if options.output is not None and options.output.exists() and set(options.parts) != set(PARTS):
        kept = json.loads(options.output.read_text())
    return {**kept, "machine": describe(), "load_before": busy_cores(), "libraries": {}}


if __name__ == "__main__":
    sys.exit(main())
