"""Render docs/benchmarks-async.md from docs/benchmarks/async.json: `python -m benchmarks.asynchrony.page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.asynchrony.speed import MILLISECONDS, N_ENVS, STEPS, WORKERS
from benchmarks.load import disturbance
from benchmarks.tables import ROOT, machine_line, render_main

RESULTS, PAGE = ROOT / "docs" / "benchmarks" / "async.json", ROOT / "docs" / "benchmarks-async.md"


def render_page(results: Mapping[str, Any]) -> str:
    """Return the page with all results."""
    busy = disturbance(results["load_before"])
    sections = [
        "# Benchmarks of the schedule `async`",
        "<!-- made by python -m benchmarks.asynchrony.page; do not edit -->",
        (
            "`python -m benchmarks.asynchrony --output docs/benchmarks/async.json` measures all of this. "
            f"{machine_line(dict(results))}{busy}"
        ),
    ]
    if "speed" in results:
        sections += ["## Speed", _speed_text(results["settings"]), "\n".join(_speed_table(results["speed"]))]
    if "learning" in results:
        sections += ["## Learning", LEARNING, "\n".join(_learning_table(results["learning"]))]
    return "\n\n".join(sections) + "\n"


def _speed_text(settings: Mapping[str, Any]) -> str:
    return (
        f"PPO with {N_ENVS} environments on {WORKERS} worker processes, in rollouts of {STEPS} steps. An environment "
        f"waits {MILLISECONDS:g} ms per step; those of the second worker wait several times as long. So the cores are "
        "mostly idle, and only the waiting of workers for each other counts. Each figure is the median of "
        f"{settings['rounds']} rounds of {settings['seconds']:g} s, with quartiles in brackets; gains are ratios "
        "within a round. If one worker is r times slower, `overlap` waits for it in every rollout, and at best `async` "
        "is (r + 1) / 2 times as fast."
    )


def _speed_table(cells: Mapping[str, Any]) -> list[str]:
    lines = [
        "| slower worker | `sync`, steps/s | `overlap` | `async` | `async` / `overlap` | wanted | mean lag |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for ratio, cell in cells.items():
        rates = [f"{cell['steps_per_second'][name]['median']:,.0f}" for name in ("sync", "overlap", "async")]
        gain, wanted = cell["async_over_overlap"], cell["wanted"]
        reached = "" if gain["median"] >= wanted else " (**not reached**)"
        shown = f"{gain['median']:.2f} ({gain['lower']:.2f} to {gain['upper']:.2f})"
        lines.append(
            f"| {ratio} × | {' | '.join(rates)} | {shown} | ≥ {wanted:g}{reached} | {cell['mean_lag']:.2f} updates |"
        )
    return lines


LEARNING = """\
Steps until the mean return of the last 100 training episodes reaches the score, with the preset of the environment on
two worker processes. A run that does not reach it counts with its budget, in *italics*. The ratio is that of the means
over the seeds."""


def _learning_table(tasks: Mapping[str, Any]) -> list[str]:
    lines = [
        "| task | score | `sync` | `async` | ratio | wanted | lag, mean (most) | dropped |",
        "| --- | ---: | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for task in tasks.values():
        steps = {
            schedule: ", ".join(
                f"*{task['budget']:,}*" if run["reached"] is None else f"{run['reached']:,}" for run in runs
            )
            for schedule, runs in task["runs"].items()
        }
        ours = task["runs"]["async"]
        lag = sum(run["lag_mean"] for run in ours) / len(ours)
        most, dropped = max(run["lag_max"] for run in ours), sum(run["dropped_steps"] for run in ours)
        reached = "" if task["ratio"] <= task["wanted"] else " (**not reached**)"
        lines.append(
            f"| {task['env']} | {task['score']:g} | {steps['sync']} | {steps['async']} | {task['ratio']:.2f} "
            f"| ≤ {task['wanted']:g}{reached} | {lag:.1f} ({most:g}) | {dropped:,.0f} |"
        )
    return lines


def pages(results: Mapping[str, Any]) -> dict[Path, str]:
    return {PAGE: render_page(results)}


def main(arguments: Sequence[str] | None = None) -> int:
    return render_main(arguments, "benchmarks.asynchrony.page", RESULTS, PAGE, pages)


if __name__ == "__main__":
    sys.exit(main())
