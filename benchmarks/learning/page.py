"""Draw the curves and render docs/learning.md from docs/learning/*.json: `python -m benchmarks.learning.page`.

`--check` writes nothing and fails if the page is out of date.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.learning.tasks import TASKS, Task
from benchmarks.tables import ROOT, table_line, targets_table, write_or_check
from benchmarks.wanted import at_least, at_most
from envfleet.runs.plot import steps_text

FOLDER, PAGE = ROOT / "docs" / "learning", ROOT / "docs" / "learning.md"
TITLES = {"envfleet": "Envfleet", "stable-baselines3": "Stable-Baselines3"}
COLOURS = {"envfleet": "#1f6feb", "stable-baselines3": "#d1782a"}

INTRODUCTION = """\
These runs take too long for the tests, which cover CartPole-v1, Acrobot-v1, Pendulum-v1 and more. The weights of a run
depend on its seed and its settings, never on the backend or the number of workers. So these commands reproduce these
curves on this machine, whatever else it is doing. Another processor may round differently."""

Run = Mapping[str, Any]

_PEERS = {
    "ppo": "two 64×64 MLPs with tanh, {}. Stable-Baselines3 normalises observations and rewards with `VecNormalize`",
    "dqn": "{}",
    "sac": "{}",
}


def _title(task: Task) -> str:
    algorithm = [task.algorithm.upper()] if task.algorithm != "ppo" else []
    return ", ".join([task.env, *algorithm, *([task.note] if task.note else [])])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    options = parser.parse_args(arguments)
    results = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    if not options.check:
        runs = {result["task"]: result["runs"] for result in results}
        for name in runs:
            draw(TASKS[name], runs, FOLDER / f"{name}.png")
    return write_or_check({PAGE: render_page(results)}, FOLDER, "benchmarks.learning.page", check=options.check)


# -------------------------------------------------------------------------------------------------- figures


def end_of_curve(run: Run, episodes: int) -> float:
    """Return the mean return of the last training episodes, at least `episodes` of them."""
    total = count = 0.0
    for _, mean, ended in reversed(run["curve"]):
        total, count = total + mean * ended, count + ended
        if count >= episodes:
            break
    return total / count


def smoothed(run: Run, episodes: int) -> tuple[list[int], list[float]]:
    """Return the steps of the curve, and the mean return of the last `episodes` episodes at each."""
    points = run["curve"]
    parts = [{**run, "curve": points[: end + 1]} for end in range(len(points))]
    return [point[0] for point in points], [end_of_curve(part, episodes) for part in parts]


def draw(task: Task, all_runs: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Draw a thin curve for each run, and the mean over the seeds of each library, or of the task to compare with."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.2), dpi=120)
    runs = all_runs[task.name]
    lines = [(TITLES[name], COLOURS[name], [run for run in runs if run["library"] == name]) for name in TITLES]
    if task.above in all_runs:
        lines.append((_title(TASKS[task.above]), "#666666", list(all_runs[task.above])))
    for title, colour, drawn in lines:
        curves = [smoothed(run, task.recent) for run in drawn]
        if not curves:
            continue
        for steps, returns in curves:
            axes.plot(steps, returns, color=colour, alpha=0.35, linewidth=1)
        if len({tuple(steps) for steps, _ in curves}) == 1:  # they can be averaged point by point
            means = [fmean(values) for values in zip(*(returns for _, returns in curves), strict=True)]
            label = f"{title}, mean of {len(curves)} seeds" if len(curves) > 1 else title
            axes.plot(curves[0][0], means, color=colour, linewidth=2.2, label=label)
        else:
            axes.plot([], [], color=colour, label=f"{title}, {len(curves)} seeds")
    _draw_wanted(axes, task, max(run["steps"] for run in runs))
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_formatter(lambda value, _: steps_text(value))
    axes.set_ylabel(f"return, mean of the last {task.recent} training episodes")
    axes.set_title(_title(task))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left" if task.above else "lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def _draw_wanted(axes: Any, task: Task, steps: int) -> None:
    """Draw lines at the target returns, and published returns up to this number of steps."""
    grey = "#666666"
    held_out = f"on {task.splits[1]}"
    targets = ((task.least, "in evaluation"), (task.least_in_training, "in training"), (task.least_held_out, held_out))
    for wanted, words in targets:
        if wanted is not None:
            axes.axhline(wanted, color=grey, linewidth=1, linestyle="--", label=f"target {words}: {wanted:g}")
    if task.published is None:
        return
    label = "published, each run or their mean"
    for at, returns in task.published.training.items():
        if at <= 1.05 * steps:
            axes.plot([at] * len(returns), returns, "o", color=COLOURS["stable-baselines3"], markersize=4, label=label)
            label = "_said once"


# ----------------------------------------------------------------------------------------------------- page


def render_page(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the page with every task that was learned."""
    sections = ["# Learning", "<!-- made by python -m benchmarks.learning.page; do not edit -->", INTRODUCTION]
    names = " ".join(result["task"] for result in results)
    sections.append(f"`python -m benchmarks.learning {names}` trains all of these runs and writes this page.")
    targets: list[dict[str, Any]] = []
    all_runs = {result["task"]: result["runs"] for result in results}
    for result in results:
        task = TASKS[result["task"]]
        sections += [f"## {_title(task)}", _description(task, result), f"![{_title(task)}](learning/{task.name}.png)"]
        sections += ["\n".join(_table(task, result["runs"])), *_comparison(task, result["runs"])]
        sections += ["\n".join(_published(task, result["runs"]))] if task.published else []
        targets += [*_targets(task, result["runs"]), *_comparisons(task, all_runs)]
    return "\n\n".join([*sections, "## Targets", "\n".join(targets_table(targets))]) + "\n"


