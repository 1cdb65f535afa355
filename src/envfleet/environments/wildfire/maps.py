"""Maps of a plan: breaks in their order and their uncertainty over fires, as PNG, GeoTIFF and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from envfleet.confidence import confidence_interval
from envfleet.environments.wildfire.baselines import breaks_from
from envfleet.environments.wildfire.fire import Fire, FireModel, draw_fires
from envfleet.environments.wildfire.landscape import Landscape
from envfleet.environments.wildfire.lookahead import Lookahead
from envfleet.environments.wildfire.observation import fuel_hazard
from envfleet.environments.wildfire.rasters import write_geotiff
from envfleet.seeding import stream

if TYPE_CHECKING:
    from envfleet.environments.wildfire.comparison import Plan

__all__ = ["AreaAfterBreak", "Mapped", "area_after_breaks", "write_maps"]

_FIRES = 200
_STREAM = 0x3A9


@dataclass(frozen=True)
class Mapped:
    """A landscape to map, with the plans of all methods."""

    landscape: Landscape
    plans: dict[str, Plan]
    shown: str  # the method whose breaks are ranked
    agreement: NDArray[np.float32]  # share of its plans with other fires that have a break in a cell: [row, column]
    agreeing: int  # number of those plans


@dataclass(frozen=True)
class AreaAfterBreak:
    """Area that fires burn once the first breaks of a plan are built."""

    breaks: int
    hectares: float
    interval: tuple[float, float]  # 95 %, over fires


def write_maps(folder: Path, name: str, mapped: Mapped, model: FireModel, minutes: float) -> None:
    """Write `name`.png, three GeoTIFFs and a CSV file."""
    landscape, shown = mapped.landscape, mapped.plans[mapped.shown]
    fires = draw_fires(landscape, stream(0, _STREAM), _FIRES)
    burned = {way: _probability(landscape, plan, fires, model, minutes) for way, plan in mapped.plans.items()}
    order = np.zeros(landscape.shape, np.uint16)
    order.ravel()[shown.cells] = 1 + np.arange(len(shown.cells))
    write_geotiff(folder / f"{name}-breaks.tif", order, landscape)
    write_geotiff(folder / f"{name}-agreement.tif", mapped.agreement, landscape)
    write_geotiff(folder / f"{name}-burn-probability.tif", burned[mapped.shown].astype(np.float32), landscape)
    areas = area_after_breaks(landscape, shown.cells, fires, model, minutes)
    rows = [f"{area.breaks},{area.hectares:.4f},{area.interval[0]:.4f},{area.interval[1]:.4f}" for area in areas]
    table = "\n".join(["breaks,burned_hectares,low,high", *rows])
    (folder / f"{name}-burned-area.csv").write_text(f"{table}\n", encoding="utf-8")
    _draw(folder / f"{name}.png", mapped, burned, order, areas)


def area_after_breaks(
    landscape: Landscape, cells: NDArray[np.int64], fires: Sequence[Fire], model: FireModel, minutes: float
) -> list[AreaAfterBreak]:
    """The mean area that fires burn without breaks, with the first one, with the first two, and so on."""
    ahead, areas = Lookahead(landscape, fires, model, minutes), []
    for count in range(len(cells) + 1):
        ahead.place(breaks_from(landscape, cells[:count]))
        hectares = (ahead.burned_cells * landscape.hectares_per_cell).tolist()
        mean = float(np.mean(hectares))
        areas.append(AreaAfterBreak(count, mean, confidence_interval(hectares) or (mean, mean)))
    return areas


def _probability(landscape: Landscape, plan: Plan, fires: Any, model: FireModel, minutes: float) -> NDArray[np.float64]:
    """Share of fires that burn each cell."""
    arrival = model(landscape, fires, breaks_from(landscape, plan.cells), minutes)
    probability: NDArray[np.float64] = np.isfinite(arrival).mean(axis=0)
    return probability


def _draw(
    path: Path,
    mapped: Mapped,
    burned: dict[str, NDArray[np.float64]],
    order: NDArray[np.uint16],
    areas: list[AreaAfterBreak],
) -> None:
    """Draw fuels, the ranked breaks and their uncertainty, and the burn probability with each method's breaks."""
    from matplotlib.figure import Figure

    landscape = mapped.landscape
    figure = Figure(figsize=(18, 9), layout="constrained")
    axes = figure.subplots(2, 4)
    hazard = fuel_hazard()[landscape.layer("fuel_model").astype(np.int64)]
    for axis, values, colours, title in (
        (axes[0, 0], np.where(landscape.burnable, hazard, np.nan), "YlGn_r", "fuels (bright: fast; grey: none)"),
        (axes[1, 0], np.where(order > 0, order, np.nan), "viridis_r", f"{mapped.shown}: the first to build bright"),
        (
            axes[1, 1],
            np.where(mapped.agreement > 0, mapped.agreement, np.nan),
            "viridis_r",
            f"share of {mapped.agreeing} plans with other fires",
        ),
    ):
        figure.colorbar(axis.imshow(values, cmap=colours), ax=axis, shrink=0.8)
        axis.set_title(title)
    # Greedy search is left out on large landscapes. The agent without its search takes its place.
    ways = ["no breaks", "centrality", "greedy" if "greedy" in mapped.plans else "agent", mapped.shown]
    most = max(float(values.max()) for values in burned.values())
    for axis, way in zip((axes[0, 1], axes[0, 2], axes[0, 3], axes[1, 2]), ways, strict=True):
        values = np.where(landscape.burnable, burned[way], np.nan)
        picture = axis.imshow(values, cmap="YlOrRd", vmin=0, vmax=most)
        rows, columns = np.divmod(mapped.plans[way].cells, landscape.shape[1])
        axis.scatter(columns, rows, marker="s", s=14 * (25 / max(landscape.shape)) ** 2, color="black")
        axis.set_title(f"{way}: {mapped.plans[way].hectares:.2f} ha burn")
        figure.colorbar(picture, ax=axis, shrink=0.8)
    for axis in axes.ravel()[:-1]:
        axis.set_facecolor("0.8")
        axis.set_xticks([])
        axis.set_yticks([])
    _draw_areas(axes[1, 3], areas)
    figure.suptitle(f"{landscape.name}: share of fires that burn a cell; breaks are black")
    figure.savefig(path, dpi=80)


def _draw_areas(axis: Any, areas: list[AreaAfterBreak]) -> None:
    counts = [area.breaks for area in areas]
    lows, highs = zip(*(area.interval for area in areas), strict=True)
    axis.plot(counts, [area.hectares for area in areas])
    axis.fill_between(counts, lows, highs, alpha=0.3)
    axis.set_title("ha burned after each break (95 % over fires)")
    axis.set_xlabel("breaks")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
