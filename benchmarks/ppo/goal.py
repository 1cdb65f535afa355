"""Seconds and steps to a mean return of 475 over the last 100 training episodes of CartPole-v1."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from benchmarks.interleave import quartiles
from benchmarks.ppo.goal_session import BUDGET, EPISODES, GOAL
from benchmarks.ppo.rounds import Procedure
from benchmarks.ppo.rows import start_peer
from benchmarks.sessions import Duration, Session, SessionError

SEEDS = (1, 2, 3)
PATIENCE = 600.0  # seconds for one run
MODULE = "benchmarks.ppo.goal_session"


def _ours(schedule: str) -> Callable[[int], Session]:
    return lambda seed: Session(MODULE, ["envfleet", "--schedule", schedule, "--seed", seed])


def _theirs(*flags: object) -> Callable[[int], Session]:
    return lambda seed: start_peer(MODULE, ["sb3", "--seed", seed, *flags])


ROWS: dict[str, tuple[str, Callable[[int], Session]]] = {
    "sync": ("Envfleet, preset, `sync`", _ours("sync")),
    "overlap": ("Envfleet, preset, `overlap`", _ours("overlap")),
    "sb3": ("Stable-Baselines3, RL Zoo, torch's choice of threads", _theirs()),
    "sb3-1-thread": ("Stable-Baselines3, RL Zoo, 1 thread", _theirs("--threads", 1)),
}


def measure_goal(procedure: Procedure) -> dict[str, Any]:
    """Run every row with every seed, one run at a time, alternating the rows."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ROWS}
    absent: dict[str, str] = {}
    for seed in SEEDS:
        procedure.report(f"to-475: seed {seed}")
        for name, (_, start) in ROWS.items():
            try:
                with closing(start(seed)) as session:
                    session.wait_until_ready()
                    answer = session.measure(Duration(1e-9, 0.0), patience=PATIENCE)
            except SessionError as error:
                absent[name] = str(error)
                continue
            runs[name].append({"seed": seed, **answer})
    rows = {
        name: {"title": title, **({"absent": absent[name]} if name in absent else _summary(runs[name]))}
        for name, (title, _) in ROWS.items()
    }
    return {"goal": GOAL, "episodes": EPISODES, "budget": BUDGET, "rows": rows}


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise the runs; one that missed the goal counts with its full time, which is a lower bound."""
    return {
        "seconds": quartiles(run["seconds"] for run in runs),
        "steps": quartiles(run["steps"] for run in runs),
        "reached": sum(run["reached"] for run in runs),
        "runs": runs,
    }
