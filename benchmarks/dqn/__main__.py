"""Benchmark DQN's training speed, replay buffer and checkpoints; compare with Stable-Baselines3.

`python -m benchmarks.dqn --output docs/benchmarks/dqn.json` measures everything and writes the page, in about 10
minutes on 2 otherwise idle cores. With `--parts` it measures only those parts and keeps the rest of that file. Install
Stable-Baselines3 with `python -m benchmarks.peers.install stable-baselines3`. If it is not installed, its rows are
reported as absent.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.dqn.page import PAGE, RESULTS, render_page
from benchmarks.dqn.tables import ALONE, TABLES, alone
from benchmarks.ppo.rounds import Procedure
from benchmarks.suite import measure_parts, read_options, write_results

PARTS = [*TABLES, *ALONE]


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments, "dqn", __doc__, PARTS, rounds=7)
    results, procedure = measure_parts(options, PARTS, ("stable_baselines3",), _measure)
    page = render_page(results)
    Console().print(Markdown(page))
    if options.output is not None:
        write_results(results, options.output, procedure)
        if options.output.resolve() == RESULTS.resolve():
            PAGE.write_text(page)
    rows = [row for table in results["tables"].values() for row in table["rows"].values()]
    return int(any("absent" in row for row in rows if row["ours"]))  # another library may be absent


def _measure(name: str, procedure: Procedure, results: dict[str, Any]) -> None:
    if name in TABLES:
        tables = {**results["tables"], name: TABLES[name](procedure)}
        results["tables"] = {each: tables[each] for each in TABLES if each in tables}  # in the order of the page
    else:
        results[name] = alone(name, procedure)


if __name__ == "__main__":
    sys.exit(main())
