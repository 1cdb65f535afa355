"""Render docs/benchmarks-meta.md from docs/benchmarks/meta.json: `python -m benchmarks.meta.page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.load import disturbance
from benchmarks.meta.tables import HIDDEN, UNITS
from benchmarks.meta.targets import check_targets
from benchmarks.ppo.page import spread
from benchmarks.ppo.rounds import ratio
from benchmarks.tables import ROOT, machine_line, render_main, rounded, table_line, targets_table

RESULTS, PAGE = ROOT / "docs" / "benchmarks" / "meta.json", ROOT / "docs" / "benchmarks-meta.md"

METHOD = """\
All rows collect trials of two episodes. Every row is a separate process with its workers. All rows of a table take
turns of {seconds:g} s, {rounds} times, in rotating order. The ratio of two rows is computed within each round. Figures
are medians, with quartiles in brackets.

*Independent processes* are one per core: each steps its share of the environments in a plain loop, with actions drawn
in advance, and stores nothing. The policy of the other rows has layers of {hidden} and a GRU of {units}. Envfleet acts
in the workers and fills whole rollouts. *A process per environment* stands for collection with pipes: the caller
chooses the action of one environment after the other, sends all of them, and waits for all results."""


def render_page(results: Mapping[str, Any]) -> str:
    """Return the page with all results."""
    busy = disturbance(results["load_before"])
    sections = [
        "# Benchmarks of collecting trials",
        "<!-- made by python -m benchmarks.meta.page; do not edit -->",
        f"`make bench-meta` measures all of this. {machine_line(dict(results))}{busy}",
        METHOD.format(hidden="×".join(map(str, HIDDEN)), units=UNITS, **results["settings"]),
    ]
    for table in results["tables"].values():
        sections += [f"## {table['title']}", "\n".join(_table(table["rows"]))]
        sections += [f"{row['title']}: absent ({row['absent']})." for row in table["rows"].values() if "absent" in row]
    return "\n\n".join([*sections, "## Targets", "\n".join(targets_table(check_targets(results)))]) + "\n"


def _table(rows: Mapping[str, Any]) -> Iterator[str]:
    yield table_line("", "steps/s", "relative to independent processes", "relative to a process per environment")
    yield table_line("---", "---:", "---:", "---:")
    for name, row in rows.items():
        title = f"**{row['title']}**" if row["ours"] else row["title"]
        if "absent" in row:
            yield table_line(title, "absent", "–", "–")
            continue
        speed = row["steps_per_second"]
        figures = f"{rounded(speed['median'])} ({rounded(speed['lower'])}–{rounded(speed['upper'])})"
        of_limit = "" if name == "limit" else spread(ratio(rows, name, "limit"))
        of_pipes = spread(ratio(rows, name, f"pipes-{name}")) if row["ours"] else ""
        yield table_line(title, figures, of_limit, of_pipes)


def pages(results: Mapping[str, Any]) -> dict[Path, str]:
    """Return all pages made from the results."""
    return {PAGE: render_page(results)}


def main(arguments: Sequence[str] | None = None) -> int:
    return render_main(arguments, "benchmarks.meta.page", RESULTS, PAGE, pages)


if __name__ == "__main__":
    sys.exit(main())
