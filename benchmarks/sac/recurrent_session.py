"""Session that makes updates of Envfleet's SAC with memory; a step is an update.

The replay buffer is full of random trials. A cycle adds the same rollout again and makes the updates that are due for
it, so drawing, adding and learning all count.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.sac.cpu import with_cpu_time
from benchmarks.sac.workloads import TRIALS_ENV, RecurrentSizes
from benchmarks.stepping import Stepper, serve

N_ENVS = 8
UPDATES_PER_CYCLE = 2


def settings_of(sizes: RecurrentSizes, threads: int | None) -> dict[str, Any]:
    """Return settings for `envfleet.SAC`."""
    of_action, of_reward, of_observation = sizes.embeddings
    steps = N_ENVS * sizes.length
    return {
        "env": TRIALS_ENV,
        "env_kwargs": {"observation": sizes.observation, "action": sizes.action, "length": sizes.length},
        "n_envs": N_ENVS,
        "backend": "sequential",
        "memory": sizes.memory,
        "memory_size": sizes.units,
        "action_embedding": of_action,
        "reward_embedding": of_reward,
        "observation_embedding": of_observation,
        "hidden": tuple(sizes.hidden),
        "minibatch_size": sizes.batch,
        "sampled_seq_len": sizes.length,
        "rollout_steps": sizes.length,
        "replay_size": sizes.trials * sizes.length,
        "learning_starts": sizes.trials * sizes.length,
        "updates_per_step": UPDATES_PER_CYCLE / steps,
        "gamma": sizes.gamma,
        "learning_rate": sizes.learning_rate,
        "target_rate": sizes.target_rate,
        "learner_threads": threads,
        "steps": 10**12,
        "seed": 0,
    }


def build_updates(sizes: RecurrentSizes, threads: int | None) -> Stepper:
    """Assemble a training, fill its replay buffer and warm it up."""
    from envfleet.algorithms.settings import SAC
    from envfleet.training.assembly import assemble, resolve

    parts = assemble(resolve(SAC(**settings_of(sizes, threads))))
    learner: Any = parts.learner
    rollout = parts.schedule.next()

    def advance() -> int:
        before = learner.updates
        while learner.updates == before:
            learner.learn(rollout, 0.0)
        return int(learner.updates - before)

    advance()
    return with_cpu_time(Stepper(advance, parts.close))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=json.loads, required=True, help="workload sizes, as JSON")
    parser.add_argument("--threads", type=int, help="threads of the learner (default: its own choice)")
    options = parser.parse_args()
    serve(lambda: build_updates(RecurrentSizes(**options.sizes), options.threads))


if __name__ == "__main__":
    main()
