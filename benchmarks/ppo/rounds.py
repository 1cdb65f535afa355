"""Rounds of measurements: every row once per round, in rotating order.

The speed of a shared or virtual machine varies by tens of per cent within minutes, so rows are only compared within a
round. The ratio of two rows is the median of their ratios in each round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.interleave import quartiles
from benchmarks.ppo.rows import Measured, Row
from benchmarks.sessions import Duration, SessionError

ONE_CYCLE = 1e-9  # seconds of warm-up, shorter than any cycle: exactly one uncounted cycle

Report = Callable[[str], None]
Table = dict[str, Any]


@dataclass(frozen=True)
class Procedure:
    """Settings of the measurement."""

    cores: int
    rounds: int
    seconds: float
    report: Report

    @property
    def duration(self) -> Duration:
        return Duration(self.seconds, ONE_CYCLE)


def measure_rows(workload: str, rows: Sequence[Row], procedure: Procedure) -> dict[str, Any]:
    """Measure the rows; return the results by name, with the reason for each row that is absent."""
    report = procedure.report
    absent: dict[str, str] = {}
    measured: dict[str, list[dict[str, Any]]] = {row.name: [] for row in rows}
    with ExitStack() as stack:
        started = _start(stack, rows, absent)
        for number in range(procedure.rounds):
            report(f"{workload}: round {number + 1} of {procedure.rounds}")
            names = [name for name in started if name not in absent]
            first = number % max(1, len(names))
            for name in names[first:] + names[:first]:
                try:
                    answer = started[name].measure(procedure.duration)
                except SessionError as error:
                    absent[name] = str(error)
                    continue
                speed = answer.pop("steps") / answer.pop("seconds")
                measured[name].append({"round": number, "steps_per_second": speed, **answer})
    for name, reason in absent.items():
        report(f"{workload}: {name} absent: {reason}")
    return {
        row.name: {
            "title": row.title,
            "ours": row.ours,
            **({"absent": absent[row.name]} if row.name in absent else _summary(measured[row.name])),
        }
        for row in rows
    }


def _start(stack: ExitStack, rows: Sequence[Row], absent: dict[str, str]) -> dict[str, Measured]:
    started: dict[str, Measured] = {}
    for row in rows:
        try:
            process = stack.enter_context(closing(row.start()))
            process.wait_until_ready()  # one at a time: all warming up at once takes too much memory
            started[row.name] = process
        except SessionError as error:
            absent[row.name] = str(error)
    return started


def _summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {"steps_per_second": quartiles(each["steps_per_second"] for each in rounds)}
    times = [each["time"] for each in rounds if each.get("time")]
    if times:
        summary["time"] = {name: fmean(time[name] for time in times) for name in times[0]}
    return {**summary, "rounds": rounds}


# ------------------------------------------------------------------------------------------- comparing rows


def speeds(row: Mapping[str, Any]) -> dict[int, float]:
    """Return steps per second by round; empty for an absent row."""
    return {each["round"]: each["steps_per_second"] for each in row.get("rounds", [])}


def ratio(rows: Mapping[str, Any], one: str, other: str) -> dict[str, float] | None:
    """Return how many times as fast `one` is as `other`, over the rounds that have both; None if none has."""
    ours, theirs = (speeds(rows.get(name, {})) for name in (one, other))
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        return None
    return quartiles(ours[number] / theirs[number] for number in common)


def fastest(rows: Mapping[str, Any], prefix: str | tuple[str, ...]) -> str | None:
    """Return the fastest row whose name starts with `prefix`; None if all are absent."""
    there = {
        name: row["steps_per_second"]["median"]
        for name, row in rows.items()
        if name.startswith(prefix) and "absent" not in row
    }
    return max(there, key=lambda name: there[name]) if there else None
