"""Renders docs/benchmarks-ppo.md and a table in README.md from docs/benchmarks/ppo.json.

`python -m benchmarks.ppo.page` writes both, `--check` only looks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fleet import BUSY_LOAD
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
Every row is a process of its own (with its workers), built once and warmed up with two updates. When its turn
comes, it does one cycle that is not counted and then whole cycles of collecting and learning for {seconds:g} s,
at least one. All rows of a workload are measured in turn, {rounds} times, in another order each time. A ratio of
two rows is taken within each round; figures are medians, quartiles in brackets.

Everyone trains the same network with the same number of updates: two MLPs of 64×64 with tanh, or one Nature CNN,
or a memory of {memory} units. Neither console nor checkpoints nor evaluations are part of the loop. Envfleet runs
with `backend="processes"` and its default settings; normalisation is off, as it is in Stable-Baselines3 by
default. Stable-Baselines3 runs `collect_rollouts` and `train` in turn on a `DummyVecEnv`, its fastest way here,
without `Monitor`. CleanRL cannot be installed as a package, so a plain loop of PyTorch that does what its `ppo.py`
does, on Gymnasium's `SyncVectorEnv`, stands for it. Both are measured with as many threads as torch chooses and
with one, and the fastest of all is what we compare with. sb3-contrib's RecurrentPPO has one LSTM for actor and
critic, as ours, not its default of two, and no encoder before it; ours learns through pieces of {piece} steps,
theirs through whole episodes.

*Where the time goes* is seen from the learner: while it waits for the workers, their time counts as environment
or acting, and as waiting where they were idle or messages were under way. What is collected while the learner
learns is not counted."""

NOTES = {
    "images": """\
The environment computes about 50 µs a step ({iterations} iterations in Python). *Arithmetic alone* does the same
forward passes (acting in groups of 8, values with them, one more at the rollout's edge), backward passes and Adam
steps on tensors that are ready: no environment, no loss, no shuffling, nothing to wait for. Its fastest way is
the limit.""",
    "coinrun": """\
Procgen's CoinRun (easy, 200 levels), the Nature CNN for everyone; the other libraries step our environment of it.""",
    "collecting-coinrun": """\
Stepping alone: `step` with actions that are drawn beforehand, rollouts of 128 steps with a policy in the workers that
likes all actions alike and costs nothing, and independent processes that step their share of the environments in a
plain loop, keep nothing and talk to nobody.""",
    "balanced": """\
A step of the environment computes so long ({iterations} iterations) that collecting takes {relation:.2f} times as
long as learning in `sync`, found by trials before the rounds; the learner has one thread.""",
    "scaling": """\
Collection alone, the policy in the workers: 32 environments in 4 groups. Independent processes do the same work
on their share of the environments with nobody to talk to.""",
}


