"""The four panels of a comparison as plain data, for both the image and the HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from envfleet.confidence import interquartile_mean
from envfleet.runs.comparison.comparison import GroupMetrics, RunComparison
from envfleet.runs.comparison.run_metrics import WORKERS_ONLY, RunMetrics, Series

__all__ = ["Line", "Panel", "panels_of"]

Array = np.ndarray[Any, Any]

_POINTS = 200  # points per curve
_WINDOWS = 50  # for measuring the speed of a run
_RESAMPLES = 1000


@dataclass(frozen=True)
class Line:
    """A curve of a group or of one of its runs."""

    group: int
    name: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None  # the band around the line
    high: list[float] | None = None
    kind: Literal["group", "run"] = "group"
    axis: Literal["left", "right"] = "left"


@dataclass(frozen=True)
class Panel:
    """One of the four plots."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    from_zero: bool = False  # start the vertical axis at zero
    right_label: str | None = None
    remark: str | None = None  # a note shown below the title

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def panels_of(comparison: RunComparison) -> list[Panel]:
    """Return over steps, return over time, throughput, and memory with CPU."""
    longest = max(run.seconds for run in comparison.runs)
    unit, size = next((unit, size) for unit, size, most in _UNITS if longest < most)
    groups = comparison.groups
    returns = "return, mean of 100 episodes"
    several = any(len(group.seeds) > 1 for group in groups)
    band = "lines: interquartile mean over seeds; bands: its 95 % interval" if several else None
    none_ended = None if any(len(run.returns) for run in comparison.runs) else "no episode has ended"
    over_time = _over_time(comparison, size)
    return [
        Panel(
            "Return over steps",
            "environment steps",
            returns,
            _lines(groups, lambda run: run.returns, lambda series: series.steps),
            remark=none_ended or band,
        ),
        Panel(
            "Return over time",
            f"training time, {unit}",
            returns,
            _lines(groups, lambda run: run.returns, lambda series: series.seconds / size),
            remark=none_ended or band,
        ),
        Panel(
            "Throughput",
            f"training time, {unit}",
            "environment steps per second",
            _lines(groups, _speed, lambda series: series.seconds / size),
            from_zero=True,
        ),
        replace(over_time, x_label=f"training time, {unit}"),
    ]


_UNITS = (("seconds", 1.0, 300.0), ("minutes", 60.0, 3 * 3600.0), ("hours", 3600.0, float("inf")))


def _over_time(comparison: RunComparison, size: float) -> Panel:
    """Memory and CPU, as far as recorded."""
    groups = comparison.groups
    memory = _lines(groups, lambda run: run.memory[1], lambda series: series.seconds / size)
    cpu = _lines(groups, lambda run: run.cpu, lambda series: series.seconds / size)
    kinds = {kind for run in comparison.runs if (kind := run.memory[0]) is not None}
    remarks = [] if memory else ["memory is not recorded"]
    if len(kinds) > 1:
        parts = {group.label: group.runs[0].memory[0] for group in groups}
        remarks.append("memory covers " + ", ".join(f"{kind} ({label})" for label, kind in parts.items()))
    elif memory and WORKERS_ONLY in kinds:
        remarks.append(f"memory covers {WORKERS_ONLY}")
    remarks += [] if cpu else ["CPU is not recorded"]
    return Panel(
        "Memory and CPU",
        "",
        "memory, MiB",
        [*memory, *(replace(line, axis="right") for line in cpu)],
        from_zero=True,
        right_label="CPU, % of a core (dashed)" if cpu else None,
        remark="; ".join(remarks) or None,
    )


def _lines(
    groups: Sequence[GroupMetrics], series_of: Callable[[RunMetrics], Series], place_of: Callable[[Series], Array]
) -> list[Line]:
    """One line per group for all its seeds, and one per run if there are several."""
    lines = []
    for number, group in enumerate(groups):
        curves = {run: (place_of(series), series.values) for run in group.runs if len(series := series_of(run))}
        if not curves:
            continue
        if len(curves) > 1:
            lines += [Line(number, run.name, *_thinned(*curve), kind="run") for run, curve in curves.items()]
        by_seed: dict[int | None, list[tuple[Array, Array]]] = {}
        for run, curve in curves.items():
            by_seed.setdefault(run.seed, []).append(curve)
        lines.append(_together(number, group.label, [_mean(each) for each in by_seed.values()]))
    return lines


def _mean(curves: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Mean of the runs of one seed, which are no further evidence."""
    if len(curves) == 1:
        return curves[0]
    places, values = _aligned(curves)
    return places, values.mean(axis=0)


def _aligned(curves: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Places in the common range of the curves, and the values there [curve, place]."""
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if last < first:  # the ranges do not overlap
        first, last = min(x[0] for x, _ in curves), max(x[-1] for x, _ in curves)
    places = np.linspace(first, last, _POINTS)
    return places, np.array([np.interp(places, x, y) for x, y in curves])


def _together(number: int, label: str, curves: Sequence[tuple[Array, Array]]) -> Line:
    """Interquartile mean of the curves of several seeds over their common range, with its 95 % interval."""
    if len(curves) == 1:
        return Line(number, label, *_thinned(*curves[0]))
    places, values = _aligned(curves)  # [seed, place]
    drawn = np.random.default_rng(0).integers(len(curves), size=(_RESAMPLES, len(curves)))
    resampled = np.swapaxes(values[drawn], 1, 2)[..., None]  # [resample, place, seed, task]
    low, high = np.percentile(interquartile_mean(resampled), (2.5, 97.5), axis=0)
    middle = interquartile_mean(values.T[..., None])
    return Line(number, label, _plain(places), _plain(middle), low=_plain(low), high=_plain(high))


def _speed(run: RunMetrics) -> Series:
    """Steps per second in windows of equal time, because single updates vary too much."""
    reached = run.throughput
    edges = np.linspace(0.0, run.seconds, min(_WINDOWS, len(reached) - 1) + 1)
    steps = np.interp(edges, reached.seconds, reached.steps)
    middles = (edges[1:] + edges[:-1]) / 2
    return Series(np.interp(middles, reached.seconds, reached.steps), middles, np.diff(steps) / np.diff(edges))


def _thinned(x: Array, y: Array) -> tuple[list[float], list[float]]:
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), _POINTS)).astype(int))
    return _plain(x[chosen]), _plain(y[chosen])


def _plain(values: Array) -> list[float]:
    """Round to the digits that a plot shows."""
    return [float(f"{value:.6g}") for value in values]
