"""Learning curves: a picture from the metrics of one run or of several."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.errors import SettingsError
from envfleet.runs.durable import write_whole, writing
from envfleet.runs.folder import RunFolder
from envfleet.runs.live_view import number
from envfleet.runs.metrics import read_metrics

__all__ = ["plot_runs"]

Array = np.ndarray[Any, Any]
_COLOURS = ("#1f6feb", "#d1782a", "#2a9d5c", "#8250df", "#bf3989", "#57606a")
_RETURN, _EVALUATION, _CHANCE = "rollout/ep_rew_mean", "eval/mean_reward", "random/ep_rew_mean"
_LEGEND_CHARACTERS = 110  # in a row, below the axes
_MOST_SEEDS = 5  # that a legend lists
# Settings in which runs may differ and still be seeds of one experiment: they change no result.
_NO_MATTER = frozenset(
    {
        "acting",
        "backend",
        "checkpoint_dir",
        "checkpoint_every",
        "checkpoint_minutes",
        "keep_checkpoints",
        "log_info",
        "output_dir",
        "overwrite",
        "quiet",
        "restarts",
        "seed",
        "start_method",
        "timeout",
        "track",
        "verbose",
        "workers",
    }
)


@dataclass(frozen=True)
class _Curve:
    """One run to be drawn, with its figures read."""

    folder: RunFolder
    metrics: list[dict[str, Any]]
    env: str
    settings: dict[str, Any]

    @classmethod
    def of(cls, path: str | Path) -> _Curve:
        folder = RunFolder.open(path)
        settings = folder.read_config()
        env = folder.read_manifest().get("env", settings.get("env", ""))
        curve = cls(folder, read_metrics(folder.metrics), str(env), settings)
        if not any(len(curve.points(name)[0]) for name in (_RETURN, _EVALUATION)):
            raise SettingsError(
                f"no episode of {folder.shown} has ended yet, so there is nothing to draw",
                hint="train for longer than an episode takes, or with evaluations (--eval-every)",
            )
        return curve

    def points(self, name: str) -> tuple[Array, Array]:
        """Steps and values of a figure, where it was measured; of two at one step the later."""
        found = {row["step"]: row[name] for row in self.metrics if math.isfinite(row.get(name, math.nan))}
        return np.array(list(found), np.int64), np.array(list(found.values()), np.float64)

    def is_seed_of(self, other: _Curve) -> bool:
        """Whether the two differ in their seeds and in nothing else that changes a result."""
        own, others = (
            {name: value for name, value in curve.settings.items() if name not in _NO_MATTER} for curve in (self, other)
        )
        return self.env == other.env and own == others


def plot_runs(
    paths: Sequence[str | Path], output: str | Path, *, title: str | None = None, apart: bool = False
) -> Path:
    """Writes the mean returns of the runs over their steps, with their evaluations and random play where measured.

    Runs that differ only in their seed become one line, their mean, in a band from the lowest to the highest of them;
    `apart` draws a line for each.
    """
    output = Path(output)
    if output.suffix.lower() not in {".png", ".pdf", ".svg"}:
        raise SettingsError(f"received the picture {output}, expected a name that ends in .png, .pdf or .svg")
    curves = [_Curve.of(path) for path in paths]
    groups = [[curve] for curve in curves] if apart else _by_seed(curves)
    _draw(groups, output, title or _title(curves))
    return output


def _by_seed(curves: Sequence[_Curve]) -> list[list[_Curve]]:
    """The runs in groups that differ in their seeds alone; each in one of its own if two of them have the same seed."""
    groups: list[list[_Curve]] = []
    for curve in curves:
        group = next((group for group in groups if curve.is_seed_of(group[0])), None)
        if group is None:
            groups.append([curve])
        else:
            group.append(curve)
    alike: list[list[_Curve]] = []
    for group in groups:
        seeds = {curve.settings.get("seed") for curve in group}
        alike += [group] if len(seeds) == len(group) and _common(group) is not None else [[curve] for curve in group]
    return alike


def _common(group: Sequence[_Curve]) -> tuple[Array, Array] | None:
    """The steps that all returns of a group cover, and their values there [run, step]; None if there are none."""
    points = [curve.points(_RETURN) for curve in group]
    if any(len(steps) == 0 for steps, _ in points):
        return None
    first, last = max(steps[0] for steps, _ in points), min(steps[-1] for steps, _ in points)
    every = np.unique(np.concatenate([steps for steps, _ in points]))
    steps = every[(every >= first) & (every <= last)]
    return (steps, np.array([np.interp(steps, *own) for own in points])) if len(steps) else None


def _title(curves: Sequence[_Curve]) -> str:
    return ", ".join(dict.fromkeys(curve.env for curve in curves))


# ---- drawing ----


def _draw(groups: Sequence[Sequence[_Curve]], output: Path, title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(7.5, 4.2), dpi=120, layout="constrained")  # without pyplot: the caller's plots stay
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    several = len({group[0].env for group in groups}) > 1
    evaluated = False
    for place, group in enumerate(groups):
        colour = _COLOURS[place % len(_COLOURS)]
        label = f"{group[0].env}: {_label(group)}" if several else _label(group)
        evaluated |= (_draw_run if len(group) == 1 else _draw_seeds)(axes, group, colour, label)
    handles, labels = axes.get_legend_handles_labels()
    if evaluated:
        colour = _COLOURS[0] if len(groups) == 1 else "#57606a"
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
    """The return of random play in each environment where it was measured."""
    found: dict[str, list[float]] = {}
    for curve in (curve for group in groups for curve in group):
        found.setdefault(curve.env, []).extend(curve.points(_CHANCE)[1].tolist())
    return {env: sum(values) / len(values) for env, values in found.items() if values}


def _draw_run(axes: Any, group: Sequence[_Curve], colour: str, label: str) -> bool:
    """One run: a line, and a dot for each evaluation; whether it has some."""
    (curve,) = group
    axes.plot(*curve.points(_RETURN), color=colour, linewidth=1.6, label=label)
    steps, scores = curve.points(_EVALUATION)
    if len(steps):
        axes.plot(steps, scores, "o", color=colour, markersize=5)
    return len(steps) > 0


def _draw_seeds(axes: Any, group: Sequence[_Curve], colour: str, label: str) -> bool:
    """The seeds of one experiment: their mean in a band; dots for the evaluations that all of them have."""
    common = _common(group)
    assert common is not None, "a group has steps in common"
    steps, returns = common
    axes.plot(steps, returns.mean(axis=0), color=colour, linewidth=1.6, label=label)
    axes.fill_between(steps, returns.min(axis=0), returns.max(axis=0), color=colour, alpha=0.18, linewidth=0)
    scores = [dict(zip(*(part.tolist() for part in curve.points(_EVALUATION)), strict=True)) for curve in group]
    shared = sorted(set.intersection(*map(set, scores)))
    if shared:
        values = np.array([[own[step] for step in shared] for own in scores])
        mean = values.mean(axis=0)
        ends = np.abs(np.array([values.min(axis=0), values.max(axis=0)]) - mean)
        axes.errorbar(shared, mean, ends, fmt="o", color=colour, markersize=5, elinewidth=1)
    return bool(shared)


def _label(group: Sequence[_Curve]) -> str:
    if len(group) == 1:
        return group[0].folder.path.name
    seeds = f"seeds {', '.join(str(curve.settings.get('seed')) for curve in group)}"
    if len(group) > _MOST_SEEDS:
        seeds = f"{len(group)} seeds"
    return f"{group[0].settings.get('algorithm')}, mean of {seeds} (band: lowest to highest)"


def steps_text(value: float) -> str:
    """A number of steps at an axis, exact: 500, 2.5k, 1.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{unit}"
    return f"{value:.6g}"
