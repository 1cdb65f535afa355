"""Session that steps another library's vector environment, in that library's virtual environment.

Each library is used as its documentation shows: default settings, actions as one array, environments built by
`workloads.py`. Rows in which a library only resets an environment do not count as steps.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.fleet_session import whole_batches
from benchmarks.stepping import Stepper, serve
from benchmarks.workloads import WORKLOADS, Workload, batches_of_actions


def _gymnasium(vector: Any, actions: Any) -> Stepper:
    """Step one of Gymnasium's vector environments; a finished environment is reset by its next row."""
    return Stepper(whole_batches(vector, actions), vector.close)


def gymnasium_sync(workload: Workload, n_envs: int, actions: Any) -> Stepper:
    from gymnasium.vector import SyncVectorEnv

    return _gymnasium(SyncVectorEnv([workload.make_env] * n_envs), actions)


def gymnasium_async(workload: Workload, n_envs: int, actions: Any) -> Stepper:
    from gymnasium.vector import AsyncVectorEnv

    return _gymnasium(AsyncVectorEnv([workload.make_env] * n_envs, shared_memory=True), actions)


def stable_baselines3_subproc(workload: Workload, n_envs: int, actions: Any) -> Stepper:
    """Start by fork: the default, forkserver, imports torch once per environment."""
    from stable_baselines3.common.vec_env import SubprocVecEnv

    vector = SubprocVecEnv([workload.make_env] * n_envs, start_method="fork")
    batches = cycle(actions)

    def advance() -> int:
        vector.step(next(batches))
        return n_envs

    vector.seed(0)
    vector.reset()
    return Stepper(advance, vector.close)


def tianshou_shmem(workload: Workload, n_envs: int, actions: Any) -> Stepper:
    """Reset finished environments by index, as Tianshou's collector does: there is no autoreset."""
    from tianshou.env import ShmemVectorEnv

    vector = ShmemVectorEnv([workload.make_env] * n_envs)
    batches = cycle(actions)

    def advance() -> int:
        _, _, terminated, truncated, _ = vector.step(next(batches))
        finished = np.flatnonzero(terminated | truncated)
        if finished.size:
            vector.reset(finished)
        return n_envs

    vector.seed(0)
    vector.reset()
    return Stepper(advance, vector.close)


def pufferlib_multiprocessing(workload: Workload, n_envs: int, actions: Any, *, batches_in_flight: int = 1) -> Stepper:
    """Use one worker per core, as PufferLib advises. Idle workers spin, so they are stopped between measurements."""
    import pufferlib.emulation
    import pufferlib.vector

    cores = len(os.sched_getaffinity(0))
    workers = max(number for number in range(1, cores + 1) if n_envs % number == 0)
    vector = pufferlib.vector.make(
        partial(pufferlib.emulation.GymnasiumPufferEnv, env_creator=workload.make_env),
        backend=pufferlib.vector.Multiprocessing,
        num_envs=n_envs,
        num_workers=workers,
        batch_size=n_envs // batches_in_flight,
        overwork=True,  # PufferLib counts physical cores; we count usable ones
    )
    batches = cycle(actions)
    resetting = np.zeros(n_envs, bool)

    def advance() -> int:
        _, _, terminated, truncated, _, env_ids, _ = vector.recv()
        stepped = len(env_ids) - int(np.count_nonzero(resetting[env_ids]))
        resetting[env_ids] = terminated | truncated
        vector.send(next(batches)[env_ids])
        return stepped

    def signal_workers(number: int) -> None:
        for process in vector.processes:
            os.kill(process.pid, number)

    vector.async_reset(0)
    for _ in range(2 * batches_in_flight):  # until every environment is built: stopped workers cannot build any
        advance()
    return Stepper(
        advance,
        vector.close,
        pause=partial(signal_workers, signal.SIGSTOP),
        resume=partial(signal_workers, signal.SIGCONT),
    )


PEERS: dict[str, Callable[[Workload, int, Any], Stepper]] = {
    "gymnasium-sync": gymnasium_sync,
    "gymnasium-async": gymnasium_async,
    "sb3-subproc": stable_baselines3_subproc,
    "tianshou-shmem": tianshou_shmem,
    "pufferlib": pufferlib_multiprocessing,
    "pufferlib-half-batches": partial(pufferlib_multiprocessing, batches_in_flight=2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--envs", type=int, required=True)
    options = parser.parse_args()
    workload = WORKLOADS[options.workload]
    actions = batches_of_actions(workload, options.envs)
    serve(lambda: PEERS[options.peer](workload, options.envs, actions))


if __name__ == "__main__":
    main()