def render_page(results: Mapping[str, Any]) -> str:
    """The page with everything that was measured."""
    settings = {**results["settings"], "rounds": _rounds(results)}
    sections = [
        "# Benchmarks of PPO",
        "<!-- made by python -m benchmarks.ppo.page; do not edit -->",
        "`python -m benchmarks.ppo --output docs/benchmarks/ppo.json` measures all of this.",
        machine_line(dict(results)) + _disturbance(results["load_before"]),
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
        sections += ["## Starting", "\n".join(_beginning(results["beginning"]))]
    if "upkeep" in results:
        sections += ["## Console, metrics and checkpoints", *_upkeep(results["upkeep"])]
    targets = check_targets(results)
    if targets:
        sections += ["## Targets", "\n".join(targets_table(targets))]
    return "\n\n".join(sections) + "\n"


def render_readme(results: Mapping[str, Any]) -> str:
    """The table for the README: what is trained, how fast, and how many times as fast as the fastest other."""
    machine = results["machine"]
    introduction = (
        f"Training PPO, environment steps per second on {machine['cores']} cores ({machine['cpu']}), same network and "
        "same number of updates, and how many times as fast that is as the fastest of Stable-Baselines3 (with memory "
        "sb3-contrib) and a plain loop of PyTorch as in CleanRL "
        f"(medians of {_rounds(results)} interleaved rounds; "
        "[how it was measured, and everything else](docs/benchmarks-ppo.md)):"
    )
    lines = [
        introduction,
        "",
        table_line("", "Envfleet, `sync`", "Envfleet, `overlap`", "the fastest other"),
        table_line("---", "---:", "---:", "---:"),
    ]
    for table in results.get("tables", {}).values():
        rows = table["rows"]
        peer = fastest(rows, PEERS)
        if peer is None:
            continue
        columns = [("sync", "gru"), ("overlap",)]  # with memory, the row is named after it
        named = [next((name for name in names if name in rows), None) for names in columns]
        ours = ["" if name is None else _times(rows, name) for name in named]
        lines.append(table_line(table["title"], *ours, rounded(rows[peer]["steps_per_second"]["median"])))
    return "\n".join(lines)


def _rounds(results: Mapping[str, Any]) -> str:
    """How often a row was measured; tables of one file may come from several runs."""
    rows = [row for table in results.get("tables", {}).values() for row in table["rows"].values()]
    counts = sorted({len(row["rounds"]) for row in rows if "rounds" in row} or {results["settings"]["rounds"]})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _times(rows: Mapping[str, Any], name: str) -> str:
    times = times_peer(rows, name)
    speed = rounded(rows[name]["steps_per_second"]["median"])
    return speed if times is None else f"{speed} · {times['median']:.1f}×"


def _disturbance(load: float) -> str:
    return f" Other work kept {load:.1f} cores busy when it began." if load > BUSY_LOAD else ""


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
    """Columns of ratios: their heading, and the ratio of each row that is ours."""
    ours = [row for row in rows if rows[row]["ours"]]
    columns: dict[str, dict[str, dict[str, float] | None]] = {}
    if any(row.startswith(PEERS) for row in rows):
        compared = [row for row in ours if row != "feed-forward"]
        columns["times the fastest other"] = {row: times_peer(rows, row) for row in compared}
    if any(row.startswith(ARITHMETIC) for row in rows):
        columns["of the limit"] = {row: share_of_limit(rows, row) for row in ours}
    if name == "collecting-coinrun":
        columns["of independent processes"] = {row: ratio(rows, row, "limit") for row in ours}
    if name == "recurrent":
        columns["of the speed without memory"] = {row: ratio(rows, row, "feed-forward") for row in ("gru", "lstm")}
    if name == "balanced":
        columns["times `sync`"] = {"overlap": ratio(rows, "overlap", "sync")}
    if name.startswith("scaling"):
        columns["speed-up"] = {
            "workers": ratio(rows, "workers", "worker"),
            "processes": ratio(rows, "processes", "process"),
        }
    return columns


def _scaling(rows: Mapping[str, Any]) -> Iterator[str]:
    share = share_of_speedup(rows)
    if share is not None:
        yield f"Of the speed-up that independent processes have, the workers have {spread(share)}."


def _absences(rows: Mapping[str, Any]) -> Iterator[str]:
    for row in rows.values():
        if "absent" in row:
            yield f"{row['title']}: absent ({row['absent']})."


# ------------------------------------------------------------------------------------------ everything else


def _goal(goal: Mapping[str, Any]) -> Iterator[str]:
    rows = goal["rows"]
    yield (
        f"CartPole-v1 until the last {goal['episodes']} training episodes have a mean return of {goal['goal']:g}, "
        "without imports and building: our preset against the settings that the RL Zoo publishes for "
        f"Stable-Baselines3 (the same numbers), schedules over {goal['budget']:,} steps. Medians over the seeds, "
        "each seed in brackets; a run that does not get there counts with all its time."
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
        yield f"Our seconds over theirs, median over the seeds: {found[2]:.2f}."


def _beginning(beginning: Mapping[str, Any]) -> Iterator[str]:
    seconds, memory = beginning["seconds"], beginning["worker_memory_mb"]
    yield table_line("", "")
    yield table_line("---", "---:")
    yield table_line(f"`{beginning['command']}`: from the command to the first environment step", _seconds(seconds))
    if "help_seconds" in beginning:
        yield table_line("`envfleet --help`", _seconds(beginning["help_seconds"]))
    yield table_line("private memory (USS) of a worker that acts, 32 CartPole-v1", f"{memory['worker']:.0f} MB")
    yield table_line('of one that only steps (`acting="central"`)', f"{memory['central']:.0f} MB")


def _seconds(measured: Mapping[str, float]) -> str:
    return f"{measured['median']:.2f} s ({measured['lower']:.2f}–{measured['upper']:.2f})"


def _upkeep(upkeep: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "The workload of CartPole-v1 with 8 environments, trained by `train` with the live view in a terminal, "
        "metrics and TensorBoard files, against the bare loop that all tables above measure."
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
            f"`train` has {spread(upkeep['speed_over_bare'])} of the bare loop's speed; "
            f"{100 * upkeep['reporting']:.1f} % of its time is spent in console, metrics and TensorBoard. "
            f"{_sampling(upkeep)}A checkpoint takes {1000 * upkeep['checkpoint_seconds']:.0f} ms, which is "
            f"{100 * upkeep['checkpoint_seconds'] / 60:.2f} % of a minute."
        )


def _sampling(upkeep: Mapping[str, Any]) -> str:
    if "sampling" not in upkeep:
        return ""
    return f"Samples of CPU and memory take {100 * upkeep['sampling']:.2f} %. "


def spread(figures: Mapping[str, float] | None) -> str:
    if figures is None:
        return ""
    return f"{figures['median']:.2f} ({figures['lower']:.2f}–{figures['upper']:.2f})"


def pages(results: Mapping[str, Any]) -> dict[Path, str]:
    """All that is written from the results."""
    return {PAGE: render_page(results), README: with_block(README.read_text(), render_readme(results), START, END)}


def main(arguments: Sequence[str] | None = None) -> int:
    return render_main(arguments, "benchmarks.ppo.page", RESULTS, PAGE, pages)


if __name__ == "__main__":
    sys.exit(main())