def _description(task: Task, result: Mapping[str, Any]) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in (machine["libraries"] | result["libraries"]).items())
    processors = ", ".join(dict.fromkeys(run.get("cpu", machine["cpu"]) for run in result["runs"]))
    where = f"Measured with {versions}, {machine['python']} on {machine['platform']} ({processors})."
    planned = len(task.seeds) * (2 if task.beside_peer else 1)
    if len(result["runs"]) < planned:
        where += f" So far, {len(result['runs'])} of {planned} runs are made."
    if not task.beside_peer:
        own = {**task.settings, **task.settings.get("env_kwargs", {})}
        flags = "".join(_flag(name, own[name]) for name in own if name != "env_kwargs")
        words = (
            f"With the preset{' alone' if not flags else ''}: `envfleet train {task.algorithm} --env {task.env}{flags} "
            f"--seed S`, then `envfleet evaluate RUN --episodes {task.evaluation_episodes}`. {where}"
        )
        if len(task.seeds) == 1:
            words += " This is one seed; another may reach a different return."
        return words
    settings = ", ".join(f"`{name}={value}`" for name, value in task.settings.items())
    return f"Compared with Stable-Baselines3 at equal settings: {_PEERS[task.algorithm].format(settings)}. {where}"


def _flag(name: str, value: Any) -> str:
    spelled = name.replace("_", "-")
    return f" --{'' if value else 'no-'}{spelled}" if isinstance(value, bool) else f" --{spelled} {value}"


def _table(task: Task, runs: Sequence[Run]) -> Iterator[str]:
    played = f"{task.evaluation_episodes} episodes"
    with_held_out = any("held_out" in run["evaluation"] for run in runs)
    evaluations = [f"{name}, {played}" for name in (task.splits if with_held_out else ("evaluation",))]
    yield table_line("", "seed", "steps", f"last {task.recent} training episodes", *evaluations)
    yield table_line("---", "---:", "---:", "---:", *("---:" for _ in evaluations))
    for run in sorted(runs, key=lambda run: (run["library"], run["seed"])):
        title = TITLES[run["library"]]
        figures = [run["evaluation"], *([run["evaluation"]["held_out"]] if with_held_out else [])]
        yield table_line(
            f"**{title}**" if run["library"] == "envfleet" else title,
            run["seed"],
            f"{run['steps']:,}",
            _number(end_of_curve(run, task.recent)),
            *(f"{_number(each['mean'])} ± {_number(each['std'], like=each['mean'])}{_trial(each)}" for each in figures),
        )


def _trial(figures: Mapping[str, Any]) -> str:
    """The returns of the first and the last episode of a trial, if there are several."""
    returns = figures.get("trial", ())
    return f" (first and last episode {_number(returns[0])} and {_number(returns[-1])})" if len(returns) > 1 else ""


def _number(value: float, like: float | None = None) -> str:
    """Format a return, with decimals if it is small, or if `like` is."""
    size = abs(value if like is None else like)
    return f"{value:.2f}" if size < 20 else f"{value:.1f}" if size < 100 else f"{value:,.0f}"


def mean_about(run: Run, steps: int) -> float:
    """The mean over the five updates nearest to this step, as for the published returns."""
    nearest = sorted(run["curve"], key=lambda point: abs(point[0] - steps))[:5]
    return fmean(value for _, value, _ in nearest)


