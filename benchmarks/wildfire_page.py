"""Render the tables of docs/wildfire.md from docs/benchmarks/wildfire.json and wildfire_agent.json."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.tables import ROOT, targets_table, write_or_check
from benchmarks.wanted import at_least, at_most
from benchmarks.wildfire_agent_page import agent_tables
from envfleet.environments.wildfire import WildfireSettings
from envfleet.settings import reference_table

PAGE = ROOT / "docs" / "wildfire.md"
RESULTS = ROOT / "docs" / "benchmarks" / "wildfire.json"
AGENT_RESULTS = ROOT / "docs" / "benchmarks" / "wildfire_agent.json"
SEED_EXPERIENCES_PER_MINUTE = 280  # of the system that this environment replaces, with 8 environments
# Targets: speed relative to pyretechnics, one thread and the earlier system; largest cost over smallest, by size.
TIMES_AS_PEER, TIMES_AS_ONE_THREAD, TIMES_AS_BEFORE, LARGEST_GROWTH = 30, 1.8, 300, 1.5


def write(*, check: bool) -> int:
    """Write the page with its tables, or with `check` only report whether it is current; return the exit code."""
    return write_or_check({PAGE: page_with_tables()}, RESULTS, "benchmarks.wildfire --tables", check=check)


def tables(result: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the page by name."""
    return {
        "comparison": _comparison(result["comparison"]),
        "speed": _speed(result),
        "targets": "\n".join(targets_table([*_targets(result)])),
        "settings": reference_table(WildfireSettings).rstrip(),
    }


def _comparison(rows: list[dict[str, Any]]) -> str:
    lines = ["| landscape | ours | pyretechnics | both | order |", "|---|---|---|---|---|"]
    keys = ("landscape", "ours", "pyretechnics", "both", "order")
    lines += [f"| {' | '.join(str(row[key]) for key in keys)} |" for row in rows]
    totals = [sum(row[key] for row in rows) for key in keys[1:4]]
    order = statistics.median(row["order"] for row in rows)
    lines.append(f"| all (order: median) | {totals[0]} | {totals[1]} | {totals[2]} | {order:.3f} |")
    return "\n".join(lines)


def _targets(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the targets with the measured values."""
    threads, growth = result["threads"], result["growth"]
    best = max(result["experiences"], key=lambda row: row["per_minute"])
    setting = f"{best['n_envs']} environments, {best['backend']}"
    cells = [row["cells"] for row in growth]
    costs = [row["nanoseconds_per_n_log_n"] for row in growth]
    for name, measured, wanted in (
        ("one fire: speed relative to pyretechnics", result["times_as_fast"], TIMES_AS_PEER),
        (f"fires in {threads['threads']} threads: speed relative to one", threads["speedup"], TIMES_AS_ONE_THREAD),
        (
            f"experiences per minute divided by {SEED_EXPERIENCES_PER_MINUTE}, {setting}",
            best["per_minute"] / SEED_EXPERIENCES_PER_MINUTE,
            TIMES_AS_BEFORE,
        ),
    ):
        yield at_least(name, measured, wanted)
    name = f"cost per n log n from {min(cells):,} to {max(cells):,} cells, largest divided by smallest"
    yield at_most(name, max(costs) / min(costs), LARGEST_GROWTH)


def _speed(result: dict[str, Any]) -> str:
    speed = ["| what | measured |", "|---|---|"]
    speed.append(f"| one fire, 25 × 25 cells, 120 minutes | {result['ours_milliseconds']:.3f} ms |")
    speed.append(f"| the same fire in pyretechnics | {result['pyretechnics_milliseconds']:.1f} ms |")
    speed.append(f"| speed relative to pyretechnics (median over the fires) | {result['times_as_fast']:.0f} |")
    for row in result["growth"]:
        figures = f"{row['seconds']:.3g} s, {row['nanoseconds_per_n_log_n']} ns per n log₂ n"
        speed.append(f"| one fire across {row['cells']:,} cells | {figures} |")
    threads = result["threads"]
    figures = (
        f"{threads['speedup']} times as fast (pure arithmetic, measured alternately: {threads['arithmetic']} times)"
    )
    speed.append(f"| {threads['threads']} threads relative to one | {figures} |")
    for row in result["experiences"]:
        times = row["per_minute"] / SEED_EXPERIENCES_PER_MINUTE
        figures = f"{row['per_minute']:,} per minute ({times:,.0f} × {SEED_EXPERIENCES_PER_MINUTE})"
        speed.append(f"| experiences, {row['n_envs']} environments, {row['backend']} | {figures} |")
    machine = result["machine"]
    speed.append(f"| the machine | {machine['cores']} cores, load average {machine['load']} |")
    return "\n".join(speed)


def page_with_tables() -> str:
    """Return the page with tables rendered from the measured files."""
    text = PAGE.read_text()
    found = tables(json.loads(RESULTS.read_text()))
    if AGENT_RESULTS.exists():
        found |= agent_tables(json.loads(AGENT_RESULTS.read_text()))
    for name, table in found.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text = pattern.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)  # type: ignore[misc]
    return text
