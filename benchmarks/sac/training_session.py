"""Session that trains Envfleet's SAC: cycles of collecting and learning, without console and checkpoints."""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.ppo.training_session import stepper_of
from benchmarks.sac.cpu import with_cpu_time
from benchmarks.stepping import Stepper, serve

WARM_UPDATES = 2


def build_training(settings: dict[str, Any]) -> Stepper:
    """Assemble a training, collect until it learns and warm it up."""
    from envfleet.algorithms.settings import SAC
    from envfleet.training.assembly import assemble, resolve

    parts = assemble(resolve(SAC(**{**settings, "hidden": tuple(settings["hidden"])})))
    while not parts.learner.updates:
        parts.learner.learn(parts.schedule.next(), 0.0)
    return with_cpu_time(stepper_of(parts, warm=WARM_UPDATES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=json.loads, required=True, help="settings of envfleet.SAC, as JSON")
    options = parser.parse_args()
    serve(lambda: build_training(options.settings))


if __name__ == "__main__":
    main()
