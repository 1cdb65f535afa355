"""`envfleet compare`: compare runs, and check whether the comparison is fair."""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from envfleet.errors import SettingsError
from envfleet.paths import expanded

__all__ = ["Compare"]


@dataclass(frozen=True)
class Compare:
    """Compare the speed, returns, memory and CPU use of runs, and check whether the comparison is fair.

    Runs are grouped by the settings in which they differ. Runs that differ only in their seed form one group. Prints a
    report and writes comparison_report.txt, comparison.png, comparison.html and comparison.json.

    examples:
      envfleet compare runs/a runs/b runs/c
      envfleet compare --sequential timed/sequential_1h --parallel timed/parallel_1h
      envfleet compare runs --score 475 --output-dir comparison
    """

    paths: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")
    ] = ()
    """Run folders, or a folder that contains runs."""

    sequential: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DIR ...", help_behavior_hint="")] = ()
    """Runs on one core, the baseline of the speed-up: one run per seed, or a folder of runs."""

    parallel: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DIR ...", help_behavior_hint="")] = ()
    """Runs on several workers, to compare with --sequential."""

    output_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Where to write the files; by default the folder that contains the first run."""

    score: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None
    """Report the steps and the time until a run reaches this return; by default 90 % of the best return."""

    def run(self) -> int:
        """Print the report and write the files."""
        self._check()
        from envfleet.runs.comparison.checks import checks_of
        from envfleet.runs.comparison.comparison import compare_runs
        from envfleet.runs.comparison.report import REPORT_WIDTH, report_of
        from envfleet.runs.comparison.writing import write_comparison

        first = expanded((*self.paths, *self.sequential)[0]).absolute()
        comparison = compare_runs(self.paths, sequential=self.sequential, parallel=self.parallel, score=self.score)
        checks = checks_of(comparison)
        beside = first.parent if (first / "manifest.json").is_file() else first
        written = write_comparison(comparison, checks, expanded(self.output_dir or beside))
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else REPORT_WIDTH
        sys.stdout.write(report_of(comparison, checks, width))
        sys.stdout.write("\n" + "".join(f"{path}\n" for path in written))
        return 0

    def _check(self) -> None:
        named = bool(self.sequential) + bool(self.parallel)
        if self.paths and named:
            raise SettingsError(
                "received runs and --sequential or --parallel, expected one of the two ways",
                hint="name all runs to group them by their settings, or give only --sequential and --parallel",
            )
        if named == 1:
            given, missing = ("sequential", "parallel") if self.sequential else ("parallel", "sequential")
            raise SettingsError(f"received --{given} without --{missing}, expected both")
        if not self.paths and not named:
            raise SettingsError("received no run, expected at least two", hint="`envfleet runs` lists them")
        if len(self.paths) == 1 and (expanded(self.paths[0]) / "manifest.json").is_file():
            raise SettingsError(
                "received one run, expected at least two", hint="name another one; `envfleet runs` lists them"
            )
        if self.score is not None and not math.isfinite(self.score):
            raise SettingsError(f"--score is {self.score}, expected a number")
