"""Benchmark the collection of trials, with random actions and with a recurrent policy.

`python -m benchmarks.meta --output docs/benchmarks/meta.json` measures everything and writes the page, in about 10
minutes on 2 otherwise idle cores. With `--parts` it measures only those parts and keeps the rest of that file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.meta.page import PAGE, RESULTS, render_page
from benchmarks.meta.tables import TABLES
from benchmarks.ppo.rounds import Procedure
from benchmarks.suite import measure_parts, read_options, write_results


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments, "meta", __doc__, list(TABLES), rounds=7)
    results, procedure = measure_parts(options, list(TABLES), (), _measure)
    page = render_page(results)
    Console().print(Markdown(page))
    if options.output is not None:
        write_results(results, options.output, procedure)
        if options.output.resolve() == RESULTS.resolve():
            PAGE.write_text(page)
    rows = [row for table in results["tables"].values() for row in table["rows"].values()]
    return int(any("absent" in row for row in rows))


def _measure(name: str, procedure: Procedure, results: dict[str, Any]) -> None:
    tables = {**results["tables"], name: TABLES[name](procedure)}
    results["tables"] = {each: tables[each] for each in TABLES if each in tables}  # in the order of the page


if __name__ == "__main__":
    sys.exit(main())
