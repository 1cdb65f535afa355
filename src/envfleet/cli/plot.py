"""`envfleet plot`: plot the learning curves of one or several runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from envfleet.errors import SettingsError
from envfleet.paths import expanded

__all__ = ["Plot"]


@dataclass(frozen=True)
class Plot:
    """Plot the learning curves of one or several runs: returns over steps, evaluations, and random play if measured.

    Runs that differ only in their seed become one line, their mean, with a band from the lowest to the highest run.

    examples:
      envfleet plot runs/cartpole
      envfleet plot runs
      envfleet plot runs/seed-1 runs/seed-2 runs/seed-3 --output seeds.png
      envfleet plot runs/seed-1 runs/seed-2 runs/seed-3 --output each.png --apart
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")]
    """Run folders, or a folder that contains runs."""

    output: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Image file (.png, .pdf or .svg); by default report/learning.png in the run, or learning.png in a folder of runs.
    Required for several paths."""

    apart: bool = False
    """Draw one line per run, also for runs that differ only in their seed."""

    def run(self) -> int:
        """Save the plot and print its path."""
        if not self.paths:
            raise SettingsError("received no run, expected at least one", hint="`envfleet runs` lists them")
        if self.output is None and len(self.paths) > 1:
            raise SettingsError(
                f"received {len(self.paths)} runs and no --output", hint="give an image file: --output FILE"
            )
        from envfleet.runs.folder import named_runs
        from envfleet.runs.plot import plot_runs

        first = expanded(self.paths[0])
        beside = first if named_runs(first) != [first] else first / "report"
        output = expanded(self.output) if self.output else beside / "learning.png"
        sys.stdout.write(f"plot: {plot_runs(self.paths, output, apart=self.apart)}\n")
        return 0
