"""Render docs/benchmarks-ppo.md and a table in README.md from docs/benchmarks/ppo.json.

`python -m benchmarks.ppo.page` writes both; `--check` writes nothing and fails if one is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.load import disturbance
from benchmarks.ppo.environments import IMAGE_ITERATIONS
from benchmarks.ppo.rounds import ratio
from benchmarks.ppo.targets import (
    ARITHMETIC,
    PEERS,
    check_targets,
    fastest,
    share_of_limit,
    share_of_speedup,
    time_to_goal,
    times_peer,
)
from benchmarks.ppo.workloads import IMAGES_ENV, MEMORY_UNITS, PIECE_STEPS
from benchmarks.tables import ROOT, machine_line, render_main, rounded, table_line, targets_table, with_block

RESULTS, PAGE = ROOT / "docs" / "benchmarks" / "ppo.json", ROOT / "docs" / "benchmarks-ppo.md"
README, START, END = ROOT / "README.md", "<!-- ppo-benchmark:start -->", "<!-- ppo-benchmark:end -->"
TIMES = ("environment", "acting", "learning", "waiting", "rest")

METHOD = """\
Every row is a separate process (with its workers), built once and warmed up with two updates. In its turn it runs one
cycle that is not counted, then whole cycles of collecting and learning for {seconds:g} s, at least one. All rows of a
workload are measured in turn, {rounds} times, in rotating order. The ratio of two rows is computed within each round.
Figures are medians, with quartiles in brackets.

All libraries train the same network with the same number of updates: two 64×64 MLPs with tanh, one Nature CNN, or a
recurrent layer of {memory} units. Console, checkpoints and evaluations are not part of the loop. Envfleet runs with
`backend="processes"` and default settings, except that normalisation is off, as it is by default in Stable-Baselines3.

Stable-Baselines3 alternates `collect_rollouts` and `train` on a `DummyVecEnv`, its fastest option here, without
`Monitor`. CleanRL cannot be installed as a package. A plain PyTorch loop on Gymnasium's `SyncVectorEnv` stands in for
it and does what CleanRL's `ppo.py` does. Both are measured with torch's choice of threads and with one thread, and we
compare with the fastest of all. sb3-contrib's RecurrentPPO has one LSTM for actor and critic, like ours (its default is
two), and no encoder before it. Ours learns through sequences of {piece} steps, theirs through whole episodes.

The columns *environment* to *rest* show where the time goes, as seen by the learner. While the learner waits for the
workers, their time counts as environment or acting, or as waiting if they were idle or messages were in transit.
Collecting that overlaps with learning is not counted."""

NOTES = {
    "images": """\
The environment computes for about 50 µs per step ({iterations} iterations in Python). *Arithmetic alone* makes the same
forward passes (acting and values in groups of 8, one more at the end of the rollout), backward passes and Adam steps on
prepared tensors. It has no environment, no loss, no shuffling and nothing to wait for. Its fastest variant is the
limit.""",
    "coinrun": """\
Procgen's CoinRun (easy, 200 levels) with the Nature CNN. The other libraries step our CoinRun environment.""",
    "collecting-coinrun": """\
Stepping only, without learning. `step` gets actions drawn in advance. In rollouts of 128 steps the
workers choose random actions themselves. With `async` they do not wait for each other after a rollout.
Independent processes step their share of the environments in a plain loop, store nothing and do not
communicate.""",
    "balanced": """\
The environment computes {iterations} iterations per step, a number found by trial before the rounds. With it,
collecting takes {relation:.2f} times as long as learning in `sync`. The learner has one thread.""",
    "scaling": """\
Collecting only, with the policy in the workers and 32 environments in 4 groups. Independent processes do the same work
on their share of the environments, without communication.""",
}


def render_page(results: Mapping[str, Any]) -> str:
    """Return the page with all results."""
    settings = {**results["settings"], "rounds": _rounds(results)}
    sections = [
        "# Benchmarks of PPO",
        "<!-- made by python -m benchmarks.ppo.page; do not edit -->",
        "`python -m benchmarks.ppo --output docs/benchmarks/ppo.json` measures all of this.",
        machine_line(dict(results)) + disturbance(results["load_before"]),
        "## How it is measured",
        METHOD.format(memory=MEMORY_UNITS, piece=PIECE_STEPS, **settings),
    ]
    for name, table in results.get("tables", {}).items():
        sections += [f"## {table['title']}", _sizes(name, table), "\n".join(_table(name, table["rows"]))]
        sections += _absences(table["rows"])
        if name.startswith("scaling"):
            sections += [*_scaling(table["rows"])]
    if "goal" in results:
        sections += ["## Seconds to a mean return of 475", *_goal(results["goal"])]
    if "beginning" in results:
        sections += ["## Start-up", "\n".join(_beginning(results["beginning"]))]
    if "upkeep" in results:
        sections += ["## Console, metrics and checkpoints", *_upkeep(results["upkeep"])]
    targets = check_targets(results)
    if targets:
        sections += ["## Targets", "\n".join(targets_table(targets))]
    return "\n\n".join(sections) + "\n"


