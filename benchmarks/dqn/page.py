"""Renders docs/benchmarks-dqn.md from docs/benchmarks/dqn.json: `python -m benchmarks.dqn.page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.dqn.targets import check_targets
from benchmarks.dqn.workloads import Sizes
from benchmarks.fleet import BUSY_LOAD
from benchmarks.ppo.page import TIMES, spread
from benchmarks.ppo.rounds import ratio
from benchmarks.ppo.targets import times_peer
from benchmarks.tables import ROOT, machine_line, render_main, rounded, table_line, targets_table

RESULTS, PAGE = ROOT / "docs" / "benchmarks" / "dqn.json", ROOT / "docs" / "benchmarks-dqn.md"

METHOD = """\
Every row is a process of its own, warmed up. All rows of a table take turns, {seconds:g} s each, {rounds} times, in
another order each time. A ratio of two rows is taken within each round; figures are medians, quartiles in brackets.
Neither console nor checkpoints nor evaluations are part of the loop.

An MLP of {hidden} learns from batches of {batch}, one update for every {n_envs} steps. Envfleet collects 16 steps of
all {n_envs} environments, then makes 16 updates. Stable-Baselines3 runs `collect_rollouts` and `train` in turn on a
`DummyVecEnv`, without `Monitor`, with as many threads as torch chooses and with one."""

NOTES = {
    "cartpole": """\
Double and dueling networks and returns of several steps, which Stable-Baselines3 has not, are off in the first two
rows.""",
    "million": "Everything that is on by default, and a full replay: {n_envs} environments of CartPole-v1.",
    "balanced": """\
One worker and a learner with one thread, each on one core. A step of the environment computes so long ({iterations}
iterations) that collecting takes {relation:.2f} times as long as learning in `sync`, found by trials before the rounds.
""".rstrip(),
}


def render_page(results: Mapping[str, Any]) -> str:
    """The page with everything that was measured."""
    sizes = Sizes()
    load = results["load_before"]
    busy = f" Other work kept {load:.1f} cores busy when it began." if load > BUSY_LOAD else ""
    hidden = "×".join(map(str, sizes.hidden))
    sections = [
        "# DQN's speed",
        "<!-- made by python -m benchmarks.dqn.page; do not edit -->",
        f"By `python -m benchmarks.dqn --output docs/benchmarks/dqn.json`. {machine_line(dict(results))}{busy}",
        METHOD.format(hidden=hidden, batch=sizes.minibatch_size, n_envs=sizes.n_envs, **results["settings"]),
    ]
    for name, table in results["tables"].items():
        notes = {"iterations": table.get("iterations"), "relation": table.get("collecting_over_learning")}
        sections += [f"## {table['title']}", NOTES[name].format(n_envs=sizes.n_envs, **notes)]
        sections += ["\n".join(_table(name, table["rows"]))]
        sections += [f"{row['title']}: absent ({row['absent']})." for row in table["rows"].values() if "absent" in row]
    if "sampling" in results:
        sections += ["## Images", _sampling(results["sampling"])]
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
        return "times the better of theirs", {row: times_peer(rows, row) for row in ours}
    if name == "million":
        return "of an even draw's speed", {"prioritised": ratio(rows, "prioritised", "uniform")}
    return "times `sync`", {"overlap": ratio(rows, "overlap", "sync")}


def _sampling(sampling: Mapping[str, Any]) -> str:
    seconds, size = sampling["seconds"], sampling["batch_bytes"]
    speeds = {name: size / figures["median"] / 2**30 for name, figures in seconds.items()}
    return (
        f"A full replay of {sampling['steps']:,} steps with stacks of four frames of 84×84, each frame stored once "
        f"({sampling['memory_bytes'] / 2**30:.1f} GiB): a batch of {sampling['batch']} transitions, which are "
        f"{size / 2**20:.1f} MiB, is drawn in {1000 * seconds['replay']['median']:.2f} ms "
        f"({speeds['replay']:.1f} GiB/s). A plain gather of as many bytes from the same memory, "
        f"a stack's worth from each random place, takes "
        f"{1000 * seconds['gather']['median']:.2f} ms ({speeds['gather']:.1f} GiB/s): "
        f"{spread(sampling['share_of_gather'])} of its speed."
    )


def _saving(saving: Mapping[str, Any]) -> str:
    return (
        f"With a replay of {saving['steps']:,} steps of CartPole-v1 and their priorities, the first checkpoint takes "
        f"{saving['first_seconds']:.1f} s; one after {saving['new_steps']:,} steps more writes those alone, in "
        f"{median(saving['seconds']):.2f} s."
    )


def pages(results: Mapping[str, Any]) -> dict[Path, str]:
    """All that is written from the results."""
    return {PAGE: render_page(results)}


def main(arguments: Sequence[str] | None = None) -> int:
    return render_main(arguments, "benchmarks.dqn.page", RESULTS, PAGE, pages)


if __name__ == "__main__":
    sys.exit(main())
