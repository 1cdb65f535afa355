"""Measures DQN's training speed, against Stable-Baselines3 among others.

`python -m benchmarks.dqn --output docs/benchmarks/dqn.json` measures everything and writes the page from it, in about
10 minutes on 2 cores that do nothing else; with `--parts` the rest of that file stays. Stable-Baselines3 is set up
by `python -m benchmarks.peers.install stable-baselines3`; where it is not, its rows are reported as absent.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.dqn.page import PAGE, RESULTS, render_page
from benchmarks.dqn.tables import ALONE, TABLES, alone
from benchmarks.fleet import BUSY_LOAD
from benchmarks.peers.install import reason_of_absence, version_of
from benchmarks.ppo.rounds import Procedure
from benchmarks.ppo.rows import LIBRARY

PARTS = [*TABLES, *ALONE]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = perf_counter()

    def report(message: str) -> None:
        minutes, seconds = divmod(int(perf_counter() - began), 60)
        print(f"[{minutes:3d}:{seconds:02d}] {message}", file=sys.stderr, flush=True)

    results = {**_kept(options), **_circumstances(options)}
    if results["load_before"] > BUSY_LOAD:
        busy = f"{results['load_before']:.1f}"
        report(f"warning: other work keeps {busy} cores busy\nhint: measure alone on the machine")
    procedure = Procedure(results["machine"]["cores"], options.rounds, options.seconds, report)
    for name in options.parts:
        before = perf_counter()
        if name in TABLES:
            tables = {**results["tables"], name: TABLES[name](procedure)}
            results["tables"] = {each: tables[each] for each in TABLES if each in tables}  # in the order of the page
        else:
            results[name] = alone(name, procedure)
        results["minutes_of"][name] = (perf_counter() - before) / 60
    results["minutes"] = sum(results["minutes_of"].values())
    page = render_page(results)
    Console().print(Markdown(page))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        report(f"written to {options.output}")
        if options.output.resolve() == RESULTS.resolve():
            PAGE.write_text(page)
    return int(any("absent" in row for table in results["tables"].values() for row in table["rows"].values()))


def _kept(options: argparse.Namespace) -> dict[str, Any]:
    """What an earlier run has of parts that are not measured now."""
    empty: dict[str, Any] = {"tables": {}, "minutes_of": {}}
    if options.output is None or not options.output.exists() or set(options.parts) == set(PARTS):
        return empty
    return {**empty, **json.loads(options.output.read_text())}


def _circumstances(options: argparse.Namespace) -> dict[str, Any]:
    from envfleet.machine import describe

    return {
        "machine": describe(),
        "load_before": os.getloadavg()[0],
        "settings": {"rounds": options.rounds, "seconds": options.seconds},
        "libraries": {LIBRARY: reason_of_absence(LIBRARY) or version_of(LIBRARY, "stable_baselines3")},
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dqn",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--rounds", type=int, default=7, help="each row is measured once in each")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement, at least one cycle")
    parser.add_argument("--output", type=Path, help="a JSON file for the results (default: only printed)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
