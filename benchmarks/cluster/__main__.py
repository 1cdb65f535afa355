"""Benchmark training on several nodes: scaling, the cost of a rollout, a model of cost, and a soak test.

`python -m benchmarks.cluster --output docs/benchmarks/cluster.json` measures everything and writes the page. The nodes
are namespaces of this machine, which needs root and iproute2. It takes about half an hour on 2 otherwise idle cores,
and 20 minutes more for the soak test. With `--parts` it measures only those parts and keeps the rest of that file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.cluster.measuring import measure_model, measure_rollouts, measure_scaling
from benchmarks.cluster.page import PAGE, RESULTS, render_page
from benchmarks.cluster.soak import measure_soak
from benchmarks.load import busy_cores
from benchmarks.tables import publish, write_results
from tests.cluster.namespaces import namespaces_work

PARTS = ("scaling", "rollouts", "model", "soak")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if not namespaces_work():
        raise SystemExit("this machine cannot make network namespaces\nhint: run as root, with iproute2 installed")
    began = perf_counter()

    def report(message: str) -> None:
        print(f"[{perf_counter() - began:6.0f} s] {message}", file=sys.stderr, flush=True)

    results = _circumstances(options)
    for name in options.parts:
        start = perf_counter()
        results["load_of"][name] = busy_cores()
        results["cpu_of"][name] = results["machine"]["cpu"]
        if name == "soak":
            results[name] = measure_soak(options.minutes, options.kill_every, report)
        else:
            measure = {"scaling": measure_scaling, "rollouts": measure_rollouts, "model": measure_model}[name]
            results[name] = measure(options.rounds, options.seconds, report)
        results["minutes_of"][name] = (perf_counter() - start) / 60
        if options.output is not None:  # after each part: the later ones take long
            write_results(results, options.output)
    results["minutes"] = sum(results["minutes_of"].values())
    publish(results, render_page(results), options.output, RESULTS, PAGE)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a measurement")
    parser.add_argument("--minutes", type=float, default=20.0, help="length of the soak test")
    parser.add_argument("--kill-every", type=float, default=120.0, metavar="SECONDS", help="in the soak test")
    parser.add_argument("--output", type=Path, help="JSON file for the results (default: print only)")
    return parser.parse_args(arguments)


def _circumstances(options: argparse.Namespace) -> dict[str, Any]:
    """Return the machine, and the earlier results of other parts."""
    from envfleet.machine import describe

    kept: dict[str, Any] = {"minutes_of": {}, "load_of": {}, "cpu_of": {}}
    if options.output is not None and options.output.exists():
        kept |= json.loads(options.output.read_text())
    if "scaling" in options.parts or "settings" not in kept:  # the page shows those of that part
        kept["settings"] = {"rounds": options.rounds, "seconds": options.seconds}
    return {**kept, "machine": describe(), "libraries": {}}


if __name__ == "__main__":
    sys.exit(main())