def _published(task: Task, runs: Sequence[Run]) -> Iterator[str]:
    """Compare our training returns with the published ones at the same steps."""
    assert task.published is not None
    yield f"Compared with the {task.published.source}:"
    yield ""
    yield table_line("steps", "Envfleet, training", "published, training", "published, all levels")
    yield table_line("---:", "---:", "---:", "---:")
    for steps, returns in task.published.training.items():
        ours = [_number(mean_about(run, steps)) for run in runs if run["steps"] >= steps]
        theirs = ", ".join(map(_number, returns))
        yield table_line(f"{steps:,}", ", ".join(ours) or "–", theirs, _number(task.published.held_out[steps]))


def _comparison(task: Task, runs: Sequence[Run]) -> Iterator[str]:
    """Compare both libraries in a sentence, with ranges: a mean over few seeds says little."""
    ends = {
        library: [end_of_curve(run, task.recent) for run in runs if run["library"] == library] for library in TITLES
    }
    if not all(ends.values()):
        return
    ours, theirs = ends.values()
    spans = [f"{fmean(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})" for values in (ours, theirs)]
    below = sum(value < min(theirs) for value in ours)
    yield (
        f"Return of the last {task.recent} training episodes, mean over seeds (lowest–highest): Envfleet {spans[0]}, "
        f"Stable-Baselines3 {spans[1]}. {below} of our {len(ours)} seeds ended below their lowest, "
        f"{sum(value > max(theirs) for value in ours)} above their highest."
    )


def _targets(task: Task, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    ours = [run for run in runs if run["library"] == "envfleet"]
    if task.least is not None:
        for run in ours:
            name = f"{_title(task)}, seed {run['seed']}: mean of {run['evaluation']['episodes']} evaluation episodes"
            yield at_least(name, run["evaluation"]["mean"], task.least)
    if task.least_in_training is not None:
        for run in ours:
            name = f"{_title(task)}, seed {run['seed']}: training return, mean of the last five updates"
            yield at_least(name, mean_about(run, run["steps"]), task.least_in_training, _beside(run))
    if task.least_held_out is not None:
        for run in ours:
            episodes = run["evaluation"]["episodes"]
            name = f"{_title(task)}, seed {run['seed']}: mean of {episodes} episodes on {task.splits[1]}"
            yield at_least(name, run["evaluation"]["held_out"]["mean"], task.least_held_out)
            trial = run["evaluation"]["held_out"].get("trial")
            if task.least_last_episode is not None and trial:
                yield at_least(f"{name}, last episode of the trial", trial[-1], task.least_last_episode)
    if task.most_held_out is not None:
        for run in ours:
            found = run["evaluation"]["held_out"]["mean"]
            name = f"{_title(task)}, seed {run['seed']}: a control, on {task.splits[1]}"
            yield at_most(name, found, task.most_held_out)


def _beside(run: Run) -> str:
    """What the evaluation on the training levels says about a training return."""
    found = run["evaluation"]
    error = found["std"] / math.sqrt(found["episodes"])
    return f"{found['episodes']} evaluation episodes on the training levels give {found['mean']:.2f} ± {error:.2f}"


def _comparisons(task: Task, all_runs: Mapping[str, Sequence[Run]]) -> Iterator[dict[str, Any]]:
    """Yield the targets that compare with Stable-Baselines3, or with another task."""
    runs = all_runs[task.name]
    ours = [run for run in runs if run["library"] == "envfleet"]
    theirs = [run for run in runs if run["library"] != "envfleet"]
    ways: dict[str, Callable[[Run], float]] = {
        "training": lambda run: end_of_curve(run, task.recent),
        "evaluation": lambda run: float(run["evaluation"]["mean"]),
    }
    for way, figure in ways.items():
        if ours and theirs:
            mean = fmean(map(figure, ours))
            name = f"{_title(task)}: our mean over seeds, compared with Stable-Baselines3's"
            few = len(theirs) < len(task.seeds)
            why = f"so far, Stable-Baselines3 has learned with {len(theirs)} of {len(task.seeds)} seeds" if few else ""
            yield at_least(f"{name} lowest seed, {way}", mean, min(map(figure, theirs)), why)
            if task.share_of_peer is not None:
                wanted = task.share_of_peer * fmean(map(figure, theirs))
                yield at_least(f"{name} mean times {task.share_of_peer:g}, {way}", mean, wanted, why)
        if ours and task.above in all_runs:
            name = f"{_title(task)}: lowest seed, compared with the highest of {_title(TASKS[task.above])}, {way}"
            yield at_least(name, min(map(figure, ours)), max(map(figure, all_runs[task.above])))


if __name__ == "__main__":
    sys.exit(main())
