"""Rounds of measurements with the limit before and after each one.

The speed of a shared or virtual machine wanders by tens of per cent within seconds. So nothing is compared
across time: a row's *share* is its speed over the mean of the two limits measured right around it, and what
is reported is the median over the rounds with the quartiles.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from benchmarks.rows import Row
from benchmarks.sessions import Duration, Limit, Measurable, SessionError

ROUNDS_PER_BUILD = 5  # then the limit, the plain loop and the fleet are built anew, as processes differ by luck
LIMIT_PART = 0.5  # each limit lasts this part of a measurement: there are two of them around each

Report = Callable[[str], None]


@dataclass(frozen=True)
class Procedure:
    """How everything is measured."""

    cores: int
    pairs: int
    duration: Duration
    report: Report


def quartiles(values: Iterable[float]) -> dict[str, float]:
    """Median and quartiles, as they go into the results."""
    ordered = sorted(values)
    if len(ordered) == 1:
        ordered *= 2
    lower, middle, upper = statistics.quantiles(ordered, n=4, method="inclusive")
    return {"median": middle, "lower": lower, "upper": upper}


def measure_table(workload: str, n_envs: int, rows: list[Row], procedure: Procedure) -> dict[str, Any]:
    """All rows on one workload: `pairs` rounds, each row once a round, in another order each time."""
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
    """Starts all at once, since most of it is imports, then waits for each; failures become absences."""
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
    """One measurement of each row in `order`, the limit between any two of them."""
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
