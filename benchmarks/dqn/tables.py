"""The workloads of DQN: which rows each of them has, and what it says beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.balance import balance
from benchmarks.dqn.workloads import COMPUTED_ENV, MILLION, PLAIN, Sizes
from benchmarks.ppo.rounds import Procedure, measure_rows
from benchmarks.ppo.rows import Row, peer_rows
from benchmarks.sessions import ROOT, Session, SessionError

SESSION = "benchmarks.dqn.training_session"

Table = dict[str, Any]


def our_row(name: str, title: str, settings: dict[str, Any]) -> Row:
    """Envfleet with these settings."""
    arguments = ["--settings", json.dumps(settings)]
    return Row(name, title, lambda: Session(SESSION, arguments), ours=True)


def cartpole(procedure: Procedure) -> Table:
    """The same updates as Stable-Baselines3's, and what ours has by default."""
    sizes = Sizes()
    rows = [
        our_row("sync", "Envfleet, `sync`", sizes.ours(**PLAIN)),
        our_row("overlap", "Envfleet, `overlap`", sizes.ours(schedule="overlap", **PLAIN)),
        our_row("default", "Envfleet, double, dueling, 3 steps, `sync`", sizes.ours()),
        *peer_rows("sb3", "Stable-Baselines3", "benchmarks.dqn.peer_session", sizes.as_json()),
    ]
    return {"title": "CartPole-v1, 8 environments", "rows": measure_rows("cartpole", rows, procedure)}


def million(procedure: Procedure) -> Table:
    """A full replay of a million steps, drawn from evenly and by priority."""
    sizes = Sizes(replay_size=MILLION, learning_starts=MILLION)
    rows = [
        our_row("uniform", "drawn evenly", sizes.ours()),
        our_row("prioritised", "drawn by priority", sizes.ours(prioritised=True)),
    ]
    return {"title": "A replay of a million steps", "rows": measure_rows("million", rows, procedure)}


def balanced(procedure: Procedure) -> Table:
    """One worker and one learner, each on a core of its own, with as much to do."""
    iterations, relation = balance(SESSION, lambda iterations: _balanced_sizes(iterations).ours(workers=1), procedure)
    sizes = _balanced_sizes(iterations)
    rows = [
        our_row("sync", "Envfleet, `sync`", sizes.ours(workers=1)),
        our_row("overlap", "Envfleet, `overlap`", sizes.ours(workers=1, schedule="overlap")),
    ]
    return {
        "title": "Collecting as dear as learning",
        "iterations": iterations,
        "collecting_over_learning": relation,
        "rows": measure_rows("balanced", rows, procedure),
    }


def _balanced_sizes(iterations: int) -> Sizes:
    return replace(Sizes(), env=COMPUTED_ENV, env_kwargs={"iterations": iterations})


def alone(module: str, procedure: Procedure) -> dict[str, Any]:
    """What a module prints that measures by itself, in a process of its own."""
    procedure.report(f"{module} measures")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", f"benchmarks.dqn.{module}", "--rounds", str(procedure.rounds)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SessionError(done.stderr.strip().splitlines()[-1] if done.stderr else f"{module} failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


TABLES: dict[str, Callable[[Procedure], Table]] = {"cartpole": cartpole, "million": million, "balanced": balanced}
ALONE = ("sampling", "saving")
