"""Render docs/benchmarks-cluster.md from its results: `python -m benchmarks.cluster.page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cluster.driver import ENVS_PER_NODE, STEPS
from benchmarks.cluster.model import Constants, Load, first_limit, share_of_linear
from benchmarks.load import BUSY_CORES
from benchmarks.tables import ROOT, machine_line, render_main, table_line, targets_table
from benchmarks.wanted import at_least, at_most

RESULTS, PAGE = ROOT / "docs" / "benchmarks" / "cluster.json", ROOT / "docs" / "benchmarks-cluster.md"
Figures = Mapping[str, Any]

WANTED_SHARE = {"sync 4": 0.88, "overlap 4": 0.93}
WANTED_ERROR = 0.10
COUNTS = (4, 16, 64, 256, 1000)  # nodes of the table
HOST_ENVS, HOST_WORKERS, HOST_STEPS = 64, 16, 64
SPREAD = 0.1  # of the times of hosts' rollouts, assumed
# Assumed: milliseconds of a step, bytes of a row, of the weights, and the learner's steps per second.
ASSUMED = {
    "vectors, 0.15 ms a step": (0.15, 300, 100_000, 100_000),
    "vectors, 10 ms": (10.0, 300, 100_000, 100_000),
    "vectors, 1 s": (1000.0, 300, 100_000, 100_000),
    "pictures, 100 ms": (100.0, 28_300, 6_750_000, 20_000),
}


def render_page(results: Figures) -> str:
    """Return the page with all results."""
    sections = [
        "# Benchmarks of a cluster",
        "<!-- made by python -m benchmarks.cluster.page; do not edit -->",
        (
            "`python -m benchmarks.cluster --output docs/benchmarks/cluster.json` measures all of this. The nodes are "
            "namespaces of one machine: each has its own address, processes and shared memory, but they share the "
            f"cores. {machine_line(dict(results))}"
        ),
        *_busy(results),
    ]
    for name, render in {"scaling": _scaling, "rollouts": _rollouts, "model": _model, "soak": _soak}.items():
        if name in results:
            sections += render(results)
    sections += ["## Targets", "\n".join(targets_table(list(_targets(results))))]
    return "\n\n".join(sections) + "\n"


def _busy(results: Figures) -> Iterator[str]:
    busy = {name: load for name, load in results["load_of"].items() if load > BUSY_CORES}
    if busy:
        listed = ", ".join(f"{load:.1f} ({name})" for name, load in busy.items())
        yield f"Other work kept cores busy when these parts began: {listed}."


def _scaling(results: Figures) -> Iterator[str]:
    scaling, settings = results["scaling"], results["settings"]
    yield "## Scaling"
    yield (
        f"PPO with {ENVS_PER_NODE} environments on each node, one worker per node, in rollouts of {STEPS} steps. An "
        "environment waits 2 ms per step, because all nodes share the cores of one machine. The learner really learns. "
        f"Medians of {settings['rounds']} rounds of {settings['seconds']:g} s; shares are ratios within a round, with "
        "quartiles in brackets."
    )
    lines = [
        table_line("schedule", "1 node, steps/s", "2 nodes", "4 nodes", "share of linear, 2 nodes", "4 nodes"),
        table_line("---", *["---:"] * 5),
    ]
    for schedule in ("sync", "overlap"):
        rates = [f"{scaling['steps_per_second'][f'{schedule} {nodes}']['median']:,.0f}" for nodes in (1, 2, 4)]
        shares = [_spread(scaling["share"][f"{schedule} {nodes}"], 1.0, ".3f") for nodes in (2, 4)]
        lines.append(table_line(f"`{schedule}`", *rates, *shares))
    yield "\n".join(lines)


def _rollouts(results: Figures) -> Iterator[str]:
    yield "## Cost of a rollout"
    yield (
        "Two workers in `processes`, and on two other nodes of a cluster, on the same cores; environments do not wait, "
        f"and nothing is learned. A rollout has {2 * ENVS_PER_NODE} environments and {STEPS} steps. The size counts "
        "rows, and weights for both nodes. *Messages alone*: plain actors of Ray on the same nodes receive and return "
        "as many bytes, and do nothing else."
    )
    lines = [
        table_line("rollout", "MB moved", "`processes`, ms", "cluster, ms", "more, ms", "messages alone, ms"),
        table_line("---", *["---:"] * 5),
    ]
    for kind, cell in results["rollouts"].items():
        times = [_spread(cell[name], 1000.0, ".1f") for name in ("processes", "ray", "more", "messages")]
        lines.append(table_line(kind, f"{cell['megabytes']:.2f}", *times))
    yield "\n".join(lines)


def _model(results: Figures) -> Iterator[str]:
    model = results["model"]
    constants = Constants(**model["constants"])
    yield "## A model of cost"
    yield (
        "`benchmarks/cluster/model.py` adds up an update with N nodes: publishing weights, collecting, waiting for the "
        "slowest node, receiving rows, learning. Its constants are measured on one node, and the learner's cable "
        f"carries {constants.bandwidth / 1e6:.0f} MB/s: {1000 * constants.per_host:.2f} ms of the driver per node and "
        f"rollout, {1000 * constants.latency:.1f} ms latency; per MB of rows, a host packs "
        f"{1e9 * constants.packing:.2f} ms and the driver copies {1e9 * constants.copying:.2f} ms. The table compares "
        f"the model with more nodes (medians of {model['rounds']} rounds of {model['seconds']:g} s, in turn)."
    )
    lines = [
        table_line("rows", "nodes", "schedule", "update measured, ms", "model, ms", "error"),
        table_line("---", "---:", "---", *["---:"] * 3),
    ]
    for cell in model["checked"]:
        times = [f"{1000 * cell[name]:.0f}" for name in ("measured", "expected")]
        schedule = f"`{cell['schedule']}`"
        lines.append(table_line(cell["kind"], cell["nodes"], schedule, *times, f"{_error(cell):+.1%}"))
    yield "\n".join(lines)
    yield (
        f"Larger clusters, by the model: hosts of {HOST_WORKERS} workers and {HOST_ENVS} environments, rollouts of "
        f"{HOST_STEPS} steps, the constants above. Assumed: the sizes and speeds of the row, and that the times of "
        f"hosts differ by {SPREAD:.0%}. Each cell is the share of linear speed, `sync` / `overlap`."
    )
    head = ("", *(f"{nodes:,} nodes" for nodes in COUNTS), "first limit with `overlap` (share below 0.8)")
    lines = [table_line(*head), table_line("---", *["---:"] * len(COUNTS), "---")]
    for title, assumed in ASSUMED.items():
        load = load_of(*assumed)
        cells = [
            " / ".join(f"{share_of_linear(constants, load, nodes, each):.2f}" for each in ("sync", "overlap"))
            for nodes in COUNTS
        ]
        limit = first_limit(constants, load, "overlap")
        lines.append(table_line(title, *cells, "none" if limit is None else f"{limit[1]}, from {limit[0]} nodes on"))
    yield "\n".join(lines)


def load_of(milliseconds: float, row_bytes: int, weight_bytes: int, learned_per_second: float) -> Load:
    """Return the load of a host in the table of larger clusters."""
    steps = HOST_ENVS * HOST_STEPS
    return Load(
        collecting=steps / HOST_WORKERS * milliseconds / 1000.0,
        row_bytes=float(steps * row_bytes),
        weight_bytes=float(weight_bytes),
        learning=steps / learned_per_second,
        spread=SPREAD,
    )


def _soak(results: Figures) -> Iterator[str]:
    soak = results["soak"]
    yield "## Soak test"
    yield (
        f"PPO trains on CartPole (1 ms of waiting per step) on four nodes for {soak['minutes']:g} minutes. Every "
        f"{soak['kill_every']:g} s one node loses its power (SIGKILL of all its processes); it joins again 20 s later. "
        "Memory and descriptors are those of the driver; the first third of the run is warm-up and not counted."
    )
    rows = [
        ("steps", f"{soak['steps']:,}"),
        ("nodes killed", soak["kills"]),
        ("times that workers continued on another node", soak["moved"]),
        ("rows lost", f"{soak['lost_rows']:,}"),
        ("return of the first 100 episodes", f"{soak['first_return']:.0f}"),
        ("return of the last 100 episodes", f"{soak['last_return']:.0f}"),
        ("memory at the end, MB", f"{soak['final_memory_mb']:.0f}"),
        ("memory growth, MB", f"{soak['growth_mb']:.2f}"),
        ("most open descriptors, first third after warm-up", soak["descriptors_before"]),
        ("most open descriptors, last third", soak["descriptors_after"]),
    ]
    yield "\n".join([table_line("", ""), table_line("---", "---:"), *(table_line(*row) for row in rows)])


def _targets(results: Figures) -> Iterator[dict[str, Any]]:
    for name, wanted in WANTED_SHARE.items() if "scaling" in results else ():
        share = results["scaling"]["share"][name]["median"]
        schedule, nodes = name.split()
        yield at_least(f"share of linear with {nodes} nodes, `{schedule}`", share, wanted)
    if "rollouts" in results:
        small, large = results["rollouts"]["small"], results["rollouts"]["large"]
        alone = [1000 * cell["messages"]["median"] for cell in (small, large)]
        why = f"messages alone take {alone[0]:.1f} ms, and the workers need the same cores"
        yield at_most("a small rollout: ms more than `processes`", 1000 * small["more"]["median"], 4.0, why)
        per_megabyte = 1000 * large["more"]["median"] / large["megabytes"]
        why = f"messages alone take {alone[1] / large['megabytes']:.2f} ms per MB"
        yield at_most("a large rollout: ms more per MB", per_megabyte, 2.0, why)
    if "model" in results:
        checked = results["model"]["checked"]
        worst = max(checked, key=lambda cell: abs(_error(cell)))
        within = sum(abs(_error(cell)) <= WANTED_ERROR for cell in checked)
        why = (
            f"{within} of {len(checked)} cells are within; with {worst['kind']} on {worst['nodes']} nodes, all nodes "
            "pack and send rows on the same two cores, but the model gives each node its own"
        )
        yield at_most("largest error of the model", abs(_error(worst)), WANTED_ERROR, why)
    if "soak" in results:
        soak = results["soak"]
        yield at_most("rows lost per killed node", soak["lost_rows"] / max(1, soak["kills"]), ENVS_PER_NODE)
        why = "a few MB stay for each killed node; it is not known yet what holds them"
        yield at_most("memory growth in MB", soak["growth_mb"], 4.0, why)
        grown = soak["descriptors_after"] - soak["descriptors_before"]
        yield at_most("open descriptors, last minus first third", grown, 2)
        yield at_least("return of the last 100 episodes", soak["last_return"], 475)


def _error(cell: Figures) -> float:
    return float(cell["expected"] / cell["measured"] - 1.0)


def _spread(found: Figures, factor: float, form: str) -> str:
    middle, lower, upper = (f"{factor * found[name]:{form}}" for name in ("median", "lower", "upper"))
    return f"{middle} ({lower} to {upper})"


def pages(results: Figures) -> dict[Path, str]:
    return {PAGE: render_page(results)}


def main(arguments: Sequence[str] | None = None) -> int:
    return render_main(arguments, "benchmarks.cluster.page", RESULTS, PAGE, pages)


if __name__ == "__main__":
    sys.exit(main())
