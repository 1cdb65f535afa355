"""Soak test: train for a long time while workers are killed and environments raise, and measure the caller.

    python -m benchmarks.soak --minutes 60 --kill-every 60 --json docs/benchmarks/soak.json
    python -m benchmarks.soak --minutes 10 --kill-every 0 --json docs/benchmarks/soak.json
    python -m benchmarks.soak --minutes 1 --kill-every 2 --raise-every 10000 --workers 8 --acting central

The caller's memory and open descriptors must not grow, and learning must continue. Restarts of the same worker wait
longer each time, and eleven within five minutes end the training, so frequent kills need many workers. With
`--kill-every 0` no worker is killed and no environment raises. The file keeps both kinds of run, and
`python -m benchmarks.soak_page` renders docs/soak.md from them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

from envfleet.algorithms.settings import PPO
from envfleet.rollout.arrays import Rollout
from envfleet.training import train
from envfleet.training.callbacks import Callback, Moment

__all__ = ["Figures", "Watch", "main", "soak", "unsteady_cart_pole"]

RESULTS = Path(__file__).parent.parent / "docs" / "benchmarks" / "soak.json"
SAMPLE_SECONDS = 0.5
THINNED = 10  # every tenth sample is written to the file
CURVE_SECONDS = 5.0
WARM_UP = 1 / 3  # first part of the run, not checked for growth: libraries load, caches fill


class _Unsteady(CartPoleEnv):
    """CartPole that raises once in `raise_every` steps on average."""

    def __init__(self, raise_every: int) -> None:
        super().__init__()
        self._raise_every = raise_every

    def step(self, action: Any) -> Any:
        if self._raise_every and self.np_random.random() * self._raise_every < 1.0:
            raise RuntimeError("the simulator has failed, as it does now and then")
        return super().step(action)


def unsteady_cart_pole(raise_every: int) -> Any:
    return TimeLimit(_Unsteady(raise_every), 500)


@dataclass
class Figures:
    """Results of a soak test."""

    seconds: float = 0.0
    steps: int = 0
    kills: int = 0
    restarts: int = 0
    lost_rows: int = 0
    first_return: float = 0.0  # mean of the first 100 episodes
    last_return: float = 0.0  # mean of the last 100 episodes
    curve: list[tuple[int, float]] = field(default_factory=list)  # (steps, that mean), every five seconds
    memory_mb: list[float] = field(default_factory=list)  # private memory of the caller, every half second
    descriptors: list[int] = field(default_factory=list)  # open ones, as often; counted at the last update
    children: list[int] = field(default_factory=list)  # workers left after the end

    def _warm(self, samples: list[Any]) -> list[Any]:
        return samples[int(len(samples) * WARM_UP) :]

    @property
    def growth_mb(self) -> float:
        """Mean memory of the last tenth minus that of the first tenth, both after the warm-up."""
        warm = self._warm(self.memory_mb)
        part = max(1, len(warm) // 10)
        return sum(warm[-part:]) / part - sum(warm[:part]) / part

    @property
    def most_descriptors(self) -> tuple[int, int]:
        """Most open descriptors in the first and in the last third of the time after the warm-up."""
        warm = self._warm(self.descriptors)
        part = max(1, len(warm) // 3)
        return max(warm[:part]), max(warm[-part:])

    def summary(self) -> dict[str, Any]:
        series = ("memory_mb", "descriptors", "children", "curve")
        plain = {name: value for name, value in asdict(self).items() if name not in series}
        before, after = self.most_descriptors
        return {
            **plain,
            "final_memory_mb": round(self.memory_mb[-1], 1),
            "growth_mb": round(self.growth_mb, 2),
            "descriptors_before": before,
            "descriptors_after": after,
            "children_left": len(self.children),
        }


class Watch(Callback):
    """Kill workers in turn from a separate thread, and measure the caller."""

    def __init__(self, kill_every: float) -> None:
        self.figures = Figures()
        self._kill_every = kill_every
        self._process = psutil.Process()
        self._over = threading.Event()
        self._returns: list[float] = []
        self._noted = 0.0  # when the curve got its last point
        self._reading = threading.Lock()  # our threads open files of /proc, which must not be counted as open
        self._descriptors = self._process.num_fds()

    def __enter__(self) -> Watch:
        self._began = time.monotonic()
        tasks = (self._kill, self._measure) if self._kill_every else (self._measure,)
        self._threads = [threading.Thread(target=work, daemon=True) for work in tasks]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.figures.seconds = time.monotonic() - self._began
        self.figures.children = self._workers()

    def _workers(self) -> list[int]:
        found = {name: child.pid for child in self._process.children(recursive=True) if (name := _worker_name(child))}
        return [found[name] for name in sorted(found)]

    def _kill(self) -> None:
        while not self._over.wait(self._kill_every):
            if not self.figures.steps:  # a worker that dies while the fleet is built ends the run
                continue
            with self._reading:
                workers = self._workers()
            if workers:  # in turn, because restarts per worker within five minutes are limited
                os.kill(workers[self.figures.kills % len(workers)], signal.SIGKILL)
                self.figures.kills += 1

    def _measure(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            with self._reading:
                self.figures.memory_mb.append(self._process.memory_full_info().uss / 2**20)
            self.figures.descriptors.append(self._descriptors)

    def on_rollout(self, moment: Moment, rollout: Rollout) -> None:
        self.figures.lost_rows += rollout.rewards.size - rollout.steps

    def on_episode(self, moment: Moment, episode_return: float, length: int) -> None:
        if len(self._returns) < 100:
            self._returns.append(episode_return)

    def on_update(self, moment: Moment) -> None:
        figures = self.figures
        figures.steps, figures.last_return = moment.steps, moment.mean_return
        figures.restarts = max(figures.restarts, int(moment.metrics.get("fleet/restarts", 0)))
        with self._reading:
            self._descriptors = self._process.num_fds()  # counted while no restart is in progress
        if time.monotonic() - self._noted >= CURVE_SECONDS:
            self._noted = time.monotonic()
            figures.curve.append((moment.steps, moment.mean_return))

    def on_end(self, moment: Moment) -> None:
        self.figures.first_return = sum(self._returns) / max(1, len(self._returns))


def _worker_name(child: psutil.Process) -> str | None:
    try:
        name, alive = child.name(), child.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return name if alive and re.fullmatch(r"envfleet-\d+", name) else None


def soak(
    folder: Path,
    *,
    minutes: float,
    kill_every: float,
    raise_every: int,
    workers: int = 2,
    acting: str = "worker",
    schedule: str = "sync",
) -> Figures:
    """Train in `folder` for `minutes`, killing a worker every `kill_every` seconds."""
    settings = PPO(
        env=unsteady_cart_pole,
        env_kwargs={"raise_every": raise_every},
        n_envs=4 * max(4, workers),
        group_size=4,
        rollout_steps=64,
        duration=minutes / 60,
        seed=1,
        backend="processes",
        workers=workers,
        acting=acting,  # type: ignore[arg-type]  # checked by the settings
        schedule=schedule,  # type: ignore[arg-type]
        on_error="restart",
        eval_every=0,
        checkpoint_minutes=max(0.1, minutes / 20),
        output_dir=str(folder),
        quiet=True,
    )
    with Watch(kill_every) as watch:
        train(settings, callbacks=[watch])
    return watch.figures


def results_of(figures: Figures, options: dict[str, Any]) -> dict[str, Any]:
    """Return all figures as plain data, with the series thinned."""
    series = {name: getattr(figures, name)[::THINNED] for name in ("memory_mb", "descriptors")}
    return {**asdict(figures), **figures.summary(), **series, "thinned": THINNED, "options": options}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kill-every", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--raise-every", type=int, default=200_000, metavar="STEPS")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--acting", choices=["worker", "central"], default="worker")
    parser.add_argument("--schedule", choices=["sync", "overlap"], default="sync")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    given = parser.parse_args()
    options = {name: value for name, value in vars(given).items() if name != "json"}
    if not given.kill_every:
        options["raise_every"] = 0
    with tempfile.TemporaryDirectory() as folder:
        figures = soak(Path(folder) / "run", **options)
    for name, value in figures.summary().items():
        print(f"{name:20} {value:,.1f}" if isinstance(value, float) else f"{name:20} {value:,}")
    if given.json is not None:
        kept = json.loads(given.json.read_text()) if given.json.exists() else {}
        kept["soak" if given.kill_every else "undisturbed"] = results_of(figures, options)
        given.json.write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
