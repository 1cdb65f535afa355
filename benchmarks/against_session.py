"""Benchmark session for `benchmarks.against`: steps a fleet or trains, and reports the CPU seconds of this process.

`--steps N` takes N steps and exits instead, for counting instructions. It has to run with old versions of Envfleet too,
so it uses the public API only.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.stepping import Stepper, serve

PPO = {"algorithm": "PPO", "env": "CartPole-v1", "n_envs": 16, "rollout_steps": 128, "steps": 16 * 128 * 4}
DQN = {"algorithm": "DQN", "env": "CartPole-v1", "n_envs": 8, "steps": 4_000, "learning_starts": 500}
# A row is an environment of `envfleet.make`, or settings of a training.
ROWS: dict[str, dict[str, Any]] = {
    "64 CartPoles on processes": {"env": "CartPole-v1", "n_envs": 64, "backend": "processes"},
    "16 CartPoles in one process": {"env": "CartPole-v1", "n_envs": 16, "backend": "sequential"},
    "8 HalfCheetahs in one process": {"env": "HalfCheetah-v5", "n_envs": 8, "backend": "sequential"},
    "PPO": PPO,
    "PPO with a GRU": {**PPO, "memory": "gru"},
    "DQN": DQN,
}


@dataclass
class CpuTime:
    """CPU seconds of this process and the environment steps they were spent on, since `clear`."""

    seconds: float = 0.0
    steps: int = 0
    _since: float = field(default_factory=time.process_time)

    def clear(self) -> None:
        self.seconds, self.steps, self._since = 0.0, 0, time.process_time()

    def add(self, steps: int, seconds: float | None = None) -> None:
        """Add steps, and their CPU time if it is not all that was spent."""
        self.steps += steps
        self.seconds = time.process_time() - self._since if seconds is None else self.seconds + seconds


def stepping(row: dict[str, Any], spent: CpuTime) -> Callable[[], int]:
    """Return a function that steps the whole fleet once."""
    import envfleet

    fleet = envfleet.make(**row, seed=1, quiet=True)
    fleet.reset(seed=1)
    fleet.action_space.seed(1)
    actions = cycle([fleet.action_space.sample() for _ in range(128)])

    def advance() -> int:
        fleet.step(next(actions))
        spent.add(fleet.num_envs)
        return fleet.num_envs

    return advance


def training(row: dict[str, Any], spent: CpuTime) -> Callable[[], int]:
    """Return a function that trains a short run; CPU time is taken from its first update to its last."""
    import envfleet

    kind = getattr(envfleet, row["algorithm"])
    settings = {name: value for name, value in row.items() if name != "algorithm"}

    class Clock(envfleet.Callback):
        first: tuple[int, float] | None = None
        last: tuple[int, float] = (0, 0.0)

        def on_update(self, moment: Any) -> None:
            self.last = (moment.steps, time.process_time())
            self.first = self.first or self.last

    def advance() -> int:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            options = {"seed": 1, "backend": "sequential", "eval_every": 0, "quiet": True, "learner_threads": 1}
            if row["algorithm"] != "PPO":
                del options["learner_threads"]
            envfleet.train(kind(**settings, **options, output_dir=str(Path(folder) / "run")), callbacks=[clock])
        assert clock.first is not None
        steps = clock.last[0] - clock.first[0]
        spent.add(steps, clock.last[1] - clock.first[1])
        return steps

    return advance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--steps", type=int, help="take this many environment steps, then exit")
    options = parser.parse_args()
    row, spent = ROWS[options.row], CpuTime()
    build = training if "algorithm" in row else stepping
    if options.steps is None:
        serve(lambda: Stepper(build(row, spent), facts=lambda: {"cpu": spent.seconds / spent.steps}), spent.clear)
        return
    advance, taken = build(row, spent), 0
    while taken < options.steps:
        taken += advance()


if __name__ == "__main__":
    main()
