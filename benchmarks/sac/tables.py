"""Tables of the SAC benchmark: the rows of each workload and the facts shown with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.balance import balance
from benchmarks.peers.install import python_of, reason_of_absence
from benchmarks.ppo.rounds import Procedure, measure_rows
from benchmarks.ppo.rows import Row
from benchmarks.sac.workloads import COMPUTED_ENV, Sizes, recurrent_sizes
from benchmarks.sessions import ROOT, Session, SessionError

SESSION = "benchmarks.sac.training_session"
PEER_THREADS = (1, 2)
LENGTHS, MEMORIES = (120, 400), ("gru", "lstm")

Table = dict[str, Any]


def our_row(name: str, title: str, settings: dict[str, Any]) -> Row:
    """Return a row for Envfleet with these settings."""
    arguments = ["--settings", json.dumps(settings)]
    return Row(name, title, lambda: Session(SESSION, arguments), ours=True)


def start_in(library: str, module: str, arguments: Sequence[object]) -> Session:
    """Start a session in the virtual environment of another library."""
    reason = reason_of_absence(library)
    if reason is not None:
        raise SessionError(reason)
    return Session(module, arguments, python=python_of(library))


def halfcheetah(procedure: Procedure) -> Table:
    """Compare with Stable-Baselines3 and SBX, one update per step."""
    sizes = Sizes()
    peer, arguments = "benchmarks.sac.peer_session", ["--sizes", json.dumps(sizes.as_json())]
    rows = [
        our_row("sync", "Envfleet, `sync`", sizes.ours()),
        our_row("sync-1", "Envfleet, `sync`, 1 thread", sizes.ours(learner_threads=1, backend="sequential")),
        our_row("overlap", "Envfleet, `overlap`", sizes.ours(schedule="overlap")),
        *(
            Row(
                f"sb3-{threads}",
                f"Stable-Baselines3, {_threads(threads)}",
                partial(start_in, "stable-baselines3", peer, [*arguments, "--threads", threads]),
            )
            for threads in PEER_THREADS
        ),
        Row("sbx", "SBX (JAX)", partial(start_in, "sbx", peer, [*arguments, "--jax"])),
        *(
            Row(
                f"arithmetic-{threads}",
                f"arithmetic alone, {_threads(threads)}",
                partial(Session, "benchmarks.sac.arithmetic_session", [*arguments, "--threads", threads]),
            )
            for threads in PEER_THREADS
        ),
    ]
    return {
        "title": f"{sizes.env}, {sizes.n_envs} environments",
        "unit": "steps",
        "rows": measure_rows("halfcheetah", rows, procedure),
    }


def recurrent(procedure: Procedure, *, memory: str, length: int) -> Table:
    """Compare an update with one in the way of pomdp-baselines."""
    sizes = json.dumps(recurrent_sizes(memory, length).as_json())
    ours, peer = "benchmarks.sac.recurrent_session", "benchmarks.sac.pomdp_session"
    rows = [
        Row("ours", "Envfleet", partial(Session, ours, ["--sizes", sizes]), ours=True),
        Row(
            "ours-1",
            "Envfleet, 1 learner thread",
            partial(Session, ours, ["--sizes", sizes, "--threads", 1]),
            ours=True,
        ),
        *(
            Row(
                f"pomdp-{threads}",
                f"as in pomdp-baselines, {_threads(threads)}",
                partial(Session, peer, ["--sizes", sizes, "--threads", threads]),
            )
            for threads in PEER_THREADS
        ),
        Row(
            "arithmetic",
            "arithmetic alone, 2 threads",
            partial(Session, "benchmarks.sac.recurrent_arithmetic_session", ["--sizes", sizes]),
        ),
    ]
    return {
        "title": f"{memory.upper()}, sequences of {length} steps",
        "unit": "updates",
        "rows": measure_rows(f"{memory}-{length}", rows, procedure),
    }


def balanced(procedure: Procedure) -> Table:
    """Compare `sync` and `overlap` with one worker and one learner that have a core and equal work each."""
    alike: dict[str, Any] = {"backend": "processes", "workers": 1, "learner_threads": 1}
    iterations, relation = balance(SESSION, lambda iterations: _balanced_sizes(iterations).ours(**alike), procedure)
    sizes = _balanced_sizes(iterations)
    rows = [
        our_row("sync", "Envfleet, `sync`", sizes.ours(**alike)),
        our_row("overlap", "Envfleet, `overlap`", sizes.ours(**alike, schedule="overlap")),
    ]
    return {
        "title": "Collecting takes as long as learning",
        "unit": "steps",
        "iterations": iterations,
        "collecting_over_learning": relation,
        "rows": measure_rows("balanced", rows, procedure),
    }


def _balanced_sizes(iterations: int) -> Sizes:
    return replace(Sizes(), env=COMPUTED_ENV, env_kwargs={"iterations": iterations})


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def sampling(procedure: Procedure) -> dict[str, Any]:
    """Measure drawing from a replay buffer, in a process of its own."""
    procedure.report("measuring sampling")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "benchmarks.sac.sampling", "--rounds", str(procedure.rounds)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SessionError(done.stderr.strip().splitlines()[-1] if done.stderr else "sampling failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


TABLES: dict[str, Callable[[Procedure], Table]] = {
    "halfcheetah": halfcheetah,
    **{
        f"{memory}-{length}": partial(recurrent, memory=memory, length=length)
        for memory in MEMORIES
        for length in LENGTHS
    },
    "balanced": balanced,
}
