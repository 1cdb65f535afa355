"""Speed of `async` divided by that of `overlap`, with two workers of which one is slower."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import closing
from typing import Any

from benchmarks.asynchrony.environments import SEED
from benchmarks.interleave import quartiles

N_ENVS, WORKERS, STEPS, MILLISECONDS = 8, 2, 16, 2.0
TARGETS = {1: 1.0, 2: 1.35, 3: 1.7}  # by how many times slower the second worker is
SCHEDULES = ("sync", "overlap", "async")
WARM_UP = 6  # updates: the first batches of `async` may have been collected in advance


def steps_per_second(schedule: str, ratio: int, seconds: float) -> tuple[float, float]:
    """Train with PPO for some seconds; return the steps per second, and the mean lag."""
    from envfleet.algorithms.settings import PPO
    from envfleet.fleet.timing import timed
    from envfleet.training.assembly import assemble, resolve

    env_kwargs = {"milliseconds": MILLISECONDS, "ratio": float(ratio), "slow_from": N_ENVS // WORKERS}
    settings = PPO(
        env="benchmarks.asynchrony.environments:Waits",
        env_kwargs=env_kwargs,
        n_envs=N_ENVS,
        rollout_steps=STEPS,
        epochs=1,
        minibatch_size=64,
        seed=SEED,
        backend="processes",
        workers=WORKERS,
        start_method="fork",
        acting="worker",
        schedule=schedule,  # type: ignore[arg-type]
        quiet=True,
    )
    lags: list[float] = []
    resolved = resolve(settings)
    with closing(resolved.stage), closing(assemble(resolved)) as parts:

        def advance() -> int:
            rollout = parts.schedule.next()
            lags.append(parts.schedule.metrics().get("lag/mean", 0.0))
            parts.learner.learn(rollout, 0.0)
            return int(rollout.rewards.size)

        for _ in range(WARM_UP):
            advance()
        lags.clear()
        rate = timed(advance, seconds).steps_per_second
    return rate, statistics.fmean(lags)


def measure(rounds: int, seconds: float, report: Callable[[str], None]) -> dict[str, Any]:
    """Measure all schedules at all ratios, in turn; a ratio of speeds is one of the same round."""
    cells: dict[str, Any] = {}
    for ratio, wanted in TARGETS.items():
        rates: dict[str, list[float]] = {schedule: [] for schedule in SCHEDULES}
        lags = []
        for turn in range(rounds):
            for schedule in SCHEDULES[turn % 3 :] + SCHEDULES[: turn % 3]:
                rate, lag = steps_per_second(schedule, ratio, seconds)
                rates[schedule].append(rate)
                if schedule == "async":
                    lags.append(lag)
            report(f"speed ratio {ratio}, round {turn + 1} of {rounds}")
        gains = [ours / other for ours, other in zip(rates["async"], rates["overlap"], strict=True)]
        cells[str(ratio)] = {
            "steps_per_second": {schedule: quartiles(values) for schedule, values in rates.items()},
            "async_over_overlap": quartiles(gains),
            "wanted": wanted,
            "mean_lag": statistics.fmean(lags),
        }
    return cells
