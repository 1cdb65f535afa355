"""The table and the text report of a comparison."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from envfleet.runs.comparison.checks import Check
from envfleet.runs.comparison.comparison import RunComparison
from envfleet.runs.comparison.run_metrics import ALL_PROCESSES, RunMetrics

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["REPORT_WIDTH", "Row", "explanations_of", "report_of", "table_rows", "title_of"]

NOT_RECORDED = "not recorded"
REPORT_WIDTH = 110

Row = tuple[str, list[str]]  # name, and a cell for each group


def title_of(comparison: RunComparison) -> str:
    """The title, with the short names of the environments."""
    return f"Comparison on {', '.join(dict.fromkeys(run.summary.env for run in comparison.runs))}"


def table_rows(comparison: RunComparison) -> list[Row]:
    """The figures of all groups as text, in the order of the table."""
    figures: list[dict[str, Any]] = comparison.to_json()["groups"]
    scores = {each["score"] for each in figures}
    named = f"{scores.pop():,.4g}" if len(scores) == 1 and None not in scores else "a score"
    columns: list[tuple[str, Callable[[dict[str, Any]], str]]] = [*_ROWS]
    if named == "a score":  # each environment has its own score
        columns.append(("score: 90 % of the best", lambda group: _return(group["score"])))
    columns.append((f"steps to {named}", lambda group: _to_score(group, _count(group["steps_to_score"]))))
    columns.append((f"time to {named}", lambda group: _to_score(group, _time(group["seconds_to_score"]))))
    columns += _ROWS_TO_COMPARE
    if any(each["probability_of_improvement"] is not None for each in figures):
        columns.append(("probability of improvement", _improvement))
    return [(name, [text(each) for each in figures]) for name, text in columns]


def _workers(group: dict[str, Any]) -> str:
    if group["backend"] == "sequential":
        return "in the caller"
    singular = {"processes": "process", "threads": "thread"} if group["workers"] == 1 else {}
    return f"{group['workers']} {singular.get(group['backend'], group['backend'])}"


_ROWS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("runs (seeds)", lambda group: f"{len(group['runs'])} ({len(group['seeds'])})"),
    ("workers", lambda group: _workers(group)),
    ("steps", lambda group: _count(group["steps"])),
    ("episodes", lambda group: _count(group["episodes"])),
    ("training time", lambda group: _time(group["seconds"])),
    ("steps/s", lambda group: _speed(group)),
    ("episodes/s", lambda group: f"{group['episodes_per_second']:,.3g}"),
    ("speed-up", lambda group: _times(group["speedup"])),
    ("efficiency", lambda group: "-" if group["efficiency"] is None else f"{group['efficiency']:.2f}"),
    ("time in learning", lambda group: _percent(group["time_shares"].get("learning"))),
    ("CPU (100 % is a core)", lambda group: _cpu(group)),
    ("peak memory", lambda group: _memory(group)),
    ("final return", lambda group: _with_interval(group["final_return"], group["final_return_interval"])),
    ("best return", lambda group: _return(group["best_return"])),
    ("final evaluation", lambda group: _return(group["final_evaluation"])),
)
_ROWS_TO_COMPARE: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("return at equal steps", lambda group: _at(group["return_at_common_steps"], _count(group["common_steps"]))),
    ("return at equal time", lambda group: _at(group["return_at_common_seconds"], _time(group["common_seconds"]))),
)


def _tables(comparison: RunComparison, width: int) -> list[str]:
    """The table as text, split if the groups do not fit side by side."""
    from rich.console import Console
    from rich.measure import Measurement

    page = io.StringIO()
    console = Console(file=page, width=width, highlight=False, color_system=None)
    rows, count = table_rows(comparison), len(comparison.groups)
    across = count
    endless = console.options.update(max_width=10_000)
    tables = [_table(comparison, rows, 0, count)]
    while across > 1 and max(Measurement.get(console, endless, table).maximum for table in tables) > width:
        across -= 1
        tables = [_table(comparison, rows, first, min(first + across, count)) for first in range(0, count, across)]
    for table in tables:
        console.print(table)
    return [line.rstrip() for line in page.getvalue().rstrip().splitlines()]


def _table(comparison: RunComparison, rows: Sequence[Row], first: int, end: int) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for group in comparison.groups[first:end]:
        table.add_column(group.label, justify="right", overflow="fold")
    for name, cells in rows:
        table.add_row(name, *cells[first:end])
    return table


def report_of(comparison: RunComparison, checks: Sequence[Check], width: int = REPORT_WIDTH) -> str:
    """The whole report as text, for the terminal and for comparison_report.txt."""
    lines = [title_of(comparison), "", *_tables(comparison, width), ""]
    for line in explanations_of(comparison):
        lines += _wrapped(line, width)
    lines += ["", "Runs"]
    for group in comparison.groups:
        lines += [f"  {group.label}", *(part for run in group.runs for part in _wrapped(_run_line(run), width, 4))]
    if comparison.differences:
        lines += ["", "Settings that differ"]
        for name, values in comparison.differences.items():
            pairs = zip(comparison.groups, values, strict=True)
            shown = "; ".join(f"{_value(value)} ({group.label})" for group, value in pairs)
            lines += _wrapped(f"{name}: {shown}", width, 2)
    lines += ["", "A sceptic's questions"]
    for check in checks:
        lines += [f"  {check.answer:<9}{check.question}", *_wrapped(check.facts, width, 11)]
    if comparison.notes:
        lines += ["", "Notes", *(part for note in comparison.notes for part in _wrapped(note, width, 2))]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    space = " " * indent
    return textwrap.wrap(text, width, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)


def explanations_of(comparison: RunComparison) -> list[str]:
    """How to read the figures in the table."""
    references = [each for group in comparison.groups if (each := comparison.reference(group)) is not None]
    against = " and ".join(dict.fromkeys(reference.label for reference in references))
    lines = [f"Speed-up is against {against}."] if references else []
    lines.append("Efficiency is the speed-up divided by the number of workers.")
    lines.append("Returns are means of the last 100 episodes; a best one or a score counts once there are enough.")
    if any(len(group.seeds) > 1 for group in comparison.groups):
        lines.append(
            "Over seeds: interquartile mean, with the 95 % interval of its stratified bootstrap (Agarwal et al. 2021). "
            "Of fewer than four seeds it is the mean."
        )
    single = [group.label for group in comparison.groups if len(group.seeds) == 1]
    if single:
        lines.append(f"One seed proves nothing about returns: {', '.join(single)} can be better or worse by luck.")
    return lines


def _run_line(run: RunMetrics) -> str:
    final = "no episode has ended" if run.final_return is None else f"return {run.final_return:,.2f}"
    return (
        f"{run.name}: seed {run.seed}, {run.summary.state}, {run.steps:,} steps in {_time(run.seconds)}, "
        f"{run.steps_per_second:,.0f} steps/s, {final}"
    )


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _return(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}×"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _speed(group: dict[str, Any]) -> str:
    low, high = group["steps_per_second_range"]
    spread = f" ({low:,.0f} to {high:,.0f})" if len(group["runs"]) > 1 else ""
    return f"{group['steps_per_second']:,.0f}{spread}"


def _cpu(group: dict[str, Any]) -> str:
    if group["cpu_percent"] is not None:
        return f"{group['cpu_percent']:.0f} %"
    busy = group["workers_busy_percent"]
    return NOT_RECORDED if busy is None else f"{NOT_RECORDED}; workers busy {busy:.0f} %"


def _memory(group: dict[str, Any]) -> str:
    if group["peak_memory_mb"] is None:
        return NOT_RECORDED
    covers = "" if group["memory_covers"] == ALL_PROCESSES else f" ({group['memory_covers']})"
    return f"{group['peak_memory_mb']:,.0f} MiB{covers}"


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    return _return(value) if interval is None else f"{_return(value)} ({interval[0]:,.2f} to {interval[1]:,.2f})"


def _at(value: float | None, where: str) -> str:
    return "-" if value is None else f"{value:,.2f} at {where}"


def _to_score(group: dict[str, Any], text: str) -> str:
    runs = len(group["runs"])
    reached = "not reached" if text == "-" else text
    return reached if runs == 1 else f"{reached} ({group['runs_at_score']} of {runs} runs)"


def _improvement(group: dict[str, Any]) -> str:
    value = group["probability_of_improvement"]
    if value is None:
        return "-"
    low, high = group["probability_of_improvement_interval"]
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def _value(value: Any) -> str:
    return "not set" if value is None else str(value)
