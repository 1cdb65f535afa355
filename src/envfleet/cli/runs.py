"""`envfleet runs`: what runs there are, how far and how good."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from envfleet.errors import SettingsError

if TYPE_CHECKING:
    from envfleet.runs.folder import RunSummary

__all__ = ["Runs"]

_STYLES = {"running": "green", "finished": "", "stopped": "yellow"}


@dataclass(frozen=True)
class Runs:
    """List the runs in a folder, the latest first: how far, how good, and whether they go on."""

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = "runs"
    """The folder of the runs, or one run."""

    json: bool = False
    """Print one JSON list instead of the table."""

    def run(self) -> int:
        """Prints the table."""
        from envfleet.runs.folder import runs_in

        folder = Path(self.folder)
        if not folder.is_dir() and self.folder != "runs":
            raise SettingsError(f"there is no folder {folder}", hint="name the folder that the runs are in")
        found = runs_in(folder)
        if (folder / "manifest.json").is_file():  # it is a run itself
            found = [run for run in runs_in(folder.resolve().parent) if run.path.name == folder.resolve().name]
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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    for heading in ("env", "with", "state"):
        table.add_column(heading, no_wrap=heading != "env", overflow="fold")
    for heading in ("seed", "steps", "done", "return", "best", "age"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in found:
        table.add_row(
            str(run.path),
            run.env,
            run.algorithm,
            Text(run.state, _STYLES[run.state]),
            "-" if run.seed is None else str(run.seed),
            f"{run.steps:,}" if run.steps < 1_000_000 else f"{run.steps / 1e6:.1f} M",
            f"{min(1.0, run.steps / run.budget):.0%}" if run.budget else "-",
            _figure(run.last_return),
            _figure(run.best_evaluation),
            _age(run.age),
        )
    Console(highlight=False).print(table)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
