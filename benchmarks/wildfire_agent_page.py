"""Render the tables of docs/wildfire.md about agents from docs/benchmarks/wildfire_agent.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.tables import table_line, targets_table
from envfleet.environments.wildfire.report import comparison_table, summary
from envfleet.wording import counted

__all__ = ["agent_tables", "agent_targets"]

# Wanted: greedy's area at this share of its time; this share of what centrality leaves on large landscapes, in this
# many seconds; and training in this many hours.
SHARE_OF_TIME, SHARE_OF_CENTRALITY, LARGE_SECONDS, TRAINING_HOURS = 0.1, 0.9, 60.0, 1.0


def agent_tables(results: dict[str, Any]) -> dict[str, str]:
    """Return the tables by name, of all parts that were measured."""
    makers = {
        "agent": _agent,
        "seeds": _seeds,
        "candidates": _candidates,
        "large": _large,
        "elsewhere": _elsewhere,
        "agent-targets": lambda results: "\n".join(targets_table([*agent_targets(results)])),
    }
    needed = {"agent": "seeds", "agent-targets": "seeds"}
    return {name: make(results) for name, make in makers.items() if needed.get(name, name) in results}


def agent_targets(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the targets with the measured values."""
    search, ways = f"agent, search {results['first']['search']}", results["first"]["ways"]
    each, together = results["seeds"]["each"][search], results["seeds"]["together"][search]
    seconds, seeds = max(row["seconds_per_landscape"] for row in each), counted(len(each), "seed")
    measured = [
        (
            f"{search}, mean of {seeds}: ha more than greedy, lower end of the 95 % interval",
            together["more_than_greedy_interval"][0],
            0.0,
        ),
        (
            f"{search}, slowest seed: planning time divided by greedy's",
            seconds / ways["greedy"]["seconds_per_landscape"],
            SHARE_OF_TIME,
        ),
        (
            f"training in hours, slowest of {seeds}",
            max(curve["seconds"] for curve in results["curves"]) / 3600,
            TRAINING_HOURS,
        ),
    ]
    if "large" in results:
        agents = {name: way for name, way in results["large"]["ways"].items() if name.startswith("agent")}
        for name, way in agents.items():  # its search may have another size than that of the first part
            where = f"{name}, {results['large']['cells'][0]} × {results['large']['cells'][1]} cells"
            measured.append(
                (f"{where}: burned area divided by centrality's", way["share_of_centrality"], SHARE_OF_CENTRALITY)
            )
            measured.append((f"{where}: seconds per landscape", way["seconds_per_landscape"], LARGE_SECONDS))
    for target, figure, most in measured:
        yield {"target": target, "wanted": f"<= {most:g}", "measured": figure, "reached": figure <= most}


def _agent(results: dict[str, Any]) -> str:
    first = results["curves"][0]
    comparison = results["first"]
    trained = f"An agent trained for {first['steps']:,} steps, seed {first['seed']}. {summary(comparison)}"
    return f"{trained}\n\n{comparison_table(comparison)}"


def _seeds(results: dict[str, Any]) -> str:
    lines = [table_line("breaks by", "seed", "burned ha", "more than greedy", "s per landscape"), _rule(5)]
    for name, rows in results["seeds"]["each"].items():
        for row in rows:
            area = f"{row['burned_hectares']:.2f}"
            lines.append(table_line(name, str(row["seed"]), area, _more(row), f"{row['seconds_per_landscape']:.3f}"))
        lines.append(table_line(name, "all", "", _more(results["seeds"]["together"][name]), ""))
    return "\n".join(lines)


def _candidates(results: dict[str, Any]) -> str:
    lines = [table_line("breaks by", "burned ha", "more than greedy", "s per landscape"), _rule(4)]
    for row in results["candidates"]:
        area, seconds = f"{row['burned_hectares']:.2f}", f"{row['seconds_per_landscape']:.3f}"
        lines.append(table_line(row["way"], area, _more(row), seconds))
    return "\n".join(lines)


def _large(results: dict[str, Any]) -> str:
    large = results["large"]
    lines = [summary(large), ""]
    lines += [table_line("breaks by", "burned ha", "share of centrality's", "s per landscape"), _rule(4)]
    for name, way in large["ways"].items():
        area, seconds = f"{way['burned_hectares']:.2f}", f"{way['seconds_per_landscape']:.1f}"
        lines.append(table_line(name, area, f"{way['share_of_centrality']:.2f}", seconds))
    if "greedy" in results:
        greedy = results["greedy"]
        minutes = greedy["seconds"] / 60
        lines += [
            "",
            f"Plain greedy search placed {greedy['breaks']} of {greedy['budget']} breaks in {minutes:.0f} minutes.",
        ]
    return "\n".join(lines)


def _elsewhere(results: dict[str, Any]) -> str:
    rows = results["elsewhere"]
    ways = list(rows[0]["burned_hectares"])
    shown = [way for way in ways if way in ("no breaks", "centrality", "greedy") or way.startswith("agent")]
    savers = [way for way in shown if way.startswith("agent")]
    heads = ["where", *(f"{way}, ha" for way in shown), *(f"{way}: share of greedy's savings" for way in savers)]
    lines = [f"{rows[0]['landscapes']} landscapes in each place.", "", table_line(*heads), _rule(len(heads))]
    for row in rows:
        areas = [f"{row['burned_hectares'][way]:.2f}" for way in shown]
        shares = [f"{100 * row['share_of_greedys_savings'][way]:.0f} %" for way in savers]
        lines.append(table_line(row["place"], *areas, *shares))
    return "\n".join(lines)


def _rule(columns: int) -> str:
    return table_line(*["---"] * columns)


def _more(row: dict[str, Any]) -> str:
    low, high = row["more_than_greedy_interval"]
    return f"{row['more_than_greedy']:+.2f} ({low:+.2f} to {high:+.2f})"
