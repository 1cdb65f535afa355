"""Small scripts that `startup.py` runs in fresh processes and measures from outside.

They run like a user's own script, with `--torch` also importing torch at the top: workers should not pay for it.
"""

from __future__ import annotations

import argparse
import json
import sys
from time import perf_counter

if "--torch" in sys.argv:
    import torch  # noqa: F401 (the benchmark measures its cost in the workers)

N_ENVS, WORKERS, STEPS = 64, 2, 500


def _tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def _wait() -> None:
    sys.stdin.readline()


def ready() -> None:
    """Report the seconds until 64 CartPole environments on 2 workers are made and reset, without imports; then again.

    The first time includes the start of the server that forks the workers.
    """
    from envfleet import make

    seconds = []
    for _ in range(2):
        start = perf_counter()
        fleet = make("CartPole-v1", N_ENVS, backend="processes", workers=WORKERS, seed=0, quiet=True)
        fleet.reset()
        seconds.append(perf_counter() - start)
        fleet.close()
    _tell(seconds=seconds)


def workers() -> None:
    """Step a fleet, report the process ids of its workers and wait."""
    import envfleet

    fleet = envfleet.make("CartPole-v1", N_ENVS, backend="processes", workers=WORKERS, seed=0, quiet=True)
    fleet.reset()
    actions = fleet.action_space.sample()
    for _ in range(STEPS):
        fleet.step(actions)
    _tell(pids=[worker.pid for worker in fleet.statistics().workers])
    _wait()
    fleet.close()


def environments() -> None:
    """Report and wait twice: after importing Gymnasium, and after building and stepping one worker's environments."""
    import os

    import gymnasium

    gymnasium.make("CartPole-v1", disable_env_checker=True).close()
    _tell(pids=[os.getpid()])
    _wait()
    envs = [gymnasium.make("CartPole-v1", disable_env_checker=True) for _ in range(N_ENVS // WORKERS)]
    actions = [env.action_space.sample() for env in envs]
    for env in envs:
        env.reset()
    for _ in range(STEPS):
        for env, action in zip(envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
    _tell(pids=[os.getpid()])
    _wait()


PROBES = {"ready": ready, "workers": workers, "environments": environments}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probe", choices=PROBES)
    parser.add_argument("--torch", action="store_true")
    PROBES[parser.parse_args().probe]()