def render_readme(results: Mapping[str, Any]) -> str:
    """Return the README table: our speed on each workload, and how many times as fast as the fastest other."""
    machine = results["machine"]
    compared = {name: table for name, table in results.get("tables", {}).items() if fastest(table["rows"], PEERS)}
    cpus = " or ".join(sorted({results.get("cpu_of", {}).get(name, machine["cpu"]) for name in compared}))
    introduction = (
        f"PPO training speed in environment steps per second on {machine['cores']} cores ({cpus}), with the "
        "same network and number of updates. The factor compares it with the fastest of Stable-Baselines3 "
        "(sb3-contrib for recurrent policies) and a plain PyTorch loop as in CleanRL "
        f"(medians of {_rounds(results)} interleaved rounds; "
        "[method and full results](docs/benchmarks-ppo.md)):"
    )
    lines = [
        introduction,
        "",
        table_line("", "Envfleet, `sync`", "Envfleet, `overlap`", "fastest other"),
        table_line("---", "---:", "---:", "---:"),
    ]
    for table in compared.values():
        rows = table["rows"]
        peer = fastest(rows, PEERS)
        assert peer is not None
        columns = [("sync", "gru"), ("overlap",)]  # recurrent rows are named after the memory
        named = [next((name for name in names if name in rows), None) for names in columns]
        ours = ["" if name is None else _times(rows, name) for name in named]
        lines.append(table_line(table["title"], *ours, rounded(rows[peer]["steps_per_second"]["median"])))
    return "\n".join(lines)


def _rounds(results: Mapping[str, Any]) -> str:
    """Return how often rows were measured; tables of one file may come from several runs of the benchmark."""
    rows = [row for table in results.get("tables", {}).values() for row in table["rows"].values()]
    counts = sorted({len(row["rounds"]) for row in rows if "rounds" in row} or {results["settings"]["rounds"]})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _times(rows: Mapping[str, Any], name: str) -> str:
    times = times_peer(rows, name)
    speed = rounded(rows[name]["steps_per_second"]["median"])
    return speed if times is None else f"{speed} · {times['median']:.1f}×"


# ---------------------------------------------------------------------------------------------- workloads


def _sizes(name: str, table: Mapping[str, Any]) -> str:
    sizes = table["sizes"]
    text = f"{sizes['n_envs']} environments × {sizes['rollout_steps']} steps"
    if name.startswith("scaling"):
        return f"{text}. {NOTES['scaling']}"
    text += f", {sizes['epochs']} epochs, minibatches of {sizes['minibatch_size']:,}."
    if name == "collecting-coinrun":
        return NOTES[name]
    if name == "coinrun":
        return f"{text} {NOTES[name]}"
    if sizes["env"] == IMAGES_ENV:
        return f"{text} {NOTES['images'].format(iterations=IMAGE_ITERATIONS)}"
    if name == "balanced":
        notes = {"iterations": table["iterations"], "relation": table["collecting_over_learning"]}
        return f"{text} {NOTES['balanced'].format(**notes)}"
    return text


def _table(name: str, rows: Mapping[str, Any]) -> Iterator[str]:
    comparisons = _comparisons(name, rows)
    yield table_line("", "steps/s", *comparisons, *TIMES)
    yield table_line("---", "---:", *["---:"] * (len(comparisons) + len(TIMES)))
    for row_name, row in rows.items():
        title = f"**{row['title']}**" if row["ours"] else row["title"]
        if "absent" in row:
            yield table_line(title, "absent", *["–"] * (len(comparisons) + len(TIMES)))
            continue
        speed = row["steps_per_second"]
        figures = f"{rounded(speed['median'])} ({rounded(speed['lower'])}–{rounded(speed['upper'])})"
        compared = [spread(comparison.get(row_name)) for comparison in comparisons.values()]
        time = row.get("time")
        shares = ["" if time is None else f"{100 * time[part]:.0f} %" for part in TIMES]
        yield table_line(title, figures, *compared, *shares)


def _comparisons(name: str, rows: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float] | None]]:
    """Return the ratio columns: their headings, and the ratio of each row that has one."""
    ours = [row for row in rows if rows[row]["ours"]]
    columns: dict[str, dict[str, dict[str, float] | None]] = {}
    if any(row.startswith(PEERS) for row in rows):
        compared = [row for row in ours if row != "feed-forward"]
        columns["relative to the fastest other"] = {row: times_peer(rows, row) for row in compared}
    if any(row.startswith(ARITHMETIC) for row in rows):
        columns["share of the limit"] = {row: share_of_limit(rows, row) for row in ours}
    if name == "collecting-coinrun":
        columns["share of independent processes"] = {row: ratio(rows, row, "limit") for row in ours}
    if name == "recurrent":
        columns["relative to no memory"] = {row: ratio(rows, row, "feed-forward") for row in ("gru", "lstm")}
    if name == "balanced":
        columns["relative to `sync`"] = {"overlap": ratio(rows, "overlap", "sync")}
    if name.startswith("scaling"):
        columns["speed-up"] = {
            "workers": ratio(rows, "workers", "worker"),
            "processes": ratio(rows, "processes", "process"),
            "waiting": ratio(rows, "waiting", "process"),
        }
    return columns


