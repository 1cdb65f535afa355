"""Session that collects with one process per environment, pipes, and a policy that acts for one environment at a time.

It stands in for parallel collection as forks of pomdp-baselines add it: the caller chooses an action for each
environment, sends all of them, receives all results and stores them. The code is our own.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.stepping import Stepper, serve
from benchmarks.workloads import WORKLOADS

STEPS = 128  # of each environment in the storage

Act = Callable[[int, Any], Any]  # environment and observation to an action


def worker(workload: str, pipe: Connection) -> None:
    """Serve one environment; it is reset when a trial ends."""
    env = WORKLOADS[workload].make_env()
    while True:
        command, value = pipe.recv()
        if command == "close":
            return
        if command == "reset":
            pipe.send(env.reset(seed=value)[0])
            continue
        observation, reward, terminated, truncated, _ = env.step(value)
        ended = terminated or truncated
        pipe.send((env.reset()[0] if ended else observation, reward, ended))


def recurrent(n_envs: int, inputs: int, outputs: int, hidden: Sequence[int], units: int) -> Act:
    """Return a Gaussian policy with a GRU in torch, with one memory per environment."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = [inputs, *hidden]
    layers = [part for one, other in itertools.pairwise(sizes) for part in (nn.Linear(one, other), nn.Tanh())]
    trunk, memory, head = nn.Sequential(*layers), nn.GRUCell(sizes[-1], units), nn.Linear(units, outputs)
    states = [torch.zeros(1, units) for _ in range(n_envs)]

    @torch.inference_mode()
    def act(env: int, observation: Any) -> Any:
        states[env] = memory(trunk(torch.as_tensor(observation)[None]), states[env])
        mean = head(states[env])
        return torch.normal(mean, 1.0).clamp(-1.0, 1.0)[0].numpy()

    return act


def build(workload_name: str, n_envs: int, hidden: Sequence[int], units: int) -> Stepper:
    workload = WORKLOADS[workload_name]
    env = workload.make_env()
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in range(n_envs)]
    processes = [context.Process(target=worker, args=(workload_name, there), daemon=True) for _, there in ends]
    for process in processes:
        process.start()
    pipes = [here for here, _ in ends]
    for place, pipe in enumerate(pipes):
        pipe.send(("reset", place))
    now = [pipe.recv() for pipe in pipes]
    size, space = now[0].shape[0], env.action_space
    act: Act = recurrent(n_envs, size, int(np.prod(space.shape or ())), hidden, units) if units else _random(space)
    stored = np.zeros((STEPS, n_envs, size), np.float32)
    step = 0

    def advance() -> int:
        nonlocal step
        for place, pipe in enumerate(pipes):
            stored[step, place] = now[place]
            pipe.send(("step", act(place, now[place])))
        for place, pipe in enumerate(pipes):
            now[place], _, _ = pipe.recv()
        step = (step + 1) % STEPS
        return n_envs

    def close() -> None:
        for pipe in pipes:
            pipe.send(("close", None))
        for process in processes:
            process.join()

    return Stepper(advance, close)


def _random(space: Any) -> Act:
    return lambda _env, _observation: space.sample()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--hidden", type=int, nargs="*", default=(), help="layers of the policy")
    parser.add_argument("--units", type=int, default=0, help="size of the GRU; 0: random actions")
    options = parser.parse_args()
    serve(lambda: build(options.workload, options.envs, options.hidden, options.units))


if __name__ == "__main__":
    main()
