"""The report of a comparison: a table and maps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envfleet.environments.wildfire.environment import WildfireEnv
    from envfleet.environments.wildfire.maps import Mapped

__all__ = ["comparison_table", "summary", "write_report"]

_AGENT, _GREEDY = "agent", "greedy"


def write_report(folder: Path, figures: dict[str, Any], mapped: list[Mapped], env: WildfireEnv) -> str:
    """Write report.md and the maps of some landscapes. Returns the table as text for a terminal."""
    from envfleet.environments.wildfire.maps import write_maps

    lines = ["# Fuel breaks: the agent beside others", "", summary(figures), "", comparison_table(figures), ""]
    for old in folder.glob("landscape-*"):  # maps of an earlier report would look like part of this one
        old.unlink()
    for number, each in enumerate(mapped):
        name = f"landscape-{number}"
        write_maps(folder, name, each, env.fire_model, env.settings.spread_minutes)
        lines += [f"## {each.landscape.name}", "", f"![Burn probability with each one's breaks]({name}.png)", ""]
        lines.append(
            f'`{name}-breaks.tif` has the breaks of "{each.shown}" in their order, 1 for the first to build; '
            f"`{name}-agreement.tif` the share of {each.agreeing} plans, each made with other fires, that have a break "
            f"in a cell; `{name}-burn-probability.tif` the share of fires that burn a cell when all breaks are there; "
            f"`{name}-burned-area.csv` the area that burns after each break, with its 95 % interval over fires.\n"
        )
    (folder / "report.md").write_text("\n".join(lines), encoding="utf-8")
    return f"{summary(figures)}\n{_as_text(figures)}report and maps: {folder}\n"


def summary(figures: dict[str, Any]) -> str:
    """One sentence on what was compared."""
    where = "landscapes of the training, with other fires"
    if figures.get("whole_rasters"):
        where = "landscape, the whole rasters, parts of which training may have seen"
    elif figures["held_out"]:
        where = "landscapes not used in training"
    elif figures.get("other_crops"):
        where = "other crops of the same rasters, which may overlap those of training"
    return (
        f"{figures['landscapes']} {where}, {figures['cells'][0]} × {figures['cells'][1]} cells, "
        f"{figures['breaks']:.0f} breaks each, burned by the same {figures['test_fires']} fires of "
        f"{figures['spread_minutes']:g} minutes; all methods that simulate fires planned with the same "
        f"{figures['planned_fires']} others."
    )


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
