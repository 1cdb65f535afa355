"""Cost of console, metrics, TensorBoard files and checkpoints: `train` compared with the bare loop."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

from benchmarks.ppo.rounds import Procedure, measure_rows, ratio
from benchmarks.ppo.rows import Row, our_row
from benchmarks.ppo.workloads import SIZES
from benchmarks.sessions import Session


def measure_upkeep(procedure: Procedure) -> dict[str, Any]:
    """Measure the speed of `train` over the bare loop, time shares of reporting and sampling, and a checkpoint."""
    settings = SIZES["cartpole-8"].ours()
    arguments = ["--settings", json.dumps(settings)]
    rows = measure_rows(
        "upkeep",
        [
            our_row("bare", "collecting and learning alone", settings),
            Row("whole", "`train`", lambda: Session("benchmarks.ppo.reported_session", arguments), ours=True),
        ],
        procedure,
    )
    results: dict[str, Any] = {"rows": rows}
    rounds = rows["whole"].get("rounds", [])
    if rounds:
        results["speed_over_bare"] = ratio(rows, "whole", "bare")
        results["reporting"] = median(each["reporting"] for each in rounds)
        results["sampling"] = rounds[-1]["sampling"]  # the mean over all rounds
        results["checkpoint_seconds"] = median(each["checkpoint_seconds"] for each in rounds)
    return results
