"""Render docs/benchmarks-sac.md from docs/benchmarks/sac.json: `python -m benchmarks.sac.page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.interleave import quartiles
from benchmarks.load import disturbance
from benchmarks.ppo.page import TIMES, spread
from benchmarks.ppo.rounds import fastest, ratio
from benchmarks.sac.targets import PEERS, check_targets, cpu_per_step
from benchmarks.sac.workloads import Sizes, recurrent_sizes
from benchmarks.tables import ROOT, machine_line, render_main, rounded, table_line, targets_table

RESULTS, PAGE = ROOT / "docs" / "benchmarks" / "sac.json", ROOT / "docs" / "benchmarks-sac.md"

METHOD = """\
Every row is a separate process, warmed up. All rows of a table take turns of {seconds:g} s, {rounds} times, in rotating
order. The ratio of two rows is computed within each round. Figures are medians, with quartiles in brackets. CPU time is
that of the process and its children. Console, checkpoints and evaluations are not part of the loop."""

NOTES = {
    "halfcheetah": """\
MLPs of {hidden} learn from batches of {batch}, with one update per environment step. In `sync`, torch
shares Envfleet's products between two threads. The other libraries alternate `collect_rollouts` and `train` on a
`DummyVecEnv` without `Monitor`, with {n_envs} updates after a step of all {n_envs} environments. SBX compiles its
updates with JAX and uses JAX's own threads. *Arithmetic alone* makes the products, activations and Adam steps of one
update per step, on prepared tensors. It has no environment, replay buffer, loss or autograd: no update in PyTorch can
be faster.""",
    "recurrent": """\
Updates on {batch} whole trials of {length} steps, with the networks of pomdp-baselines for {task}: memories of {units}
units, heads of {hidden}. Drawing the batch counts. The other rows are an update written in the way of pomdp-baselines:
five passes forward through a memory and three back, where ours needs four and two for the same losses. *Arithmetic
alone* makes only our passes through memories and heads, on prepared tensors: the limit for an update with them.""",
    "balanced": """\
One worker and a learner with one thread, each on its own core. The environment computes {iterations} iterations per
step, a number found by trial before the rounds. With it, collecting takes {relation:.2f} times as long as learning in
`sync`.
""".rstrip(),
}


def render_page(results: Mapping[str, Any]) -> str:
    """Return the page with all results."""
    busy = disturbance(results["load_before"])
    versions = ", ".join(f"{name} {version}" for name, version in results["libraries"].items())
    sections = [
        "# Benchmarks of SAC",
        "<!-- made by python -m benchmarks.sac.page; do not edit -->",
        f"`make bench-sac` measures all of this. {machine_line(dict(results))}{busy} Compared with: {versions}.",
        METHOD.format(**results["settings"]),
    ]
    for name, table in results["tables"].items():
        sections += [f"## {table['title']}", _note(name, table), "\n".join(_table(name, table))]
        sections += [f"{row['title']}: absent ({row['absent']})." for row in table["rows"].values() if "absent" in row]
    if "sampling" in results:
        sections += ["## Drawing from the replay buffer", *_sampling(results["sampling"])]
    return "\n\n".join([*sections, "## Targets", "\n".join(targets_table(check_targets(results)))]) + "\n"


def _note(name: str, table: Mapping[str, Any]) -> str:
    if name == "balanced":
        return NOTES[name].format(iterations=table["iterations"], relation=table["collecting_over_learning"])
    if name == "halfcheetah":
        sizes = Sizes()
        return NOTES[name].format(hidden=_by(sizes.hidden), batch=sizes.minibatch_size, n_envs=sizes.n_envs)
    memory, _, length = name.partition("-")
    recurrent = recurrent_sizes(memory, int(length))
    task = "PointRobot" if int(length) <= 120 else "AntDir"
    return NOTES["recurrent"].format(
        batch=recurrent.batch, length=length, task=task, units=recurrent.units, hidden=_by(recurrent.hidden)
    )


def _by(hidden: Sequence[int]) -> str:
    return "×".join(map(str, hidden))


def _table(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    rows, unit = table["rows"], table["unit"]
    heading, found = _comparison(name, rows)
    times = TIMES if unit == "steps" else ()
    yield table_line("", f"{unit}/s", heading, f"CPU ms per {unit.removesuffix('s')}", *times)
    yield table_line("---", "---:", "---:", "---:", *["---:"] * len(times))
    for row_name, row in rows.items():
        title = f"**{row['title']}**" if row["ours"] else row["title"]
        if "absent" in row:
            yield table_line(title, "absent", *["–"] * (2 + len(times)))
            continue
        speed, time = row["steps_per_second"], row.get("time")
        digits = rounded if speed["median"] >= 100 else "{:.2f}".format
        figures = f"{digits(speed['median'])} ({digits(speed['lower'])}–{digits(speed['upper'])})"
        used = f"{1000 * quartiles(cpu_per_step(row).values())['median']:.2f}"
        shares = ["" if time is None else f"{100 * time[part]:.0f} %" for part in times]
        yield table_line(title, figures, spread(found.get(row_name)), used, *shares)


def _comparison(name: str, rows: Mapping[str, Any]) -> tuple[str, dict[str, dict[str, float] | None]]:
    if name == "balanced":
        return "relative to `sync`", {"overlap": ratio(rows, "overlap", "sync")}
    peer = fastest(rows, PEERS)
    heading = "relative to the faster SB3 row" if name == "halfcheetah" else "relative to the faster other row"
    others = [row for row in rows if not row.startswith(PEERS)]
    return heading, {} if peer is None else {row: ratio(rows, row, peer) for row in others}


def _sampling(sampling: Mapping[str, Any]) -> list[str]:
    lines = [
        table_line("", "µs per batch", "µs of a plain gather", "share of its speed"),
        table_line("---", "---:", "---:", "---:"),
    ]
    for row in sampling["rows"]:
        ours, plain = (1e6 * row["seconds"][name]["median"] for name in ("replay", "gather"))
        lines.append(table_line(row["title"], rounded(ours), rounded(plain), spread(row["share_of_gather"])))
    note = (
        f"The replay buffer is full: {sampling['steps']:,} steps. {sampling['batches']} batches are drawn at once. A "
        "plain gather copies as many bytes from the same memory."
    )
    return [note, "\n".join(lines)]


def pages(results: Mapping[str, Any]) -> dict[Path, str]:
    """Return all pages made from the results."""
    return {PAGE: render_page(results)}


def main(arguments: Sequence[str] | None = None) -> int:
    return render_main(arguments, "benchmarks.sac.page", RESULTS, PAGE, pages)


if __name__ == "__main__":
    sys.exit(main())
