"""The report of a comparison: a table, and maps as images and GeoTIFF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from envfleet.environments.wildfire.baselines import breaks_from
from envfleet.environments.wildfire.fire import FireModel, draw_fires
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.observation import fuel_hazard
from envfleet.environments.wildfire.rasters import write_geotiff
from envfleet.seeding import stream

if TYPE_CHECKING:
    from envfleet.environments.wildfire.comparison import Plan
    from envfleet.environments.wildfire.environment import WildfireEnv

__all__ = ["comparison_table", "summary", "write_report"]

_AGENT, _GREEDY = "agent", "greedy"
_FIRES_IN_A_MAP = 200
_STREAM = 0x3A9


def write_report(
    folder: Path,
    figures: dict[str, Any],
    landscapes: list[Landscape],
    results: list[dict[str, Plan]],
    env: WildfireEnv,
) -> str:
    """Write report.md and the maps of some landscapes. Returns the table as text for a terminal."""
    lines = ["# Fuel breaks: the agent beside others", "", summary(figures), "", comparison_table(figures), ""]
    for number, (landscape, plans) in enumerate(zip(landscapes, results, strict=True)):
        name = f"landscape-{number}"
        _write_maps(folder, name, landscape, plans, env, shown_way(figures))
        lines += [f"## {landscape.name}", "", f"![Burn probability with each one's breaks]({name}.png)", ""]
        lines.append(
            f"`{name}-breaks.tif` has the agent's breaks in their order, 1 for the first to build; "
            f"`{name}-burn-probability.tif` the share of fires that burn a cell when all of them are there.\n"
        )
    (folder / "report.md").write_text("\n".join(lines), encoding="utf-8")
    return f"{summary(figures)}\n{_as_text(figures)}report and maps: {folder}\n"


def summary(figures: dict[str, Any]) -> str:
    """One sentence on what was compared."""
    where = "landscapes of the training, with other fires"
    if figures["held_out"]:
        where = "landscapes that training had not"
    elif figures.get("other_crops"):
        where = "other crops of the same rasters, which may overlap those of training"
    return (
        f"{figures['landscapes']} {where}, {figures['cells'][0]} × {figures['cells'][1]} cells, "
        f"{figures['breaks']:.0f} breaks each, burned by the same {figures['test_fires']} fires of "
        f"{figures['spread_minutes']:g} minutes; all methods that simulate fires planned with the same "
        f"{figures['planned_fires']} others."
    )


def shown_way(figures: dict[str, Any]) -> str:
    """Name of the method that the maps show: the agent, with its search if there is one."""
    return _AGENT if figures["search"] is None else f"{_AGENT}, search {figures['search']}"


def _rows(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [_HEADS]
    for name, way in figures["ways"].items():
        burned = f"{way['burned_hectares']:.2f}{_interval(way['confidence_interval'])}"
        differences = [_more(name, way, other) for other in (_AGENT, _GREEDY)]
        rows.append((name, burned, *differences, f"{way['seconds_per_landscape']:.3f}"))
    return rows


def _more(name: str, way: dict[str, Any], other: str) -> str:
    """The paired difference to another method. Empty for the method itself, and if the other one was left out."""
    key = f"more_than_{other}"
    if name == other or key not in way:
        return ""
    return f"{way[key]:+.2f}{_interval(way[f'{key}_interval'], sign='+')}"


def _interval(bounds: Any, sign: str = "") -> str:
    return "" if bounds is None else f" ({bounds[0]:{sign}.2f} to {bounds[1]:{sign}.2f})"


_HEADS = ("breaks by", "burned ha", "more than the agent", "more than greedy", "s per landscape")


def comparison_table(figures: dict[str, Any]) -> str:
    """The Markdown table: burned hectares with 95 % intervals, and paired differences to the agent and to greedy."""
    heads, *rows = _rows(figures)
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ("---",) * len(heads), *rows))


def _as_text(figures: dict[str, Any]) -> str:
    rows = _rows(figures)
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


# ---- maps


def _write_maps(
    folder: Path, name: str, landscape: Landscape, plans: dict[str, Plan], env: WildfireEnv, shown: str
) -> None:
    fires = draw_fires(landscape, stream(0, _STREAM), _FIRES_IN_A_MAP)
    minutes = env.settings.spread_minutes
    burned = {way: _probability(landscape, plan, fires, env.fire_model, minutes) for way, plan in plans.items()}
    order = np.zeros(landscape.shape, np.uint16)
    order.ravel()[plans[shown].cells] = 1 + np.arange(len(plans[shown].cells))
    write_geotiff(folder / f"{name}-breaks.tif", order, landscape)
    write_geotiff(folder / f"{name}-burn-probability.tif", burned[shown].astype(np.float32), landscape)
    _draw(folder / f"{name}.png", landscape, plans, burned, order, shown)


def _probability(landscape: Landscape, plan: Plan, fires: Any, model: FireModel, minutes: float) -> NDArray[np.float64]:
    """Share of fires that burn each cell."""
    arrival = model(landscape, fires, breaks_from(landscape, plan.cells), minutes)
    probability: NDArray[np.float64] = np.isfinite(arrival).mean(axis=0)
    return probability


def _draw(
    path: Path,
    landscape: Landscape,
    plans: dict[str, Plan],
    burned: dict[str, NDArray[np.float64]],
    order: NDArray[np.uint16],
    planner: str,
) -> None:
    """Draw fuels, the agent's breaks in their order, and the burn probability with each method's breaks."""
    from matplotlib.figure import Figure

    # Without greedy (large landscapes), the agent without its search takes its place.
    shown = ["no breaks", "centrality", _GREEDY if _GREEDY in plans else _AGENT, planner]
    figure = Figure(figsize=(13.5, 9), layout="constrained")
    axes = figure.subplots(2, 3)
    hazard = fuel_hazard()[landscape.layer("fuel_model").astype(np.int64)]
    fuels = axes[0, 0].imshow(np.where(landscape.burnable, hazard, np.nan), cmap="YlGn_r", vmin=0, vmax=1)
    axes[0, 0].set_title("fuels (bright: fast; grey: does not burn)")
    figure.colorbar(fuels, ax=axes[0, 0], shrink=0.8)
    ranked = axes[1, 0].imshow(np.where(order > 0, order, np.nan), cmap="viridis_r")
    axes[1, 0].set_title("the agent's breaks, the first to build bright")
    figure.colorbar(ranked, ax=axes[1, 0], shrink=0.8)
    most = max(float(values.max()) for values in burned.values())
    for axis, way in zip((axes[0, 1], axes[0, 2], axes[1, 1], axes[1, 2]), shown, strict=True):
        values = np.where(landscape.burnable, burned[way], np.nan)
        picture = axis.imshow(values, cmap="YlOrRd", vmin=0, vmax=most)
        rows, columns = np.divmod(plans[way].cells, landscape.shape[1])
        axis.scatter(columns, rows, marker="s", s=14, color="black")
        axis.set_title(f"{way}: {plans[way].hectares:.2f} ha burn")
        figure.colorbar(picture, ax=axis, shrink=0.8)
    for axis in axes.ravel():
        axis.set_facecolor("0.8")
        axis.set_xticks([])
        axis.set_yticks([])
    figure.suptitle(f"{landscape.name}: share of fires that burn a cell; breaks are black")
    figure.savefig(path, dpi=90)
