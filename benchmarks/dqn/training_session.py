"""Session that trains Envfleet's DQN: cycles of collecting and learning, without console and checkpoints."""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.ppo.training_session import stepper_of
from benchmarks.stepping import Stepper, serve

WARM_UPDATES = 2


def build_training(settings: dict[str, Any]) -> Stepper:
    """Assemble a training, fill its replay buffer up to `learning_starts` and warm it up."""
    from envfleet.algorithms.settings import DQN
    from envfleet.training.assembly import assemble, resolve

    parts = assemble(resolve(DQN(**{**settings, "hidden": tuple(settings["hidden"])})))
    if settings["learning_starts"] > 10_000:  # adding one rollout repeatedly is faster
        rollout = parts.schedule.next()
        while not parts.learner.updates:
            parts.learner.learn(rollout, 0.0)
    while not parts.learner.updates:
        parts.learner.learn(parts.schedule.next(), 0.0)
    return stepper_of(parts, warm=WARM_UPDATES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=json.loads, required=True, help="settings of envfleet.DQN, as JSON")
    options = parser.parse_args()
    serve(lambda: build_training(options.settings))


if __name__ == "__main__":
    main()
