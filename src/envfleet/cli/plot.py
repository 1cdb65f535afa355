"""`envfleet plot`: the learning curve of a run, or of several, as a picture."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from envfleet.errors import SettingsError

__all__ = ["Plot"]


@dataclass(frozen=True)
class Plot:
    """Draw the learning curve of one run or several: returns over steps, evaluations, random play where measured.

    Runs that differ only in their seed become one line, their mean, in a band from the lowest to the highest of them.

    examples:
      envfleet plot runs/cartpole
      envfleet plot runs/seed-1 runs/seed-2 runs/seed-3 --output seeds.png
      envfleet plot runs/seed-1 runs/seed-2 runs/seed-3 --output each.png --apart
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """The folders of the runs."""

    output: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """The picture, .png, .pdf or .svg; report/learning.png in the run by default."""

    apart: bool = False
    """Draw a line for each run, also for runs that differ only in their seed."""

    def run(self) -> int:
        """Writes the picture and prints where it is."""
        if not self.paths:
            raise SettingsError("received no run, expected at least one", hint="`envfleet runs` lists them")
        if self.output is None and len(self.paths) > 1:
            raise SettingsError(f"received {len(self.paths)} runs and no --output", hint="say where the picture goes")
        from envfleet.runs.plot import plot_runs

        output = self.output or Path(self.paths[0]) / "report/learning.png"
        sys.stdout.write(f"plot: {plot_runs(self.paths, output, apart=self.apart)}\n")
        return 0
