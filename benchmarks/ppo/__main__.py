"""Measures PPO's training speed against other libraries and against the limit of this machine.

`python -m benchmarks.ppo --output docs/benchmarks/ppo.json` measures everything and writes the page from it, in
about 35 minutes on 2 cores that do nothing else; with `--workloads` the rest of that file stays. Stable-Baselines3
and sb3-contrib are set up by `python -m benchmarks.peers.install stable-baselines3`; where they are not, their
rows are reported as absent.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.fleet import BUSY_LOAD
from benchmarks.peers.install import reason_of_absence, version_of
from benchmarks.ppo.beginning import measure_beginning
from benchmarks.ppo.goal import measure_goal
from benchmarks.ppo.page import RESULTS, pages, render_page
from benchmarks.ppo.rounds import Procedure
from benchmarks.ppo.rows import LIBRARY
from benchmarks.ppo.tables import TABLES
from benchmarks.ppo.targets import check_targets
from benchmarks.ppo.upkeep import measure_upkeep

OTHERS: dict[str, tuple[str, Callable[[Procedure], dict[str, Any]]]] = {
    "to-475": ("goal", measure_goal),
    "start": ("beginning", measure_beginning),
    "upkeep": ("upkeep", measure_upkeep),
}
WORKLOADS = [*TABLES, *OTHERS]


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
    for name in options.workloads:
        before = perf_counter()
        _measure(name, procedure, results)
        results["minutes_of"][name] = (perf_counter() - before) / 60
    results["minutes"] = sum(results["minutes_of"].values())
    results["targets"] = check_targets(results)
    page = render_page(results)
    Console().print(Markdown(page))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        report(f"written to {options.output}")
        if options.output.resolve() == RESULTS.resolve():
            for path, text in pages(results).items():
                path.write_text(text)
    return 1 if _failed(results) else 0


def _measure(name: str, procedure: Procedure, results: dict[str, Any]) -> None:
    if name in TABLES:
        tables = {**results["tables"], name: TABLES[name](procedure)}
        results["tables"] = {each: tables[each] for each in TABLES if each in tables}  # in the order of the page
    else:
        key, measure = OTHERS[name]
        results[key] = measure(procedure)


def _kept(options: argparse.Namespace) -> dict[str, Any]:
    """What an earlier run has of workloads that are not measured now."""
    empty: dict[str, Any] = {"tables": {}, "minutes_of": {}}
    if options.output is None or not options.output.exists() or set(options.workloads) == set(WORKLOADS):
        return empty
    return {**empty, **json.loads(options.output.read_text())}


def _circumstances(options: argparse.Namespace) -> dict[str, Any]:
    from envfleet.machine import describe

    absent = reason_of_absence(LIBRARY)
    packages = ("stable_baselines3", "sb3_contrib")
    return {
        "machine": describe(),
        "load_before": os.getloadavg()[0],
        "settings": {"rounds": options.rounds, "seconds": options.seconds},
        "libraries": {name.replace("_", "-"): absent or version_of(LIBRARY, name) for name in packages},
    }


def _failed(results: dict[str, Any]) -> bool:
    """Whether a row of our own could not be measured; other libraries may be absent."""
    tables = [*results["tables"].values(), *([results["upkeep"]] if "upkeep" in results else [])]
    return any("absent" in row for table in tables for row in table["rows"].values() if row["ours"])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ppo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS, help="what to measure")
    parser.add_argument("--rounds", type=int, default=9, help="each row is measured once in each")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement, at least one cycle")
    parser.add_argument("--output", type=Path, help="a JSON file for the results (default: only printed)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
