"""Where the time of a `step` goes: environments, the workers' own work, the caller's own work, and the hand-over."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

from benchmarks.interleave import ROUNDS_PER_BUILD, Procedure, quartiles
from benchmarks.rows import ROWS
from benchmarks.sessions import Limit, Session

WORKLOADS_TIMED = ("cartpole", "halfcheetah", "breakout")
SIZES_TIMED = (64, 8)
# What the microseconds of a step are divided into; they add up to the whole step.
PIECES = {
    "environments": "environments in lockstep",
    "workers": "workers' own work",
    "caller": "caller's own work",
    "hand_over": "hand-over and waiting",
}


def measure_step_time(procedure: Procedure) -> list[dict[str, Any]]:
    """Divide the time of a `step` of all environments into its pieces, on each workload and number of environments."""
    return [
        {"workload": workload, "n_envs": n_envs, "microseconds": _measure(workload, n_envs, procedure)}
        for n_envs in SIZES_TIMED
        for workload in WORKLOADS_TIMED
    ]


def divide(n_envs: int, *, limit: float, lockstep: float, fleet: dict[str, float]) -> dict[str, float]:
    """Microseconds of one step, from the limits' environment steps per second and the fleet's own report.

    A worker is busy with its environments and with its own work: checks, copies and counting. How long its
    environments take is known from the limit, where each process has as many.
    """
    step = 1e6 * n_envs * fleet["seconds"] / fleet["steps"]
    environments = 1e6 * n_envs / lockstep
    workers = fleet["busy_microseconds"] - 1e6 * n_envs / limit
    caller = fleet["caller_microseconds"]
    return {
        "step": step,
        "environments": environments,
        "workers": workers,
        "caller": caller,
        "hand_over": step - environments - workers - caller,
    }


def _measure(workload: str, n_envs: int, procedure: Procedure) -> dict[str, dict[str, float]]:
    rounds: list[dict[str, float]] = []
    duration = procedure.duration
    for first in range(0, procedure.pairs, ROUNDS_PER_BUILD):
        with ExitStack() as stack:
            limit = stack.enter_context(closing(Limit(workload, n_envs, procedure.cores)))
            lockstep = stack.enter_context(closing(ROWS["in-step"].start(workload, n_envs)))
            arguments = ["--mode", "step", "--workload", workload, "--envs", n_envs, "--timed"]
            fleet = stack.enter_context(closing(Session("benchmarks.fleet_session", arguments)))
            for session in (limit, lockstep, fleet):
                session.wait_until_ready()
            for index in range(first, min(first + ROUNDS_PER_BUILD, procedure.pairs)):
                procedure.report(
                    f"time of a step: {workload}, {n_envs} environments: round {index + 1} of {procedure.pairs}"
                )
                rates = {
                    "limit": limit.steps_per_second(duration),
                    "lockstep": lockstep.steps_per_second(duration),
                }
                rounds.append(divide(n_envs, **rates, fleet=fleet.measure(duration)))
    return {piece: quartiles(pieces[piece] for pieces in rounds) for piece in rounds[0]}


def middle(row: dict[str, Any], piece: str) -> str:
    """Return the median of a piece for a page; a rest that is negative by noise counts as 0."""
    return f"{max(0.0, row['microseconds'][piece]['median']):,.0f}"
