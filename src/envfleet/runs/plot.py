"""Learning curves: a plot of the metrics of one or several runs."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.errors import EnvfleetError, SettingsError
from envfleet.paths import expanded
from envfleet.runs.durable import write_whole, writing
from envfleet.runs.folder import named_runs
from envfleet.runs.grouping import CHANGES_NO_RESULT, COLOURS, group_runs, run_names
from envfleet.runs.live_view import number
from envfleet.runs.metrics import EVALUATION, RETURN, points
from envfleet.runs.run import Run

__all__ = ["plot_runs", "steps_text"]

Array = np.ndarray[Any, Any]
_LOG = logging.getLogger("envfleet")
_CHANCE = "random/ep_rew_mean"
_LEGEND_CHARACTERS = 110  # per row of the legend, below the axes
_MOST_SEEDS = 5  # that a legend lists


@dataclass(frozen=True)
class _Curve:
    """A run to draw, with its metrics loaded."""

    run: Run
    metrics: list[dict[str, Any]]
    env: str

    @classmethod
    def of(cls, path: str | Path) -> _Curve:
        run = Run.load(path)
        curve = cls(run, run.metrics, str(run.settings.get("env") or run.manifest.get("env", "")))
        if not any(len(curve.points(name)[0]) for name in (RETURN, EVALUATION)):
            raise SettingsError(
                f"no episode of {run.folder.shown} has ended yet, so there is nothing to draw",
                hint="train for longer than an episode takes, or with evaluations (--eval-every)",
            )
        return curve

    def points(self, name: str) -> tuple[Array, Array]:
        """Steps and finite values of a metric."""
        steps, values = points(self.metrics, name)
        return np.array(steps, np.int64), np.array(values, np.float64)

    @property
    def seed(self) -> Any:
        return self.run.settings.get("seed")


def plot_runs(
    paths: Sequence[str | Path], output: str | Path, *, title: str | None = None, apart: bool = False
) -> Path:
    """Plot the mean returns of the runs over steps, with evaluations and random play if measured.

    A path is a run or a folder of runs. Logs a warning for a run of such a folder that cannot be drawn.

    Runs that differ only in their seed become one line, their mean, in a band from the lowest to the highest. `apart`
    draws each run separately.
    """
    output = Path(output)
    if output.suffix.lower() not in {".png", ".pdf", ".svg"}:
        raise SettingsError(f"received the picture {output}, expected a name that ends in .png, .pdf or .svg")
    curves = [curve for path in paths for curve in _curves(path)]
    groups = [[curve] for curve in curves] if apart else _by_seed(curves)
    _draw(groups, output, title or _title(curves))
    return output


def _curves(place: str | Path) -> list[_Curve]:
    runs = named_runs(place)
    if runs == [expanded(place)]:
        return [_Curve.of(place)]
    curves = []
    for path in runs:
        try:
            curves.append(_Curve.of(path))
        except (EnvfleetError, OSError, TypeError, ValueError) as error:  # the last two: a damaged manifest
            _LOG.warning("%s is left out: %s", path, str(error).partition("\n")[0])
    if not curves:
        raise SettingsError(f"none of the {len(runs)} runs in {place} can be drawn", hint="`envfleet runs` lists them")
    return curves


def _by_seed(curves: Sequence[_Curve]) -> list[list[_Curve]]:
    """Group runs that differ only in their seed. If two have the same seed, each run is drawn separately."""
    groups: list[list[_Curve]] = []
    for runs in group_runs([curve.run for curve in curves], ignoring=CHANGES_NO_RESULT):
        group = [curve for curve in curves if curve.run in runs.runs]
        seeds = {curve.seed for curve in group}
        groups += [group] if len(seeds) == len(group) and _common(group) is not None else [[curve] for curve in group]
    return groups


def _common(group: Sequence[_Curve]) -> tuple[Array, Array] | None:
    """Steps that all returns of a group cover, and the values there [run, step]; None if they do not overlap."""
    points = [curve.points(RETURN) for curve in group]
    if any(len(steps) == 0 for steps, _ in points):
        return None
    first, last = max(steps[0] for steps, _ in points), min(steps[-1] for steps, _ in points)
    every = np.unique(np.concatenate([steps for steps, _ in points]))
    steps = every[(every >= first) & (every <= last)]
    return (steps, np.array([np.interp(steps, *own) for own in points])) if len(steps) else None


def _title(curves: Sequence[_Curve]) -> str:
    return ", ".join(dict.fromkeys(str(curve.run.manifest.get("env", curve.env)) for curve in curves))


# ---- drawing ----


def _draw(groups: Sequence[Sequence[_Curve]], output: Path, title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(7.5, 4.2), dpi=120, layout="constrained")  # without pyplot: spares the caller's plots
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    several = len({group[0].env for group in groups}) > 1
    # Pairs of our own, because the legend that axes collect has no label that begins with an underscore.
    handles: list[Any] = []
    labels: list[str] = []
    evaluated = False
    for place, (group, label) in enumerate(zip(groups, _labels(groups), strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        line, has_evaluations = (_draw_run if len(group) == 1 else _draw_seeds)(axes, group, colour)
        handles.append(line)
        labels.append(f"{group[0].env}: {label}" if several else label)
        evaluated |= has_evaluations
    if evaluated:
        colour = COLOURS[0] if len(groups) == 1 else "#57606a"
        handles.append(Line2D([], [], color=colour, marker="o", markersize=5, linestyle=""))
        labels.append("evaluation" if all(len(group) == 1 for group in groups) else "evaluation (lowest to highest)")
    for env, mean in _chance(groups).items():
        handles.append(axes.axhline(mean, color="#666666", linewidth=1, linestyle="--"))
        labels.append(f"{env}: random play {number(mean)}" if several else f"random play: {number(mean)}")
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_formatter(lambda value, _: steps_text(value))
    axes.set_ylabel("return, mean of the last 100 episodes")
    axes.set_title(title, wrap=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    columns = min(len(labels), max(1, _LEGEND_CHARACTERS // max(map(len, labels))))
    figure.legend(handles, labels, frameon=False, loc="outside lower center", fontsize="small", ncols=columns)
    kind, picture = output.suffix.lower()[1:], io.BytesIO()
    figure.savefig(picture, format=kind, metadata={"Software": None} if kind == "png" else None)
    with writing("the picture", output, "or give another place with --output"):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, picture.getvalue())


def _chance(groups: Sequence[Sequence[_Curve]]) -> dict[str, float]:
    """Return of random play in each environment where it was measured."""
    found: dict[str, list[float]] = {}
    for curve in (curve for group in groups for curve in group):
        found.setdefault(curve.env, []).extend(curve.points(_CHANCE)[1].tolist())
    return {env: sum(values) / len(values) for env, values in found.items() if values}


def _draw_run(axes: Any, group: Sequence[_Curve], colour: str) -> tuple[Any, bool]:
    """Draw one run: a line, and a dot for each evaluation. Returns the line and whether there are evaluations."""
    (curve,) = group
    (line,) = axes.plot(*curve.points(RETURN), color=colour, linewidth=1.6)
    steps, scores = curve.points(EVALUATION)
    if len(steps):
        axes.plot(steps, scores, "o", color=colour, markersize=5)
    return line, len(steps) > 0


def _draw_seeds(axes: Any, group: Sequence[_Curve], colour: str) -> tuple[Any, bool]:
    """Draw the seeds of one experiment: their mean in a band, and dots for evaluations at steps that all have.

    Returns as `_draw_run`.
    """
    common = _common(group)
    assert common is not None, "a group has steps in common"
    steps, returns = common
    (line,) = axes.plot(steps, returns.mean(axis=0), color=colour, linewidth=1.6)
    axes.fill_between(steps, returns.min(axis=0), returns.max(axis=0), color=colour, alpha=0.18, linewidth=0)
    scores = [dict(zip(*(part.tolist() for part in curve.points(EVALUATION)), strict=True)) for curve in group]
    shared = sorted(set.intersection(*map(set, scores)))
    if shared:
        values = np.array([[own[step] for step in shared] for own in scores])
        mean = values.mean(axis=0)
        ends = np.abs(np.array([values.min(axis=0), values.max(axis=0)]) - mean)
        axes.errorbar(shared, mean, ends, fmt="o", color=colour, markersize=5, elinewidth=1)
    return line, bool(shared)


def _labels(groups: Sequence[Sequence[_Curve]]) -> list[str]:
    """Legend labels: a single run gets its folder name, a group of seeds the settings that set it apart."""
    curves = [curve for group in groups for curve in group]
    names = dict(zip((curve.run for curve in curves), run_names([curve.run.path for curve in curves]), strict=True))
    alike = group_runs(list(names), ignoring={*CHANGES_NO_RESULT, "env"})
    of_settings = {run: group.label for group in alike for run in group.runs}
    labels = []
    for group in groups:
        first = group[0].run
        seeds = ", ".join(str(curve.seed) for curve in group)
        counted = f"seeds {seeds}" if len(group) <= _MOST_SEEDS else f"{len(group)} seeds"
        settings = first.settings.get("algorithm") if len(alike) == 1 else of_settings[first]
        several = f"{settings}, mean of {counted} (band: lowest to highest)"
        labels.append(names[first] if len(group) == 1 else several)
    return labels


def steps_text(value: float) -> str:
    """Format a step count for an axis, exactly: 500, 2.5k, 1.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{unit}"
    return f"{value:.6g}"
