"""Learning curves: a picture from the metrics of one run or of several."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envfleet.errors import SettingsError
from envfleet.runs.durable import write_whole, writing
from envfleet.runs.folder import RunFolder
from envfleet.runs.metrics import read_metrics

__all__ = ["plot_runs"]

_COLOURS = ("#1f6feb", "#d1782a", "#2a9d5c", "#8250df", "#bf3989", "#57606a")


def plot_runs(paths: Sequence[str | Path], output: str | Path, *, title: str | None = None) -> Path:
    """Writes the mean returns of the runs over their steps, with their evaluations and random play where measured."""
    output = Path(output)
    if output.suffix.lower() not in {".png", ".pdf", ".svg"}:
        raise SettingsError(f"received the picture {output}, expected a name that ends in .png, .pdf or .svg")
    folders = [RunFolder.open(path) for path in paths]
    rows = [read_metrics(folder.metrics) for folder in folders]
    for folder, metrics in zip(folders, rows, strict=True):
        if not any(_points(metrics, name)[0] for name in ("rollout/ep_rew_mean", "eval/mean_reward")):
            raise SettingsError(
                f"no episode of {folder.shown} has ended yet, so there is nothing to draw",
                hint="train for longer than an episode takes, or with evaluations (--eval-every)",
            )
    _draw(folders, rows, output, title or str(folders[0].read_manifest().get("env", "")))
    return output


def _draw(folders: Sequence[RunFolder], rows: Sequence[list[dict[str, Any]]], output: Path, title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), dpi=120)  # without pyplot: nothing of the caller's own plots changes
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (folder, metrics) in enumerate(zip(folders, rows, strict=True)):
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(*_points(metrics, "rollout/ep_rew_mean"), color=colour, linewidth=1.6, label=folder.path.name)
        evaluations = _points(metrics, "eval/mean_reward")
        if evaluations[0]:
            axes.plot(*evaluations, "o", color=colour, markersize=5, label="evaluation" if len(folders) == 1 else None)
    chance = [value for metrics in rows for value in _points(metrics, "random/ep_rew_mean")[1]]
    if chance:
        mean = sum(chance) / len(chance)
        axes.axhline(mean, color="#666666", linewidth=1, linestyle="--", label=f"random play: {mean:.1f}")
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f}k")
    axes.set_ylabel("return, mean of the last 100 episodes")
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    kind, picture = output.suffix.lower()[1:], io.BytesIO()
    figure.savefig(picture, format=kind, metadata={"Software": None} if kind == "png" else None)
    with writing("the picture", output, "or give another place with --output"):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, picture.getvalue())


def _points(metrics: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Steps and values of a figure, where it was measured."""
    found = [(row["step"], row[name]) for row in metrics if math.isfinite(row.get(name, math.nan))]
    return [step for step, _ in found], [value for _, value in found]
