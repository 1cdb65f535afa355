"""Interleaved measurements: the limit is measured before and after every row.

The speed of a shared or virtual machine varies by tens of per cent within seconds, so speeds taken at different times
are not compared. A row's *share* is its speed divided by the mean of the two limits measured right around it. Results
are medians and quartiles over the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from benchmarks.rows import Row
from benchmarks.sessions import Duration, Limit, Measurable, SessionError

ROUNDS_PER_BUILD = 5  # then the limit, the plain loop and the fleet are rebuilt: a process is fast or slow by luck
LIMIT_PART = 0.5  # of a measurement's length: the limit is measured twice around each row

Report = Callable[[str], None]


@dataclass(frozen=True)
class Procedure:
    """Settings of the measurement."""

    cores: int
    pairs: int
    duration: Duration
    report: Report


def quartiles(values: Iterable[float]) -> dict[str, float]:
    """Return median and quartiles in the form stored in the results."""
    ordered = sorted(values)
    if len(ordered) == 1:
        ordered *= 2
    lower, middle, upper = statistics.quantiles(ordered, n=4, method="inclusive")
    return {"median": middle, "lower": lower, "upper": upper}


def measure_table(workload: str, n_envs: int, rows: list[Row], procedure: Procedure) -> dict[str, Any]:
    """Measure all rows on one workload in `pairs` rounds: each row once per round, in rotating order."""
    pairs, report = procedure.pairs, procedure.report
    pairs_of: dict[str, list[dict[str, float]]] = {row.name: [] for row in rows}
    absent: dict[str, str] = {}
    limits: list[float] = []
    with ExitStack() as lasting:
        sessions = _start(lasting, [row for row in rows if row.lasting], workload, n_envs, absent)
        for first_round in range(0, pairs, ROUNDS_PER_BUILD):
            with ExitStack() as renewed:
                limit = renewed.enter_context(closing(Limit(workload, n_envs, procedure.cores)))
                fresh = [row for row in rows if not row.lasting and row.name not in absent]
                sessions |= _start(renewed, fresh, workload, n_envs, absent)
                limit.wait_until_ready()
                for round_index in range(first_round, min(first_round + ROUNDS_PER_BUILD, pairs)):
                    report(f"{workload}, {n_envs} environments: round {round_index + 1} of {pairs}")
                    order = [name for name in pairs_of if name not in absent]
                    start = round_index % max(1, len(order))
                    order = order[start:] + order[:start]
                    measured = _measure_round(limit, sessions, order, procedure.duration, absent)
                    limits += measured.pop("limit")
                    for name, pair in measured.items():
                        pairs_of[name].append(pair | {"round": round_index})
    for name, reason in absent.items():
        report(f"{workload}, {n_envs} environments: {name} absent: {reason}")
    return {
        "workload": workload,
        "n_envs": n_envs,
        "processes": min(procedure.cores, n_envs),
        "limit": quartiles(limits),
        "rows": {name: {"absent": absent[name]} if name in absent else _summary(pairs_of[name]) for name in pairs_of},
    }


def _start(
    stack: ExitStack, rows: list[Row], workload: str, n_envs: int, absent: dict[str, str]
) -> dict[str, Measurable]:
    """Start all rows at once, since most of it is imports, then wait for each; a row that fails becomes absent."""
    started: dict[str, Measurable] = {}
    for row in rows:
        try:
            started[row.name] = stack.enter_context(closing(row.start(workload, n_envs)))
        except SessionError as error:
            absent[row.name] = str(error)
    for name, session in list(started.items()):
        try:
            session.wait_until_ready()
        except SessionError as error:
            absent[name] = str(error)
            del started[name]
    return started


def _measure_round(
    limit: Limit, sessions: dict[str, Measurable], order: list[str], duration: Duration, absent: dict[str, str]
) -> dict[str, Any]:
    """Measure each row in `order` once, with the limit before and after each."""
    measured: dict[str, Any] = {}
    limits = [limit.steps_per_second(duration.shorter(LIMIT_PART))]
    for name in order:
        try:
            rate = sessions[name].steps_per_second(duration)
        except SessionError as error:
            absent[name] = str(error)
            continue
        limits.append(limit.steps_per_second(duration.shorter(LIMIT_PART)))
        before, after = limits[-2:]
        measured[name] = {"steps_per_second": rate, "share": rate / ((before + after) / 2)}
    return measured | {"limit": limits}


def _summary(pairs: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "steps_per_second": quartiles(pair["steps_per_second"] for pair in pairs),
        "share": quartiles(pair["share"] for pair in pairs),
        "pairs": pairs,
    }
