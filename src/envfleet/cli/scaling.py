"""`envfleet bench scaling`: speed of collecting, learning and training over workers and environments."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from envfleet.errors import SettingsError
from envfleet.machine import describe, usable_cores
from envfleet.wording import counted

if TYPE_CHECKING:
    from envfleet.algorithms.settings import TrainingSettings
    from envfleet.training.measuring import Speed

__all__ = ["scaling"]

DEFAULT_ENVS = (1, 4, 16, 64, 256)
SHARE_OF_STARTING = 0.4  # share of the time spent on starting; the rest is measured
WIDTH = 100  # of the tables at most, also in a pipe


def scaling(
    algorithm: str,
    env: str,
    env_kwargs: dict[str, Any],
    *,
    n_envs: Sequence[int],
    workers: Sequence[int],
    seconds: float,
    seed: int,
    output: Path,
) -> int:
    """Measure every number of environments with every number of workers; print, plot and save the result."""
    from envfleet.algorithms.settings import find_algorithm

    counts = sorted(set(workers or range(1, usable_cores() + 1)))
    trials = [(envs, count) for envs in sorted(set(n_envs)) for count in counts if count <= envs]
    if not trials:
        raise SettingsError(f"received {tuple(n_envs)} environments and {tuple(counts)} workers: each worker needs one")
    console = Console(highlight=False, width=max(WIDTH, shutil.get_terminal_size().columns))
    console.print(f"{algorithm} on {env}, {usable_cores()} usable cores: steps per second\n")
    points = _Points(len(trials), seconds)
    with console.status("starting") as status:
        for number, (envs, count) in enumerate(trials, start=1):
            status.update(f"{_counts(envs, count)} ({number} of {len(trials)})")
            settings = find_algorithm(algorithm)(
                env=env,
                env_kwargs=env_kwargs,
                n_envs=envs,
                workers=count,
                backend="sequential" if count == 1 else "processes",
                acting="worker" if count == 1 else "auto",
                seed=seed,
                eval_every=0,
                quiet=True,
            )
            points.measure(settings, envs, count)
    results = points.results
    for line in (*_report(results), *points.left_out):
        console.print(line, soft_wrap=isinstance(line, str))
    data = {
        "env": env,
        "algorithm": algorithm,
        "machine": describe(),
        "points": list(_points(results)),
        "left_out": points.left_out,
    }
    figures, picture = _files(output)
    _write(figures, json.dumps(data, indent=2) + "\n")
    _draw(results, picture, f"{algorithm} on {env}")
    console.print(f"\nfigures: {figures}\npicture: {picture}", soft_wrap=True)
    return 0


class _Points:
    """Measures one point after the other, and leaves out those that are no new point or take too long."""

    def __init__(self, count: int, seconds: float) -> None:
        self._to_come, self._seconds = count, seconds
        self._spent = 0.0  # on measuring, without starting
        self.results: list[Speed] = []
        self.left_out: list[str] = []

    def measure(self, settings: TrainingSettings, n_envs: int, workers: int) -> None:
        """Measure a point, or say why not."""
        from envfleet.training.measuring import assembled, measure_speed

        share = max(0.0, self._seconds * (1 - SHARE_OF_STARTING) - self._spent) / self._to_come
        self._to_come -= 1
        expected, left = self.least_seconds(n_envs), max(0.0, self._seconds - self._spent)
        if expected > left:
            why = (
                f"they would take about {expected:,.1f} s, and {left:,.1f} of {self._seconds:g} s are left (--seconds)"
            )
            self.left_out.append(f"left out: {_counts(n_envs, workers)}; {why}")
            return
        with assembled(settings) as parts:
            used = parts.fleet.workers
            if any((each.n_envs, each.workers) == (n_envs, used) for each in self.results):
                why = f"training uses {counted(used, 'worker')} for them"
                self.left_out.append(f"left out: {_counts(n_envs, workers)}; {why}")
                return
            began = time.perf_counter()
            self.results.append(measure_speed(parts, share))
            self._spent += time.perf_counter() - began

    def least_seconds(self, n_envs: int) -> float:
        """Shortest time of a point: as long as before, and growing with the environments as it did before that."""
        known = [*{each.n_envs: each.least_seconds for each in self.results}.items()]
        if not known:
            return 0.0
        many, longer = known[-1]
        few, shorter = known[-2] if len(known) > 1 else (0, longer)
        growth = max(0.0, longer - shorter) / (many - few)
        return longer + growth * (n_envs - many)


def _files(output: Path) -> tuple[Path, Path]:
    """The files for figures and picture. A dot may be part of the name: bench-1.5."""
    bare = output.with_suffix("") if output.suffix in (".json", ".png") else output
    return bare.with_name(f"{bare.name}.json"), bare.with_name(f"{bare.name}.png")


def _counts(n_envs: int, workers: int) -> str:
    return f"{counted(n_envs, 'environment')} on {counted(workers, 'worker')}"


def _points(results: Sequence[Speed]) -> Iterator[dict[str, Any]]:
    """Yield the figures, with the gain over the fewest workers for the same number of environments."""
    for result in results:
        least = _least_workers(results, result.n_envs)
        gains = {}
        for what in ("collecting", "learning", "training"):
            speedup = getattr(result, what) / getattr(least, what)
            gains[what] = {"speedup": speedup, "efficiency": speedup * least.workers / result.workers}
        yield {**result.to_json(), "gains": gains}


def _least_workers(results: Sequence[Speed], n_envs: int) -> Speed:
    return min((each for each in results if each.n_envs == n_envs), key=lambda each: each.workers)


def _report(results: Sequence[Speed]) -> Iterator[Table | str]:
    from envfleet.runs.metrics import SHARES

    phases = ("collecting", "learning", "training")
    speeds = _table(*(heading for phase in phases for heading in (phase, "speed-up")))
    times = _table(*SHARES)
    for point in _points(results):
        where, gains = (str(point["n_envs"]), str(point["workers"])), point["gains"]
        cells = ((f"{point[phase]:,.0f}", _gain(**gains[phase])) for phase in phases)
        speeds.add_row(*where, *(cell for pair in cells for cell in pair))
        times.add_row(*where, *(f"{point['shares'][name]:.0%}" for name in SHARES))
    yield speeds
    yield "\nwhere the time of training goes:\n"
    yield times
    best = max(results, key=lambda each: each.training)
    yield (
        f"\nfastest: {_counts(best.n_envs, best.workers)}, "
        f"{best.training:,.0f} steps/s. speed-up, and efficiency in percent: against the fewest workers with as many "
        "environments"
    )


def _gain(speedup: float, efficiency: float) -> str:
    return f"{speedup:.2f}× {efficiency:>4.0%}"


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("envs", "workers", *headings):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _draw(results: Sequence[Speed], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for axis, what in zip(figure.subplots(1, 3), ("collecting", "learning", "training"), strict=True):
        for count in sorted({each.workers for each in results}):
            own = [each for each in results if each.workers == count]
            label = counted(count, "worker")
            axis.plot([each.n_envs for each in own], [getattr(each, what) for each in own], marker="o", label=label)
        axis.set_title(what)
        axis.set_xscale("log", base=2)
        counts = sorted({each.n_envs for each in results})
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.set_xlabel("environments")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("steps per second")
    figure.axes[0].legend(frameon=False)
    figure.suptitle(title)
    from envfleet.runs.durable import writing

    with writing("the picture", path, "or give another place with --output"):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)


def _write(path: Path, text: str) -> None:
    from envfleet.runs.durable import writing

    with writing("the figures", path, "or give another place with --output"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
