"""`envfleet runs`: list runs with their progress and returns."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from envfleet.errors import SettingsError
from envfleet.paths import expanded

if TYPE_CHECKING:
    from envfleet.runs.listing import RunSummary

__all__ = ["Runs"]

_HEADINGS = ("run", "env", "algo", "state", "seed", "steps", "done", "return", "best", "age")
_TEXTS = ("run", "env", "algo", "state")  # left-aligned; the others are numbers
_IN_NAMES = ("env", "algo", "seed")  # the default name of a run has them
_LEAST_IMPORTANT = ("done", "age", "seed", "algo", "best")  # left out in this order if there is no room
_GAP = 2  # spaces between two columns
_SHORTEST_NAME = 10
_READABLE_NAME = 32  # columns are not left out to show more of longer names
_ENDLESS = 10_000  # width of the table in a pipe
_STYLES = {"running": "green", "finished": "", "stopped": "yellow"}


@dataclass(frozen=True)
class Runs:
    """List the runs in a folder, the latest first: state, steps, return and best evaluation."""

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = "runs"
    """The folder that contains the runs, or one run folder."""

    json: bool = False
    """Print one JSON list instead of the table."""

    def run(self) -> int:
        """Print the table."""
        from envfleet.runs.folder import RunFolder
        from envfleet.runs.listing import runs_in, summary_of

        folder = expanded(self.folder)
        if not folder.is_dir() and self.folder != "runs":
            raise SettingsError(f"there is no folder {folder}", hint="name the folder that the runs are in")
        is_a_run = (folder / "manifest.json").is_file()
        found = [summary_of(RunFolder.open(folder))] if is_a_run else runs_in(folder)
        if self.json:
            sys.stdout.write(json.dumps([_as_json(run) for run in found], indent=2) + "\n")
        elif not found:
            sys.stdout.write(f"there are no runs in {folder}\nhint: envfleet train ppo --env CartPole-v1\n")
        else:
            _show(found)
        return 0


def _as_json(run: RunSummary) -> dict[str, Any]:
    return {**asdict(run), "path": str(run.path)}


def _show(found: list[RunSummary]) -> None:
    """Print one line per run. A narrow terminal gets fewer columns and shorter names; a pipe gets all in full."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = dict(zip(_HEADINGS, map(list, zip(*map(_cells, found), strict=True)), strict=True))
    console = Console(highlight=False)
    width = console.width if console.is_terminal else _ENDLESS
    if _width(columns) > width and (parent := _leave_out_parent(columns)):
        console.print(f"in {parent}{os.sep}", markup=False, soft_wrap=True)
    _leave_out_columns(columns, width)
    _shorten_names(columns, width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for heading in columns:
        table.add_column(heading, justify="left" if heading in _TEXTS else "right", no_wrap=True)
    for run, row in zip(found, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*(Text(cell, _STYLES[run.state] if cell == run.state else "") for cell in row))
    Console(highlight=False, width=max(width, _width(columns) + _GAP)).print(table, crop=False)


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(len, [heading, *cells])) + _GAP for heading, cells in columns.items()) - _GAP


def _leave_out_parent(columns: dict[str, list[str]]) -> str:
    """Shorten the paths of runs to what follows the folder that they are all in; return that folder."""
    paths = [Path(path) for path in columns["run"]]
    parent = os.path.commonpath([path.parent for path in paths])
    columns["run"] = [str(path.relative_to(parent)) for path in paths]
    return "" if parent == "." else parent


def _leave_out_columns(columns: dict[str, list[str]], width: int) -> None:
    """Leave out columns that repeat what names say, then the least important ones, until the names are readable."""
    longest = max(map(len, columns["run"]))
    readable = min(longest, _READABLE_NAME)
    for heading in _IN_NAMES:
        if _width(columns) > width and all(map(_has_part, columns["run"], columns[heading])):
            del columns[heading]
            readable = longest  # now only the name says it
    for heading in _LEAST_IMPORTANT:
        if heading in columns and _width(columns) - longest + readable > width:
            del columns[heading]


def _has_part(name: str, cell: str) -> bool:
    return f"__{cell.replace('/', '-')}__" in f"__{name}__"


def _shorten_names(columns: dict[str, list[str]], width: int) -> None:
    """Shorten the names of runs, then those of environments. The end of a name tells runs apart."""
    for heading in ("run", "env"):
        longest = max(map(len, columns.get(heading, [""])))
        most = max(_SHORTEST_NAME, longest - max(0, _width(columns) - width))
        if most < longest:
            columns[heading] = [_shortened(cell, most) for cell in columns[heading]]


def _shortened(name: str, width: int) -> str:
    beginning = width // 3
    return name if len(name) <= width else f"{name[:beginning]}…{name[len(name) - (width - 1 - beginning) :]}"


def _cells(run: RunSummary) -> list[str]:
    return [
        str(run.path),
        run.env,
        run.algorithm,
        run.state,
        "-" if run.seed is None else str(run.seed),
        f"{run.steps:,}" if run.steps < 1_000_000 else f"{run.steps / 1e6:.1f} M",
        f"{min(1.0, run.steps / run.budget):.0%}" if run.budget else "-",
        _figure(run.last_return),
        _figure(run.best_evaluation),
        _age(run.age),
    ]


def _figure(value: float | None) -> str:
    from envfleet.runs.live_view import number

    return "-" if value is None else number(value)


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
