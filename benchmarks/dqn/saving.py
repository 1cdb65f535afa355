"""How long a checkpoint with a replay buffer of a million steps blocks training: the first one and later ones.

Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.dqn.workloads import MILLION, Sizes
from envfleet.algorithms.settings import DQN
from envfleet.runs.checkpoints import Checkpoints
from envfleet.training.assembly import assemble, resolve

NEW_STEPS = 10_000  # between two checkpoints


def measure(steps: int, rounds: int) -> dict[str, Any]:
    """Measure the seconds to write the learner's state, with replay buffer and priorities."""
    sizes = Sizes(replay_size=steps, learning_starts=steps)
    settings = sizes.ours(backend="sequential", prioritised=True)
    parts = assemble(resolve(DQN(**settings)))
    learner, seconds = parts.learner, []
    rollout = parts.schedule.next()

    def collect(count: int) -> None:
        for _ in range(-(-count // rollout.rewards.size)):
            learner.experience.add(rollout)

    try:
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = Checkpoints(Path(folder), 3)
            for number in range(rounds + 1):
                collect(NEW_STEPS if number else steps)
                began = perf_counter()
                state = {"learner": learner.state()}
                checkpoints.save(number + 1, parts.policy.state_dict(), state, learner.pieces())
                seconds.append(perf_counter() - began)
    finally:
        parts.close()
    return {"steps": steps, "new_steps": NEW_STEPS, "first_seconds": seconds[0], "seconds": seconds[1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=MILLION)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(json.dumps(measure(options.steps, options.rounds)))


if __name__ == "__main__":
    main()
