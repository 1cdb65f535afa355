"""comparison.png: the four panels."""

from __future__ import annotations

import io
from typing import Any

from envfleet.runs.comparison.curves import Panel
from envfleet.runs.grouping import COLOURS
from envfleet.runs.plot import steps_text

__all__ = ["picture_of"]


def picture_of(panels: list[Panel], labels: list[str], title: str) -> bytes:
    """The panels as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(12, 8), dpi=110, layout="constrained")  # without pyplot, to leave the caller's plots alone
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(2, 2).flat, panels, strict=True):
        _draw(axes, panel)
    handles = [Line2D([], [], color=_colour(number), linewidth=2) for number in range(len(labels))]
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)), frameon=False)
    figure.suptitle(title)
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def _draw(axes: Any, panel: Panel) -> None:
    right = axes.twinx() if panel.right_label else axes
    for line in panel.lines:
        target = right if line.axis == "right" else axes
        colour, whole = _colour(line.group), line.kind == "group"
        style: dict[str, Any] = {"linewidth": 1.8 if whole else 0.8, "alpha": 1.0 if whole else 0.35}
        if len(line.x) == 1:  # a line through one point is invisible
            style |= {"marker": "o" if line.axis == "left" else "D", "markersize": 5}
        target.plot(line.x, line.y, color=colour, linestyle="--" if line.axis == "right" else "-", **style)
        if line.low is not None:
            target.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    axes.set_title(panel.title, fontsize="medium", pad=16 if panel.remark else None)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.xaxis.set_major_formatter(lambda value, _: steps_text(value))
    axes.grid(alpha=0.25)
    axes.spines["top"].set_visible(False)
    for each in (axes, right):
        if panel.from_zero:
            each.set_ylim(bottom=0)
    if right is not axes:
        right.set_ylabel(panel.right_label)
        right.spines["top"].set_visible(False)
    else:
        axes.spines["right"].set_visible(False)
    if panel.remark:
        below_title = {"transform": axes.transAxes, "ha": "center", "va": "bottom"}
        axes.text(0.5, 1.01, panel.remark, fontsize="x-small", color="#57606a", **below_title)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
