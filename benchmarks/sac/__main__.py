"""Benchmark SAC: training against Stable-Baselines3 and SBX, recurrent updates, drawing from the replay buffer.

`python -m benchmarks.sac --output docs/benchmarks/sac.json` measures everything and writes the page. Run it on
otherwise idle cores. With `--parts` it measures only those parts and keeps the rest of that file. Install the other
libraries with `python -m benchmarks.peers.install stable-baselines3 sbx`. If one is not installed, its rows are
reported as absent.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.peers.install import reason_of_absence, version_of
from benchmarks.ppo.rounds import Procedure
from benchmarks.sac.page import PAGE, RESULTS, render_page
from benchmarks.sac.tables import TABLES, sampling
from benchmarks.suite import measure_parts, read_options, write_results

PARTS = [*TABLES, "sampling"]


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments, "sac", __doc__, PARTS, rounds=7)
    results, procedure = measure_parts(options, PARTS, ("stable_baselines3",), _measure)
    results["libraries"]["sbx"] = reason_of_absence("sbx") or version_of("sbx", "sbx_rl")
    page = render_page(results)
    Console().print(Markdown(page))
    if options.output is not None:
        write_results(results, options.output, procedure)
        if options.output.resolve() == RESULTS.resolve():
            PAGE.write_text(page)
    rows = [row for table in results["tables"].values() for row in table["rows"].values()]
    return int(any("absent" in row for row in rows if row["ours"]))  # another library may be absent


def _measure(name: str, procedure: Procedure, results: dict[str, Any]) -> None:
    if name == "sampling":
        results[name] = sampling(procedure)
        return
    tables = {**results["tables"], name: TABLES[name](procedure)}
    results["tables"] = {each: tables[each] for each in TABLES if each in tables}  # in the order of the page


if __name__ == "__main__":
    sys.exit(main())
