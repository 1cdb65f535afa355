"""`envfleet runs`: list runs with their progress and returns."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from envfleet.errors import SettingsError
from envfleet.paths import expanded

if TYPE_CHECKING:
    from envfleet.runs.listing import RunSummary

__all__ = ["Runs"]

_HEADINGS = ("run", "env", "algo", "state", "seed", "steps", "done", "return", "best", "age")
_TEXTS = 4  # the first columns are text, the rest are numbers
_GAP = 2  # spaces between two columns
_SHORTEST_NAME = 10
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
    """Print one line per run. A terminal shortens long names in the middle; a pipe gets them in full."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from envfleet.runs.live_view import shortened

    rows = [_cells(run) for run in found]
    console = Console(highlight=False)
    width = console.width if console.is_terminal else _ENDLESS
    taken = [max(map(len, column)) + _GAP for column in zip(_HEADINGS, *rows, strict=True)]
    for place in (0, 1):  # the names of runs, then those of environments
        most = max(_SHORTEST_NAME, taken[place] - _GAP - max(0, sum(taken) - _GAP - width))
        for row in rows:
            row[place] = shortened(row[place], most)
        taken[place] = min(taken[place], most + _GAP)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for place, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if place < _TEXTS else "right", no_wrap=True)
    for run, row in zip(found, rows, strict=True):
        table.add_row(*(Text(cell, _STYLES[run.state] if cell == run.state else "") for cell in row))
    Console(highlight=False, width=max(width, sum(taken))).print(table, crop=False)


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
