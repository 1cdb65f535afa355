"""Render docs/benchmarks-dqn.md from docs/benchmarks/dqn.json: `python -m benchmarks.dqn.page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.dqn.targets import check_targets
from benchmarks.dqn.workloads import Sizes
from benchmarks.load import disturbance
from benchmarks.ppo.page import TIMES, spread
from benchmarks.ppo.rounds import ratio
from benchmarks.ppo.targets import times_peer
from benchmarks.tables import ROOT, machine_line, render_main, rounded, table_line, targets_table

RESULTS, PAGE = ROOT / "docs" / "benchmarks" / "dqn.json", ROOT / "docs" / "benchmarks-dqn.md"

METHOD = """\
Every row is a separate process, warmed up. All rows of a table take turns of {seconds:g} s, {rounds} times, in rotating
order. The ratio of two rows is computed within each round. Figures are medians, with quartiles in brackets. Console,
checkpoints and evaluations are not part of the loop.

An MLP of {hidden} learns from batches of {batch}, with one update per {n_envs} steps. Envfleet collects 16 steps of all
{n_envs} environments, then makes 16 updates. Stable-Baselines3 alternates `collect_rollouts` and `train` on a
`DummyVecEnv` without `Monitor`. It is measured with torch's choice of threads and with one thread."""

NOTES = {
    "cartpole": """\
The first two rows switch off what Stable-Baselines3 does not have: double and dueling networks and n-step returns.""",
    "million": "Default settings and a full replay buffer, with {n_envs} environments of CartPole-v1.",
    "balanced": """\
One worker and a learner with one thread, each on its own core. The environment computes {iterations} iterations per
step, a number found by trial before the rounds. With it, collecting takes {relation:.2f} times as long as learning in
`sync`.
""".rstrip(),
}


def render_page(results: Mapping[str, Any]) -> str:
    """Return the page with all results."""
    sizes = Sizes()
    busy = disturbance(results["load_before"])
    hidden = "×".join(map(str, sizes.hidden))
    sections = [
        "# Benchmarks of DQN",
        "<!-- made by python -m benchmarks.dqn.page; do not edit -->",
        (
            "`python -m benchmarks.dqn --output docs/benchmarks/dqn.json` measures all of this. "
            f"{machine_line(dict(results))}{busy}"
        ),
        METHOD.format(hidden=hidden, batch=sizes.minibatch_size, n_envs=sizes.n_envs, **results["settings"]),
    ]
    for name, table in results["tables"].items():
        notes = {"iterations": table.get("iterations"), "relation": table.get("collecting_over_learning")}
        sections += [f"## {table['title']}", NOTES[name].format(n_envs=sizes.n_envs, **notes)]
        sections += ["\n".join(_table(name, table["rows"]))]
        sections += [f"{row['title']}: absent ({row['absent']})." for row in table["rows"].values() if "absent" in row]
    if "sampling" in results:
        sections += ["## Sampling images", _sampling(results["sampling"])]
    if "saving" in results:
        sections += ["## Checkpoints", _saving(results["saving"])]
    return "\n\n".join([*sections, "## Targets", "\n".join(targets_table(check_targets(results)))]) + "\n"


def _table(name: str, rows: Mapping[str, Any]) -> Iterator[str]:
    heading, found = _comparison(name, rows)
    yield table_line("", "steps/s", heading, *TIMES)
    yield table_line("---", "---:", "---:", *["---:"] * len(TIMES))
    for row_name, row in rows.items():
        title = f"**{row['title']}**" if row["ours"] else row["title"]
        if "absent" in row:
            yield table_line(title, "absent", *["–"] * (1 + len(TIMES)))
            continue
        speed, time = row["steps_per_second"], row.get("time")
        figures = f"{rounded(speed['median'])} ({rounded(speed['lower'])}–{rounded(speed['upper'])})"
        shares = ["" if time is None else f"{100 * time[part]:.0f} %" for part in TIMES]
        yield table_line(title, figures, spread(found.get(row_name)), *shares)


def _comparison(name: str, rows: Mapping[str, Any]) -> tuple[str, dict[str, dict[str, float] | None]]:
    if name == "cartpole":
        ours = [row for row in rows if rows[row]["ours"]]
        return "relative to the faster SB3 row", {row: times_peer(rows, row) for row in ours}
    if name == "million":
        return "relative to uniform sampling", {"prioritised": ratio(rows, "prioritised", "uniform")}
    return "relative to `sync`", {"overlap": ratio(rows, "overlap", "sync")}


def _sampling(sampling: Mapping[str, Any]) -> str:
    seconds, size = sampling["seconds"], sampling["batch_bytes"]
    speeds = {name: size / figures["median"] / 2**30 for name, figures in seconds.items()}
    return (
        f"The replay buffer is full: {sampling['steps']:,} steps with stacks of four 84×84 frames, each frame stored "
        f"once ({sampling['memory_bytes'] / 2**30:.1f} GiB). Sampling a batch of {sampling['batch']} transitions "
        f"({size / 2**20:.1f} MiB) takes {1000 * seconds['replay']['median']:.2f} ms "
        f"({speeds['replay']:.1f} GiB/s). A plain gather of as many bytes from the same memory, "
        f"one stack from each random position, takes "
        f"{1000 * seconds['gather']['median']:.2f} ms ({speeds['gather']:.1f} GiB/s). "
        f"Sampling reaches {spread(sampling['share_of_gather'])} of that speed."
    )


def _saving(saving: Mapping[str, Any]) -> str:
    return (
        f"With a replay buffer of {saving['steps']:,} steps of CartPole-v1 and their priorities, the first checkpoint "
        f"takes {saving['first_seconds']:.1f} s. The next one, {saving['new_steps']:,} steps later, writes only the "
        f"new steps and takes {median(saving['seconds']):.2f} s."
    )


def pages(results: Mapping[str, Any]) -> dict[Path, str]:
    """Return all pages made from the results."""
    return {PAGE: render_page(results)}


def main(arguments: Sequence[str] | None = None) -> int:
    return render_main(arguments, "benchmarks.dqn.page", RESULTS, PAGE, pages)


if __name__ == "__main__":
    sys.exit(main())
