"""Render docs/soak.md and its figure from docs/benchmarks/soak.json: `python -m benchmarks.soak_page [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.soak import RESULTS, SAMPLE_SECONDS
from benchmarks.tables import ROOT, table_line, targets_table, write_or_check
from benchmarks.wanted import target

PAGE, PICTURE = ROOT / "docs" / "soak.md", ROOT / "docs" / "images" / "soak.png"
KEPT, CALM = "#1f6feb", "#999999"

Soak = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    options = parser.parse_args(arguments)
    results = json.loads(RESULTS.read_text())
    if not options.check:
        draw(results, PICTURE)
    return write_or_check({PAGE: render_page(results)}, RESULTS, "benchmarks.soak_page", check=options.check)


def draw(results: Mapping[str, Soak], path: Path) -> None:
    """Plot learning, memory and descriptors over the soak test."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (learning, memory) = plt.subplots(1, 2, figsize=(10, 3.8), dpi=120)
    for name, colour, label in (("undisturbed", CALM, "undisturbed"), ("soak", KEPT, "workers killed")):
        steps, returns = zip(*results[name]["curve"], strict=True)
        learning.plot(steps, returns, color=colour, linewidth=1.3, label=label)
    learning.set_xscale("log")
    learning.set_xlabel("steps")
    learning.set_ylabel("return, mean of the last 100 episodes")
    learning.legend(frameon=False, loc="lower right")
    soak = results["soak"]
    every = SAMPLE_SECONDS * soak["thinned"] / 60
    minutes = [every * place for place in range(len(soak["memory_mb"]))]
    memory.plot(minutes, soak["memory_mb"], color=KEPT, linewidth=1.3, label="memory")
    memory.set_ylim(0, 1.25 * max(soak["memory_mb"]))
    memory.set_xlabel("minutes")
    memory.set_ylabel("private memory of the caller, MB")
    descriptors = memory.twinx()
    descriptors.plot(minutes, soak["descriptors"], color="#d1782a", linewidth=1.0, label="open descriptors")
    descriptors.set_ylim(0, 3 * max(soak["descriptors"]))
    descriptors.set_ylabel("open descriptors")
    lines = [*memory.get_lines(), *descriptors.get_lines()]
    memory.legend(lines, [str(line.get_label()) for line in lines], frameon=False, loc="lower right")
    for axes in (learning, memory):
        axes.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def render_page(results: Mapping[str, Soak]) -> str:
    """Return the page: method, figure, results and targets."""
    soak, calm = results["soak"], results["undisturbed"]
    options = soak["options"]
    what = (
        f"PPO trains on CartPole for {soak['seconds'] / 60:.0f} minutes. A worker is killed with SIGKILL every "
        f"{options['kill_every']:g} s, and the environment raises once in {options['raise_every']:,} steps on average "
        '(`on_error="restart"`). `python -m benchmarks.soak --json docs/benchmarks/soak.json` runs this test; with '
        "`--kill-every 0` it runs the same training undisturbed. The test suite has a shorter version."
    )
    how = (
        "Memory and descriptors are those of the calling process, which outlives all its workers. The first third of "
        "the run is warm-up and not counted. Growth is the mean of the last tenth of the rest minus that of its first "
        "tenth."
    )
    sections = [
        "# Soak test: an hour of faults",
        "<!-- made by python -m benchmarks.soak_page; do not edit -->",
        what,
        "![learning, memory and descriptors](images/soak.png)",
        "\n".join(_table(soak, calm)),
        how,
        "## Targets",
        "\n".join(targets_table(_targets(soak, calm))),
    ]
    return "\n\n".join(sections) + "\n"


def _table(soak: Soak, calm: Soak) -> list[str]:
    rows = [
        ("steps", "steps", ",.0f"),
        ("workers killed", "kills", ",.0f"),
        ("workers restarted", "restarts", ",.0f"),
        ("rows lost", "lost_rows", ",.0f"),
        ("return of the first 100 episodes", "first_return", ".0f"),
        ("return of the last 100 episodes", "last_return", ".0f"),
        ("memory at the end of the run, MB", "final_memory_mb", ".0f"),
        ("memory growth, MB", "growth_mb", ".2f"),
        ("most open descriptors, first third after warm-up", "descriptors_before", ",.0f"),
        ("most open descriptors, last third", "descriptors_after", ",.0f"),
        ("worker processes left at the end", "children_left", ",.0f"),
    ]
    lines = [table_line("", f"{soak['seconds'] / 60:.0f} min of faults", f"{calm['seconds'] / 60:.0f} min undisturbed")]
    lines.append(table_line("---", "---:", "---:"))
    return lines + [table_line(title, f"{soak[name]:{form}}", f"{calm[name]:{form}}") for title, name, form in rows]


def _targets(soak: Soak, calm: Soak) -> list[dict[str, Any]]:
    wanted = (
        ("memory growth in MB", "<", 4.0, soak["growth_mb"]),
        ("open descriptors, last minus first third", "<=", 2, soak["descriptors_after"] - soak["descriptors_before"]),
        ("worker processes left", "<=", 0, soak["children_left"]),
        ("final return divided by that of the undisturbed run", ">=", 0.95, soak["last_return"] / calm["last_return"]),
    )
    return [target(text, sign, limit, value) for text, sign, limit, value in wanted]


if __name__ == "__main__":
    sys.exit(main())
