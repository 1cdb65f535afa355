"""`envfleet bench scaling`: speed of collecting, learning and training over workers and environments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from envfleet.errors import SettingsError
from envfleet.machine import describe, usable_cores
from envfleet.wording import counted

if TYPE_CHECKING:
    from envfleet.training.measuring import Speed

__all__ = ["scaling"]

DEFAULT_ENVS = (1, 4, 16, 64, 256)
SHARE_OF_STARTING = 0.4  # share of the time spent on starting; the rest is measured


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
    from envfleet.training.measuring import measure_speed

    counts = sorted(set(workers or range(1, usable_cores() + 1)))
    trials = [(envs, count) for envs in sorted(set(n_envs)) for count in counts if count <= envs]
    if not trials:
        raise SettingsError(f"received {tuple(n_envs)} environments and {tuple(counts)} workers: each worker needs one")
    console = Console(highlight=False)
    console.print(f"{algorithm} on {env}, {usable_cores()} usable cores: steps per second\n")
    results = []
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
            results.append(measure_speed(settings, seconds * (1 - SHARE_OF_STARTING) / len(trials)))
    for line in _report(results):
        console.print(line, soft_wrap=isinstance(line, str))
    data = {"env": env, "algorithm": algorithm, "machine": describe(), "points": list(_points(results))}
    figures, picture = _files(output)
    _write(figures, json.dumps(data, indent=2) + "\n")
    _draw(results, picture, f"{algorithm} on {env}")
    console.print(f"\nfigures: {figures}\npicture: {picture}", soft_wrap=True)
    return 0


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

    speeds = _table("collecting", "speed-up", "learning", "training", "speed-up", "efficiency")
    times = _table(*SHARES)
    for point in _points(results):
        where, gains = (str(point["n_envs"]), str(point["workers"])), point["gains"]
        speeds.add_row(
            *where,
            f"{point['collecting']:,.0f}",
            f"{gains['collecting']['speedup']:.2f}×",
            f"{point['learning']:,.0f}",
            f"{point['training']:,.0f}",
            f"{gains['training']['speedup']:.2f}×",
            f"{gains['training']['efficiency']:.0%}",
        )
        times.add_row(*where, *(f"{point['shares'][name]:.0%}" for name in SHARES))
    yield speeds
    yield "\nwhere the time of training goes:\n"
    yield times
    best = max(results, key=lambda each: each.training)
    yield (
        f"\nfastest: {_counts(best.n_envs, best.workers)}, "
        f"{best.training:,.0f} steps/s. speed-up and efficiency: against the fewest workers with as many environments"
    )


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
