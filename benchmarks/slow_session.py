"""Session for slow simulators: step a fleet or train PPO, with given or automatic settings."""

from __future__ import annotations

import argparse
import json
import tempfile
from typing import Any

from benchmarks.fleet_session import whole_batches
from benchmarks.stepping import Stepper, serve
from benchmarks.workloads import WORKLOADS, batches_of_actions


def stepping(workload_name: str, n_envs: int, settings: dict[str, Any]) -> Stepper:
    """Step a fleet with random actions."""
    import envfleet

    workload = WORKLOADS[workload_name]
    workload.register()
    fleet = envfleet.make(workload.env, n_envs, seed=0, quiet=True, **settings)
    facts = {"backend": fleet.backend, "workers": fleet.workers}
    return Stepper(whole_batches(fleet, batches_of_actions(workload, n_envs)), fleet.close, facts=lambda: facts)


def training(workload_name: str, n_envs: int, settings: dict[str, Any]) -> Stepper:
    """Train PPO with small rollouts, as a user of a slow simulator would."""
    from envfleet.algorithms.settings import PPO
    from envfleet.training.assembly import assemble, resolve

    workload = WORKLOADS[workload_name]
    workload.register()
    own: dict[str, Any] = {
        "env": workload.env,
        "n_envs": n_envs,
        "rollout_steps": 16,
        "minibatch_size": 16 * n_envs,
        "epochs": 4,
        "steps": 10**9,
        "seed": 0,
        "eval_every": 0,
        "output_dir": tempfile.gettempdir(),
    }
    resolved = resolve(PPO(**{**own, **settings}))
    parts = assemble(resolved)
    resolved.stage.close()
    facts = {"backend": parts.fleet.backend, "workers": parts.fleet.workers, "acting": parts.placement.acting}

    def advance() -> int:
        rollout = parts.schedule.next()
        parts.learner.learn(rollout, 0.0)
        return int(rollout.rewards.size)

    return Stepper(advance, parts.close, facts=lambda: facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=("stepping", "training"), required=True)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--settings", type=json.loads, default={}, help="settings of the fleet or of PPO, as JSON")
    options = parser.parse_args()
    build = {"stepping": stepping, "training": training}[options.what]
    serve(lambda: build(options.workload, options.envs, options.settings))


if __name__ == "__main__":
    main()
