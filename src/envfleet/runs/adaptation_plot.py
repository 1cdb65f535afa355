"""The adaptation plot: the return of each episode of a trial, of several agents, with known returns as lines."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.runs.adaptation import Adaptation, Interval
from envfleet.runs.durable import write_whole, writing
from envfleet.runs.grouping import COLOURS

__all__ = ["plot_adaptation"]

_DASHES, _GREY = ("--", ":", "-."), "#57606a"


def plot_adaptation(
    agents: Mapping[str, Adaptation], known: Mapping[str, tuple[float, ...]], output: Path, title: str
) -> None:
    """Plot the agents by name, the first one prominently, and known returns of each episode by name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=120, layout="constrained")  # without pyplot: spares the caller's plots
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    first = next(iter(agents.values()))
    if len(first.episode_returns) == 1:
        _bars(axes, agents, known)
    else:
        _curves(axes, agents, known)
    tasks = f"mean of {first.tasks:,} tasks, 95 % intervals"
    (axes.set_xlabel if len(first.episode_returns) == 1 else axes.set_ylabel)(f"return, {tasks}")
    axes.set_title(title, wrap=True, fontsize=10)
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    axes.spines[["top", "right"]].set_visible(False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    with writing("the picture", output, "or free some space"):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, picture.getvalue())


def _curves(axes: Any, agents: Mapping[str, Adaptation], known: Mapping[str, tuple[float, ...]]) -> None:
    """A curve over the episodes for each."""
    for place, (name, adaptation) in enumerate(agents.items()):
        means = np.array(adaptation.episode_returns)
        numbers = np.arange(1, len(means) + 1)
        low, high = _errors(adaptation)
        axes.errorbar(
            numbers,
            means,
            [low, high],
            fmt="o-",
            color=COLOURS[place % len(COLOURS)],
            linewidth=2.2 if place == 0 else 1.2,
            capsize=4,
            label=name,
        )
    for place, (name, returns) in enumerate(known.items()):
        numbers = np.arange(1, len(returns) + 1)
        axes.plot(numbers, returns, linestyle=_DASHES[place % len(_DASHES)], color=_GREY, linewidth=1.4, label=name)
    axes.set_xlabel("episode of the trial")
    axes.set_xticks(numbers[:: max(1, len(numbers) // 10)])
    axes.margins(x=0.12)


def _bars(axes: Any, agents: Mapping[str, Adaptation], known: Mapping[str, tuple[float, ...]]) -> None:
    """A bar for each agent, since its trials have one episode, and vertical lines at known returns."""
    names = list(agents)
    means = [agents[name].trial_return for name in names]
    errors = np.array([_errors(agents[name]) for name in names])[:, :, 0].T
    colours = [COLOURS[place % len(COLOURS)] for place in range(len(names))]
    axes.barh(names, means, xerr=errors, color=colours, height=0.5, capsize=4)
    for place, (name, returns) in enumerate(known.items()):
        axes.axvline(sum(returns), linestyle=_DASHES[place % len(_DASHES)], color=_GREY, label=name)
    axes.set_ylim(len(names) - 0.3, -0.7)  # the first agent on top
    axes.margins(x=0.1)


def _errors(adaptation: Adaptation) -> tuple[list[float], list[float]]:
    """The distances of the interval's ends from each mean: over runs if there are several, otherwise over tasks."""
    intervals: tuple[Interval, ...] = adaptation.episode_intervals_of_runs or adaptation.episode_intervals
    pairs = list(zip(adaptation.episode_returns, intervals, strict=True))
    return (
        [0.0 if interval is None else mean - interval[0] for mean, interval in pairs],
        [0.0 if interval is None else interval[1] - mean for mean, interval in pairs],
    )
