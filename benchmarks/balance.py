"""Find by trial how slow an environment must be for collecting to take as long as learning."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any, Protocol

from benchmarks.ppo.rounds import Procedure
from benchmarks.sessions import Session

CALIBRATIONS = 4
FIRST_ITERATIONS = 400


class SettingsOf(Protocol):
    """Return training settings for an environment that computes `iterations` iterations per step."""

    def __call__(self, iterations: int) -> dict[str, Any]: ...


def balance(module: str, settings_of: SettingsOf, procedure: Procedure) -> tuple[int, float]:
    """Return the iterations per step that make collecting as long as learning in `sync`, and the ratio reached."""
    iterations, relation = FIRST_ITERATIONS, 0.0
    for attempt in range(CALIBRATIONS):
        with closing(Session(module, ["--settings", json.dumps(settings_of(iterations))])) as session:
            session.wait_until_ready()
            time = session.measure(procedure.duration)["time"]
        collecting = time["environment"] + time["acting"] + time["waiting"]
        relation = collecting / time["learning"]
        procedure.report(f"balanced: {iterations} iterations, collecting / learning is {relation:.2f}")
        if attempt < CALIBRATIONS - 1:
            # Only the environments' part of collecting grows with the iterations.
            wanted = time["environment"] + time["learning"] - collecting
            iterations = max(10, round(iterations * max(wanted, 0.0) / time["environment"]))
    return iterations, relation
