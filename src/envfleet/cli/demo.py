"""`envfleet demo`: show in a few seconds how fast a fleet steps, and that it survives a killed worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import psutil
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

import envfleet
from envfleet.errors import SettingsError
from envfleet.fleet.fleet import Fleet
from envfleet.fleet.timing import Timing, timed
from envfleet.seeding import checked_seed
from envfleet.wording import counted

__all__ = ["Demo"]

ROUNDS = 3  # the two fleets take turns, so that load from other programs affects both
SHARE_AFTER_THE_KILL = 0.25  # share of the time
SECONDS_PER_REFRESH = 0.2


@dataclass(frozen=True)
class Demo:
    """Step environments with random actions on one core, then on all cores, then with one worker killed.

    Shows how fast the environments step, and that the fleet continues after a fault. Nothing is learned.
    """

    env: str = "CartPole-v1"
    """Gymnasium id of the environment."""
    n_envs: int = 64
    """Number of environments."""
    seconds: float = 6.0
    """Total time to step, without starting the workers."""
    seed: int = 1
    """Environment i is seeded with seed + i."""
    backend: Literal["auto", "sequential", "threads", "processes"] = "auto"
    """Where the environments run. The speed is compared with the sequential backend."""

    def run(self) -> int:
        """Run the demo; return exit code 0."""
        if not self.seconds > 0:
            raise SettingsError(f"seconds is {self.seconds!r}, expected a number above 0")
        checked_seed(self.seed)
        console = Console(highlight=False)
        console.print(f"{self.n_envs} × {self.env}, seed {self.seed}: random actions, nothing is learned\n")
        with (
            closing(envfleet.make(self.env, self.n_envs, backend="sequential", seed=self.seed, quiet=True)) as loop,
            closing(envfleet.make(self.env, self.n_envs, backend=self.backend, seed=self.seed)) as fleet,
        ):
            for each in (loop, fleet):
                each.action_space.seed(self.seed)
                each.reset()
            turns = self._take_turns(console, loop, fleet)
            _show_speed(console, *turns)
            _show_workers(console, turns[1])
            if fleet.backend == "processes":
                self._kill_a_worker(console, fleet)
        console.print(
            "\nnext:\n"
            "  envfleet train   train an agent, e.g. envfleet train ppo --env CartPole-v1\n"
            "  envfleet doctor  inspect this machine, with advice\n"
            "  envfleet check   check whether your own environment is fit for a fleet"
        )
        return 0

    def _take_turns(self, console: Console, loop: Fleet, fleet: Fleet) -> tuple[_Turns, _Turns]:
        seconds = self.seconds * (1 - SHARE_AFTER_THE_KILL) / (2 * ROUNDS)
        both = _Turns(loop), _Turns(fleet)
        with _watched(console, 2 * ROUNDS * seconds) as show:
            for _ in range(ROUNDS):
                for turns in both:
                    turns.step_for(seconds, show)
        return both

    def _kill_a_worker(self, console: Console, fleet: Fleet) -> None:
        """Kill a worker and show that the fleet recovers."""
        victim = fleet.statistics().workers[0]
        console.print(f"\nkilling worker {victim.index} (process {victim.pid}) in the middle of the run ...")
        psutil.Process(victim.pid).kill()
        turns = _Turns(fleet)
        turns.step_for(self.seconds * SHARE_AFTER_THE_KILL, _show_nothing)
        replacement = turns.statistics.workers[0]
        console.print(
            f"the fleet continued: process {replacement.pid} took over {counted(turns.restarted, 'environment')};\n"
            f"cut and marked truncated: {counted(turns.cut, 'episode')}; "
            f"unaffected: {counted(fleet.num_envs - turns.restarted, 'environment')}\n"
            f"({turns.steps:,} steps at {turns.steps_per_second:,.0f} steps/s, restart included)"
        )


class _Turns:
    """Results of a fleet over its turns with random actions."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.label = "sequential, one core"
        if fleet.backend != "sequential":
            self.label = f"{fleet.backend}, {counted(fleet.workers, 'worker')}"
        self.steps = 0
        self.restarted = 0  # environments restarted after a fault
        self.cut = 0  # episodes cut by a fault
        self.speeds: list[float] = []  # steps/s of each turn
        self.statistics = fleet.statistics()

    @property
    def steps_per_second(self) -> float:
        """Median over the turns, so that one disturbed turn does not matter."""
        return float(np.median(self.speeds))

    def step_for(self, seconds: float, show: _Show) -> None:
        """Step the fleet for `seconds`."""
        self.fleet.statistics()  # resets the busy shares, so that they cover this turn only
        turn = Timing()
        while turn.seconds < seconds:
            part = timed(self._step, min(SECONDS_PER_REFRESH, seconds - turn.seconds))
            turn += part
            show(self.label, part.seconds, turn.steps_per_second, finished=turn.seconds >= seconds)
        self.steps += turn.steps
        self.speeds.append(turn.steps_per_second)
        self.statistics = self.fleet.statistics()

    def _step(self) -> int:
        _, _, _, truncated, infos = self.fleet.step(self.fleet.action_space.sample())
        if "restarted" in infos:
            self.restarted += int(infos["restarted"].sum())
            self.cut += int((infos["restarted"] & truncated).sum())
        return self.fleet.num_envs


class _Show(Protocol):
    """Report progress of a turn: seconds since the last report, and the speed of the turn so far."""

    def __call__(self, label: str, seconds: float, steps_per_second: float, *, finished: bool) -> None: ...


def _show_nothing(label: str, seconds: float, steps_per_second: float, *, finished: bool) -> None:
    """For a turn that is reported afterwards."""


@contextmanager
def _watched(console: Console, seconds: float) -> Iterator[_Show]:
    """Show a progress bar in a terminal, or print one line per turn in a pipe."""
    if not console.is_terminal:

        def say(label: str, seconds: float, steps_per_second: float, *, finished: bool) -> None:  # noqa: ARG001
            if finished:
                console.print(f"  {label:<24} {steps_per_second:>12,.0f} steps/s")

        yield say
        return
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[speed]}"),
    )
    # No refresh thread, which would take a core from the workers: the loop refreshes the bar.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=seconds, speed="")

        def draw(label: str, seconds: float, steps_per_second: float, *, finished: bool) -> None:  # noqa: ARG001
            bar.update(task, description=label, advance=seconds, speed=f"{steps_per_second:>12,.0f} steps/s")
            bar.refresh()

        yield draw


def _show_speed(console: Console, loop: _Turns, fleet: _Turns) -> None:
    table = _table("", "steps/s", "speed-up", "steps", "episodes", "mean return")
    for turns in (loop, fleet):
        returns = turns.statistics.returns
        table.add_row(
            turns.label,
            f"{turns.steps_per_second:,.0f}",
            f"{turns.steps_per_second / loop.steps_per_second:.2f}×",
            f"{turns.steps:,}",
            f"{turns.statistics.episodes:,}",
            f"{np.mean(returns):.1f}" if returns else "-",
        )
    console.print()
    console.print(table)
    console.print(f"steps/s: the median of {ROUNDS} turns; mean return: the last 100 episodes", style="dim")


def _show_workers(console: Console, fleet: _Turns) -> None:
    table = _table("worker", "process", "busy", "memory", "restarts")
    for worker in fleet.statistics.workers:
        table.add_row(
            str(worker.index),
            str(worker.pid),
            f"{worker.busy_share:.0%}",
            f"{worker.memory_mb:,.0f} MB",
            str(worker.restarts),
        )
    console.print()
    console.print(table)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table
