"""Compare the CPU time per environment step of this checkout with that of another revision.

    python -m benchmarks.against fb1841c                   # all rows, 15 pairs each: about 15 minutes
    python -m benchmarks.against HEAD~1 --rows PPO DQN --pairs 5
    python -m benchmarks.against HEAD~1 --instructions     # rows in one process: no noise, but slow (valgrind)

A pair measures both versions right after each other, in alternating order; both processes are started again after five
pairs. The ratio is that of the revision to that of this checkout: above 1, this checkout needs less CPU time. A change
that adds no feature should keep the lower quartile at 0.97 or above. Run it alone on a quiet machine. On processes, the
caller polls while it waits, so its CPU time follows the speed of the workers and varies most.

With `--instructions`, valgrind counts the instructions of each version for two numbers of steps; the difference divided
by the additional steps leaves out the start. Such counts repeat to about 0.1 %, on a busy machine too.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks.against_session import ROWS
from benchmarks.interleave import quartiles
from benchmarks.sessions import ROOT, Duration, Session

PAIRS_PER_LAUNCH = 5
WANTED = 0.97
ONE_PROCESS = [name for name, row in ROWS.items() if row.get("backend") != "processes"]
COUNTED_STEPS = {"16 CartPoles in one process": 4_000, "8 HalfCheetahs in one process": 2_000}
COUNTED_UPDATES = 1  # trainings, for the rows that train


def source_of(revision: str, folder: Path) -> Path:
    """Extract the package of a revision, without changing anything in the repository."""
    archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder / "src"


def compare(row: str, before: Path, pairs: int, duration: Duration) -> dict[str, Any]:
    """Measure `pairs` pairs of one row: CPU seconds per step before and now."""
    found: list[tuple[float, float]] = []
    while len(found) < pairs:
        with ExitStack() as launched:
            sessions = [
                launched.enter_context(closing(Session("benchmarks.against_session", [row], source=source)))
                for source in (before, ROOT / "src")
            ]
            for session in sessions:
                session.wait_until_ready()
            for _ in range(min(PAIRS_PER_LAUNCH, pairs - len(found))):
                order = [0, 1] if len(found) % 2 == 0 else [1, 0]
                seconds = {which: sessions[which].measure(duration)["cpu"] for which in order}
                found.append((seconds[0], seconds[1]))
    ratios = quartiles(then / now for then, now in found)
    return {"row": row, "pairs": found, "ratio": ratios, "now": quartiles(now for _, now in found)["median"]}


def instructions_per_step(row: str, source: Path) -> float:
    """Count instructions for some steps and for three times as many."""
    compileall.compile_dir(source, quiet=2)  # or the first of the two would count the compilation
    steps = COUNTED_STEPS.get(row, ROWS[row].get("steps", 0) * COUNTED_UPDATES)
    counts = [_instructions(row, source, number) for number in (steps, 3 * steps)]
    return (counts[1] - counts[0]) / (2 * steps)


def _instructions(row: str, source: Path, steps: int) -> int:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(source)]),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
    }
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command = [*tool, sys.executable, "-m", "benchmarks.against_session", row, "--steps", str(steps)]
    errors = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stderr
    found = re.search(r"I\s+refs:\s+([\d,]+)", errors)
    assert found is not None, errors[-500:]
    return int(found.group(1).replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the version to compare with: a commit, a tag or a branch")
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="ROW", help=f"default: all. {'; '.join(ROWS)}")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--instructions", action="store_true", help="count instructions instead (needs valgrind)")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="fleet-before-") as folder:
        before = source_of(options.revision, Path(folder))
        if options.instructions:
            print(f"| row | instructions per step, {options.revision} | now | ratio |\n| --- | ---: | ---: | ---: |")
            for row in options.rows or ONE_PROCESS:
                then, now = (instructions_per_step(row, source) for source in (before, ROOT / "src"))
                results.append({"row": row, "before": then, "now": now})
                print(f"| {row} | {then:,.0f} | {now:,.0f} | {then / now:.3f} |", flush=True)
        else:
            print("| row | CPU per step, µs | ratio: lower quartile | median | upper | reached |")
            print("| --- | ---: | ---: | ---: | ---: | --- |")
            for row in options.rows or ROWS:
                result = compare(row, before, options.pairs, Duration(options.seconds, options.seconds / 5))
                results.append(result)
                lower, middle, upper = (result["ratio"][name] for name in ("lower", "median", "upper"))
                reached = "yes" if lower >= WANTED else "no"
                figures = f"{1e6 * result['now']:.2f} | {lower:.3f} | {middle:.3f} | {upper:.3f} | {reached}"
                print(f"| {row} | {figures} |", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"revision": options.revision, "results": results}, indent=1))


if __name__ == "__main__":
    main()
