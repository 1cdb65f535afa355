"""Tables of the DQN benchmark: the rows of each workload and the facts shown with them."""

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
    """Return a row for Envfleet with these settings."""
    arguments = ["--settings", json.dumps(settings)]
    return Row(name, title, lambda: Session(SESSION, arguments), ours=True)


def cartpole(procedure: Procedure) -> Table:
    """Compare with Stable-Baselines3 on the same updates, and measure our default settings."""
    sizes = Sizes()
    rows = [
        our_row("sync", "Envfleet, `sync`", sizes.ours(**PLAIN)),
        our_row("overlap", "Envfleet, `overlap`", sizes.ours(schedule="overlap", **PLAIN)),
        our_row("default", "Envfleet, double, dueling, 3 steps, `sync`", sizes.ours()),
        *peer_rows("sb3", "Stable-Baselines3", "benchmarks.dqn.peer_session", sizes.as_json()),
    ]
    return {"title": "CartPole-v1, 8 environments", "rows": measure_rows("cartpole", rows, procedure)}


def million(procedure: Procedure) -> Table:
    """Compare uniform and prioritised sampling from a full replay buffer of a million steps."""
    sizes = Sizes(replay_size=MILLION, learning_starts=MILLION)
    rows = [
        our_row("uniform", "uniform sampling", sizes.ours()),
        our_row("prioritised", "prioritised sampling", sizes.ours(prioritised=True)),
    ]
    return {"title": "A replay buffer of a million steps", "rows": measure_rows("million", rows, procedure)}


def balanced(procedure: Procedure) -> Table:
    """Compare `sync` and `overlap` with one worker and one learner that have a core and equal work each."""
    iterations, relation = balance(SESSION, lambda iterations: _balanced_sizes(iterations).ours(workers=1), procedure)
    sizes = _balanced_sizes(iterations)
    rows = [
        our_row("sync", "Envfleet, `sync`", sizes.ours(workers=1)),
        our_row("overlap", "Envfleet, `overlap`", sizes.ours(workers=1, schedule="overlap")),
    ]
    return {
        "title": "Collecting takes as long as learning",
        "iterations": iterations,
        "collecting_over_learning": relation,
        "rows": measure_rows("balanced", rows, procedure),
    }


def _balanced_sizes(iterations: int) -> Sizes:
    return replace(Sizes(), env=COMPUTED_ENV, env_kwargs={"iterations": iterations})


def alone(module: str, procedure: Procedure) -> dict[str, Any]:
    """Run a measuring module in a separate process and return the JSON that it prints."""
    procedure.report(f"measuring {module}")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", f"benchmarks.dqn.{module}", "--rounds", str(procedure.rounds)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SessionError(done.stderr.strip().splitlines()[-1] if done.stderr else f"{module} failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


TABLES: dict[str, Callable[[Procedure], Table]] = {"cartpole": cartpole, "million": million, "balanced": balanced}
ALONE = ("sampling", "saving")
