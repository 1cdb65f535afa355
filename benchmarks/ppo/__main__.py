"""Benchmark PPO's training speed against other libraries and against the limit of this machine.

`python -m benchmarks.ppo --output docs/benchmarks/ppo.json` measures everything and writes the page, in about 35
minutes on 2 otherwise idle cores. With `--parts` it measures only those parts and keeps the rest of that file. Install
Stable-Baselines3 and sb3-contrib with `python -m benchmarks.peers.install stable-baselines3`. If they are not
installed, their rows are reported as absent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.ppo.beginning import measure_beginning
from benchmarks.ppo.goal import measure_goal
from benchmarks.ppo.page import RESULTS, pages, render_page
from benchmarks.ppo.rounds import Procedure
from benchmarks.ppo.tables import TABLES
from benchmarks.ppo.targets import check_targets
from benchmarks.ppo.upkeep import measure_upkeep
from benchmarks.suite import measure_parts, read_options, write_results

OTHERS: dict[str, tuple[str, Callable[[Procedure], dict[str, Any]]]] = {
    "to-475": ("goal", measure_goal),
    "start": ("beginning", measure_beginning),
    "upkeep": ("upkeep", measure_upkeep),
}
PARTS = [*TABLES, *OTHERS]


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments, "ppo", __doc__, PARTS, rounds=9)
    packages = ("stable_baselines3", "sb3_contrib")
    results, procedure = measure_parts(options, PARTS, packages, _measure)
    results["targets"] = check_targets(results)
    page = render_page(results)
    Console().print(Markdown(page))
    if options.output is not None:
        write_results(results, options.output, procedure)
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


def _failed(results: dict[str, Any]) -> bool:
    """Return whether one of our own rows could not be measured; other libraries may be absent."""
    tables = [*results["tables"].values(), *([results["upkeep"]] if "upkeep" in results else [])]
    return any("absent" in row for table in tables for row in table["rows"].values() if row["ours"])


if __name__ == "__main__":
    sys.exit(main())
