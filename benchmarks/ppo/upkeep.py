"""Cost of console, metrics, TensorBoard files and checkpoints: `train` compared with the bare loop."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from benchmarks.interleave import quartiles
from benchmarks.ppo.rounds import Procedure, measure_rows
from benchmarks.ppo.rows import Row
from benchmarks.ppo.workloads import SIZES
from benchmarks.sessions import Session


def measure_upkeep(procedure: Procedure) -> dict[str, Any]:
    """Measure the speed of `train` over the bare loop, time shares of reporting and sampling, and a checkpoint."""
    arguments = ["--settings", json.dumps(SIZES["cartpole-8"].ours())]
    session = Row("whole", "`train`", lambda: Session("benchmarks.ppo.reported_session", arguments), ours=True)
    both = measure_rows("upkeep", [session], procedure)["whole"]
    rounds = both.get("rounds", [])
    if not rounds:
        return {"rows": {"whole": both}}
    titles = {"bare": "collecting and learning alone", "whole": session.title}
    return {
        "rows": {
            name: {"title": title, "ours": True, "steps_per_second": quartiles(each[name] for each in rounds)}
            for name, title in titles.items()
        },
        "rounds": rounds,
        "speed_over_bare": quartiles(each["whole"] / each["bare"] for each in rounds),
        "reporting": median(each["reporting"] for each in rounds),
        "sampling": rounds[-1]["sampling"],  # the mean over all rounds
        "checkpoint_seconds": median(each["checkpoint_seconds"] for each in rounds),
    }