def _scaling(rows: Mapping[str, Any]) -> Iterator[str]:
    share = share_of_speedup(rows)
    if share is not None:
        yield f"The workers reach {spread(share)} of the speed-up of independent processes."


def _absences(rows: Mapping[str, Any]) -> Iterator[str]:
    for row in rows.values():
        if "absent" in row:
            yield f"{row['title']}: absent ({row['absent']})."


# ------------------------------------------------------------------------------------------ everything else


def _goal(goal: Mapping[str, Any]) -> Iterator[str]:
    rows = goal["rows"]
    yield (
        f"CartPole-v1 is trained until the last {goal['episodes']} training episodes have a mean return of "
        f"{goal['goal']:g}. Imports and building do not count. Envfleet uses its preset, Stable-Baselines3 the "
        f"settings that the RL Zoo publishes (the same numbers), with schedules over {goal['budget']:,} steps. "
        "Figures are medians over the seeds, with each seed in brackets. A run that misses the goal counts with its "
        "full time."
    )
    lines = [table_line("", "seconds", "steps", "reached"), table_line("---", "---:", "---:", "---:")]
    for name, row in rows.items():
        title = f"**{row['title']}**" if not name.startswith("sb3") else row["title"]
        if "absent" in row:
            lines.append(table_line(title, "absent", "–", "–"))
            continue
        seconds = ", ".join(f"{run['seconds']:.1f}" for run in row["runs"])
        steps = ", ".join(f"{run['steps']:,}" for run in row["runs"])
        lines.append(
            table_line(
                title,
                f"{row['seconds']['median']:.1f} ({seconds})",
                f"{row['steps']['median']:,.0f} ({steps})",
                f"{row['reached']} of {len(row['runs'])}",
            )
        )
    yield "\n".join(lines)
    yield from _absences(rows)
    found = time_to_goal(rows)
    if found is not None:
        yield f"Our seconds divided by theirs, median over the seeds: {found[2]:.2f}."


def _beginning(beginning: Mapping[str, Any]) -> Iterator[str]:
    seconds, memory = beginning["seconds"], beginning["worker_memory_mb"]
    yield table_line("", "")
    yield table_line("---", "---:")
    yield table_line(f"`{beginning['command']}`: from the command to the first environment step", _seconds(seconds))
    if "help_seconds" in beginning:
        yield table_line("`envfleet --help`", _seconds(beginning["help_seconds"]))
    yield table_line("private memory (USS) of a worker that acts, 32 CartPole-v1", f"{memory['worker']:.0f} MB")
    yield table_line('the same of a worker that only steps (`acting="central"`)', f"{memory['central']:.0f} MB")


def _seconds(measured: Mapping[str, float]) -> str:
    return f"{measured['median']:.2f} s ({measured['lower']:.2f}–{measured['upper']:.2f})"


def _upkeep(upkeep: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "`train`, with the live view in a terminal, metrics and TensorBoard files, is compared with the bare loop that "
        "all tables above measure. The workload is CartPole-v1 with 8 environments. The two take turns of 10 updates "
        "in one process, with the same workers and memory."
    )
    lines = [table_line("", "steps/s"), table_line("---", "---:")]
    for row in upkeep["rows"].values():
        speed = row.get("steps_per_second")
        lines.append(
            table_line(row["title"], f"absent ({row['absent']})" if speed is None else rounded(speed["median"]))
        )
    yield "\n".join(lines)
    if "reporting" in upkeep:
        yield (
            f"`train` reaches {spread(upkeep['speed_over_bare'])} of the bare loop's speed. "
            f"{100 * upkeep['reporting']:.1f} % of its time goes to console, metrics and TensorBoard. "
            f"{_sampling(upkeep)}A checkpoint takes {1000 * upkeep['checkpoint_seconds']:.0f} ms, which is "
            f"{100 * upkeep['checkpoint_seconds'] / 60:.2f} % of a minute."
        )


def _sampling(upkeep: Mapping[str, Any]) -> str:
    if "sampling" not in upkeep:
        return ""
    return f"Sampling CPU and memory takes {100 * upkeep['sampling']:.2f} %. "


def spread(figures: Mapping[str, float] | None) -> str:
    if figures is None:
        return ""
    return f"{figures['median']:.2f} ({figures['lower']:.2f}–{figures['upper']:.2f})"


def pages(results: Mapping[str, Any]) -> dict[Path, str]:
    """Return all pages made from the results."""
    return {PAGE: render_page(results), README: with_block(README.read_text(), render_readme(results), START, END)}


def main(arguments: Sequence[str] | None = None) -> int:
    return render_main(arguments, "benchmarks.ppo.page", RESULTS, PAGE, pages)


if __name__ == "__main__":
    sys.exit(main())
