"""`envfleet compare`: runs beside each other, with figures that a sceptic can check."""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from envfleet.errors import SettingsError

__all__ = ["Compare"]


@dataclass(frozen=True)
class Compare:
    """Compare runs: speed, returns, memory, CPU, and whether the comparison is fair.

    Runs are grouped by the settings in which they differ; runs that differ only in their seed are one group. Writes
    comparison.png, comparison_report.txt, comparison.html and comparison.json.

    examples:
      envfleet compare runs/a runs/b runs/c
      envfleet compare --sequential timed/sequential_1h --parallel timed/parallel_1h
      envfleet compare runs --score 475 --output-dir comparison
    """

    paths: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")
    ] = ()
    """The folders of the runs, or a folder that holds runs."""

    sequential: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DIR ...", help_behavior_hint="")] = ()
    """Runs on one core, which the speed-up is against; one for each seed, or a folder of them."""

    parallel: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DIR ...", help_behavior_hint="")] = ()
    """Runs on several workers, to compare with those."""

    output_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Where the files go; by default into the folder that the first run is in."""

    score: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None
    """The return that steps and time are counted to; by default 90 % of the best."""

    def run(self) -> int:
        """Prints the report and writes the files."""
        self._check()
        from envfleet.runs.comparison.checks import checks_of
        from envfleet.runs.comparison.comparison import compare_runs
        from envfleet.runs.comparison.report import REPORT_WIDTH, report_of
        from envfleet.runs.comparison.writing import write_comparison

        first = Path((*self.paths, *self.sequential)[0]).absolute()
        comparison = compare_runs(self.paths, sequential=self.sequential, parallel=self.parallel, score=self.score)
        checks = checks_of(comparison)
        beside = first.parent if (first / "manifest.json").is_file() else first
        written = write_comparison(comparison, checks, self.output_dir or beside)
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else REPORT_WIDTH
        sys.stdout.write(report_of(comparison, checks, width))
        sys.stdout.write("\n" + "".join(f"{path}\n" for path in written))
        return 0

    def _check(self) -> None:
        named = bool(self.sequential) + bool(self.parallel)
        if self.paths and named:
            raise SettingsError(
                "received runs and --sequential or --parallel, expected one of the two ways",
                hint="name all runs, and they are grouped by their settings; or both options and no other run",
            )
        if named == 1:
            given, missing = ("sequential", "parallel") if self.sequential else ("parallel", "sequential")
            raise SettingsError(f"received --{given} without --{missing}, expected both")
        if not self.paths and not named:
            raise SettingsError("received no run, expected at least two", hint="`envfleet runs` lists them")
        if len(self.paths) == 1 and (Path(self.paths[0]) / "manifest.json").is_file():
            raise SettingsError(
                "received one run, expected at least two", hint="name another one; `envfleet runs` lists them"
            )
        if self.score is not None and not math.isfinite(self.score):
            raise SettingsError(f"--score is {self.score}, expected a number")
