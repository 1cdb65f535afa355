"""`envfleet bench`: measure how fast this machine collects and learns, and recommend settings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

import envfleet
from envfleet.errors import SettingsError
from envfleet.fleet.random_actions import RandomBatch
from envfleet.fleet.timing import timed
from envfleet.machine import usable_cores
from envfleet.seeding import checked_seed
from envfleet.wording import counted

if TYPE_CHECKING:
    from envfleet.fleet.fleet import Fleet

__all__ = ["Bench"]

BACKENDS = ("sequential", "threads", "processes")
DEMO_ENVS = (1, 2, 4, 8, 16)
ENOUGH = 0.95  # share of the best speed at which fewer environments are preferred
SHARE_OF_STARTING = 0.4  # share of the time spent on starting fleets; the rest is measured


@dataclass(frozen=True)
class Measured:
    """Speed of a fleet that takes random allowed actions."""

    backend: str
    n_envs: int
    workers: int
    experiences_per_second: float

    @property
    def seconds_per_step(self) -> float:
        """Seconds for one step of all environments."""
        return self.n_envs / self.experiences_per_second


@dataclass(frozen=True)
class Bench:
    """Measure how fast this machine steps environments and trains.

    `demo` compares the backends with random actions and recommends settings. `scaling` measures how much more workers
    and more environments speed up collecting, learning and training.

    examples:
      envfleet bench demo
      envfleet bench demo --env CartPole-v1 --n-envs 8 64 512 --seconds 30
      envfleet bench scaling --env CartPole-v1
      envfleet bench scaling --env CartPole-v1 --algorithm dqn --n-envs 8 64 --workers 1 2 4
    """

    what: Annotated[Literal["demo", "scaling"], tyro.conf.Positional, tyro.conf.arg(metavar="demo|scaling")]
    """demo: random actions on each backend. scaling: collecting, learning and both, for each number of workers."""

    env: str = "envfleet/Wildfire-v0"
    """Gymnasium id of the environment, or module:callable."""

    algorithm: str = "ppo"
    """scaling: the algorithm to train."""

    workers: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...", help_behavior_hint="")] = ()
    """scaling: the numbers of workers to try; by default 1 up to the number of usable cores."""

    output: str = "bench-scaling"
    """scaling: where to write the figures (.json) and the plot (.png), without the suffix."""

    env_kwargs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...", help_behavior_hint="")] = ()
    """Keyword arguments for the environment, e.g. grid_size=50."""

    n_envs: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...", help_behavior_hint="")] = ()
    """The numbers of environments to try; by default 1 to 16 for demo, 1 to 256 for scaling."""

    seconds: float = 60.0
    """Total time to spend, approximately."""

    picture: str = "bench-demo.png"
    """demo: where to save the plot."""

    seed: int = 1
    """Environment i is seeded with seed + i."""

    def run(self) -> int:
        """Print the table and the recommendation, and save the plot."""
        if not self.seconds > 0 or min((*self.n_envs, *self.workers), default=1) < 1:
            raise SettingsError(
                f"seconds is {self.seconds}, n_envs is {self.n_envs} and workers is {self.workers}, expected numbers "
                "above 0"
            )
        checked_seed(self.seed)
        if self.what == "scaling":
            return self._scaling()
        console = Console(highlight=False)
        console.print(f"{self.env} on {usable_cores()} usable cores: random actions, nothing is learned\n")
        results = self._measured(console)
        console.print(_table(results))
        best = recommended(results)
        console.print(
            f"\nrecommended here: --n-envs {best.n_envs} --backend {best.backend}"
            + ("" if best.backend == "sequential" else f" --workers {best.workers}")
            + f"\n  e.g. envfleet train ppo --env {self.env} --n-envs {best.n_envs} --backend {best.backend}"
        )
        draw(results, Path(self.picture), self.env)
        console.print(f"picture: {self.picture}")
        return 0

    def _scaling(self) -> int:
        from envfleet.cli.scaling import DEFAULT_ENVS, scaling
        from envfleet.training.environment import keyword_arguments

        return scaling(
            self.algorithm,
            self.env,
            keyword_arguments(self.env_kwargs),
            n_envs=self.n_envs or DEFAULT_ENVS,
            workers=self.workers,
            seconds=self.seconds,
            seed=self.seed,
            output=Path(self.output),
        )

    def _measured(self, console: Console) -> list[Measured]:
        from envfleet.training.environment import keyword_arguments, named_environment

        env, kwargs = named_environment(self.env), keyword_arguments(self.env_kwargs)
        trials = [(backend, count) for backend in BACKENDS for count in sorted(set(self.n_envs or DEMO_ENVS))]
        seconds = self.seconds * (1 - SHARE_OF_STARTING) / len(trials)
        results = []
        with console.status("starting") as status:
            for backend, count in trials:
                status.update(f"{backend}, {counted(count, 'environment')}")
                with closing(
                    envfleet.make(env, count, backend=backend, seed=self.seed, env_kwargs=kwargs, quiet=True)
                ) as fleet:
                    speed = experiences_per_second(fleet, seconds, self.seed)
                    results.append(Measured(backend, count, fleet.workers, speed))
        return results


def experiences_per_second(fleet: Fleet, seconds: float, seed: int) -> float:
    """Return steps per second with random allowed actions, measured for `seconds` after a short warm-up."""
    act = RandomBatch(fleet, seed)
    act.see(fleet.reset()[1])

    def advance() -> int:
        act.see(fleet.step(act(None))[-1])
        return fleet.num_envs

    for _ in range(2):
        advance()
    return timed(advance, seconds).steps_per_second


def recommended(results: Sequence[Measured]) -> Measured:
    """Return the fastest result, or one with fewer environments that is nearly as fast."""
    best = max(result.experiences_per_second for result in results)
    enough = [result for result in results if result.experiences_per_second >= ENOUGH * best]
    return min(enough, key=lambda result: (result.n_envs, -result.experiences_per_second))


def _table(results: Sequence[Measured]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("backend")
    for heading in ("environments", "workers", "experiences/s", "seconds per step", "× sequential"):
        table.add_column(heading, justify="right")
    alone = {result.n_envs: result.experiences_per_second for result in results if result.backend == "sequential"}
    for result in results:
        table.add_row(
            result.backend,
            str(result.n_envs),
            str(result.workers),
            f"{result.experiences_per_second:,.0f}",
            f"{result.seconds_per_step:.5f}",
            f"{result.experiences_per_second / alone[result.n_envs]:.2f}",
        )
    return table


def draw(results: Sequence[Measured], path: Path, env: str) -> None:
    """Plot experiences per second and seconds per step over the number of environments, one line per backend."""
    from matplotlib.figure import Figure

    from envfleet.runs.durable import writing

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    speed, time_of_step = figure.subplots(1, 2)
    for backend in dict.fromkeys(result.backend for result in results):
        own = [result for result in results if result.backend == backend]
        counts = [result.n_envs for result in own]
        speed.plot(counts, [result.experiences_per_second for result in own], marker="o", label=backend)
        time_of_step.plot(counts, [1e3 * result.seconds_per_step for result in own], marker="o", label=backend)
    for axis, title in ((speed, "experiences per second"), (time_of_step, "milliseconds per step of all environments")):
        axis.set_title(title)
        axis.set_xlabel("environments")
        axis.set_xticks(sorted({result.n_envs for result in results}))
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    speed.legend(frameon=False)
    figure.suptitle(f"{env}, random actions")
    with writing("the picture", path, "or give another place with --picture"):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
