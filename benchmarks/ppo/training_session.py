"""Session that trains Envfleet's PPO: whole cycles of collecting and learning, without console and checkpoints.

Each measurement also reports where its time went and how much private memory the workers use.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

from benchmarks.plain_loop import Barriers, add_barriers
from benchmarks.stepping import Stepper, serve

WARM_UPDATES = 2


class TimeOfCycles:
    """Add up where the time of the measured cycles went; the first cycle after a pause is not counted."""

    def __init__(self, workers: int) -> None:
        from envfleet.training.progress import TimeShares

        self._shares = TimeShares(workers)
        self._cycles: list[tuple[float, dict[str, float]]] = []  # seconds, shares of them

    def add(self, rollout_seconds: Any, waited: float, learning: float, steps: int) -> None:
        shares = self._shares.shares(rollout_seconds, waited, learning, steps)
        self._cycles.append((steps / shares.pop("time/fps"), shares))

    def take(self) -> dict[str, float]:
        """Return the time shares since the last call, without the first cycle, which began in the pause."""
        measured = self._cycles[1:]
        self._cycles.clear()
        total = sum(seconds for seconds, _ in measured)
        if not measured:
            return {}
        names = [name for name in measured[0][1] if name.startswith("time/")]
        return {
            name.removeprefix("time/"): sum(seconds * shares[name] for seconds, shares in measured) / total
            for name in names
        }


def build_training(settings: dict[str, Any], *, learns: bool) -> Stepper:
    """Assemble a training and warm it up; without learning, rollouts use the initial weights."""
    from envfleet.algorithms.settings import PPO
    from envfleet.training.assembly import assemble, resolve

    return stepper_of(assemble(resolve(PPO(**settings))), learns=learns, warm=WARM_UPDATES)


def stepper_of(parts: Any, *, learns: bool = True, warm: int) -> Stepper:
    """Return a stepper that collects and learns in cycles, after `warm` cycles that are not measured."""
    schedule, learner = parts.schedule, parts.learner
    times = TimeOfCycles(parts.fleet.workers)

    def advance() -> int:
        rollout = schedule.next()
        seconds = rollout.seconds.copy()  # before the next rollout may overwrite it
        began = perf_counter()
        if learns:
            learner.learn(rollout, 0.0)
        learning = perf_counter() - began
        waited, schedule.waited = schedule.waited, 0.0
        steps = int(rollout.rewards.size)
        times.add(seconds, waited, learning, steps)
        return steps

    def facts() -> dict[str, Any]:
        workers = parts.fleet.statistics().workers
        return {"time": times.take(), "worker_memory_mb": max(worker.memory_mb for worker in workers)}

    for _ in range(warm):
        advance()
    times.take()
    # With `overlap`, the next rollout must not be collected while another row is measured.
    pause: Callable[[], None] = schedule.settle if schedule.lag else lambda: None
    return Stepper(advance, parts.close, pause=pause, facts=facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=json.loads, required=True, help="settings of envfleet.PPO, as JSON")
    parser.add_argument("--collect-only", action="store_true", help="collect rollouts without learning")
    add_barriers(parser)
    options = parser.parse_args()
    barriers = Barriers(options)

    def build() -> Stepper:
        return barriers.after_every_step(build_training(options.settings, learns=not options.collect_only))

    serve(build, barriers.wait_for_others)


if __name__ == "__main__":
    main()
