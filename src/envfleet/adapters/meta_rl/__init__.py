"""The Python surface of a pomdp-baselines fork that collects rollouts in parallel, over Envfleet's environments.

    from envfleet.adapters.meta_rl import collect_rollouts_parallel, make_parallel_env

    parallel_env = make_parallel_env("AntDir-v0", 2, num_workers=6, seed=1, num_train_tasks=50)
    rollouts = collect_rollouts_parallel(12, random_actions=True, parallel_env=parallel_env)

`num_workers` are environments, as there. A rollout has a number, and its seed, its task and its random actions depend
on that number alone. So the rollouts are the same for any number of environments, and without `parallel_env`.
"""

from __future__ import annotations

from envfleet.adapters.meta_rl.agents import AGENT_ARCHS
from envfleet.adapters.meta_rl.collecting import Rollouts, collect_rollouts_parallel
from envfleet.adapters.meta_rl.envs import VariBadWrapper, make_env
from envfleet.adapters.meta_rl.manager import ParallelEnvManager, make_parallel_env

__all__ = [
    "AGENT_ARCHS",
    "ParallelEnvManager",
    "Rollouts",
    "VariBadWrapper",
    "collect_rollouts_parallel",
    "make_env",
    "make_parallel_env",
]
