"""What it gains that workers stay on separate cores (`fleet/cores.py`): `python -m benchmarks.own_cores`.

Two fleets of 64 CartPoles on all cores take turns: one as it is, one whose workers never move. Both are built again
after every five rounds, because the scheduler may place the workers of one of them well by luck.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter
from typing import Any

from benchmarks.interleave import ROUNDS_PER_BUILD, quartiles

N_ENVS = 64


def steps_per_second(fleet: Any, actions: Any, seconds: float) -> float:
    """Step for some time, after a warm-up of a fifth of it."""
    speed = 0.0
    for part in (0.2 * seconds, seconds):
        steps, began = 0, perf_counter()
        while (passed := perf_counter() - began) < part:
            fleet.step(actions)
            steps += 1
        speed = steps * N_ENVS / passed
    return speed


def build(*, moving: bool) -> Any:
    """Fork the workers, so that they have the changed function."""
    import envfleet
    from envfleet.fleet import worker

    own_core = worker.own_core
    worker.own_core = own_core if moving else lambda *_: None
    try:
        fleet = envfleet.make("CartPole-v1", N_ENVS, backend="processes", start_method="fork", seed=0, quiet=True)
    finally:
        worker.own_core = own_core
    fleet.reset()
    return fleet


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a measurement")
    options = parser.parse_args()
    ratios = []
    while len(ratios) < options.rounds:
        fleets = [build(moving=True), build(moving=False)]
        actions = fleets[0].action_space.sample()
        for _ in range(min(ROUNDS_PER_BUILD, options.rounds - len(ratios))):
            order = fleets if len(ratios) % 2 else fleets[::-1]
            speeds = {id(fleet): steps_per_second(fleet, actions, options.seconds) for fleet in order}
            ratios.append(speeds[id(fleets[0])] / speeds[id(fleets[1])])
        for fleet in fleets:
            fleet.close()
    found = quartiles(ratios)
    print(
        f"{N_ENVS} CartPoles, workers on separate cores relative to workers that never move: "
        f"{found['median']:.2f} ({found['lower']:.2f} to {found['upper']:.2f}), {options.rounds} rounds"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
