"""Make the comparisons shown in docs/compare.md: `python -m benchmarks.timed FOLDER`.

It makes timed runs with the backends `sequential` and `processes`, with three seeds each and the commands that the
page shows. On CoinRun, Stable-Baselines3 trains with the same settings. Afterwards it measures how much faster
independent processes collect on all cores than one process does: the limit of the gain. Runs go one at a time, seed by
seed; nothing else should use the machine. FOLDER keeps the runs, and finished runs are not repeated. The figures go to
docs/compare/ and into the page.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.peers.install import python_of, reason_of_absence, version_of
from benchmarks.ppo.page import spread
from benchmarks.ppo.rounds import Procedure, ratio
from benchmarks.ppo.tables import TABLES
from benchmarks.tables import ROOT, rounded, table_line, targets_table, with_block, write_or_check
from benchmarks.wanted import at_least

SEEDS = (1, 2, 3)
MINUTES = 5
SCALING_ROUNDS, SCALING_SECONDS = 7, 3.0
PEER = "stable-baselines3"
VECTORS = {"dummy": "DummyVecEnv", "subproc": "SubprocVecEnv"}
WAYS = {"sequential": "sequential", "parallel": "processes"}  # our runs, and the backend of each
FOLDER, PAGE = ROOT / "docs" / "compare", ROOT / "docs" / "compare.md"
START, END = "<!-- timed:start -->", "<!-- timed:end -->"
# Targets: share of independent processes' speed-up when collecting, and of the training speed-up that it allows.
LEAST_COLLECTING, LEAST_IN_ALL = 0.95, 0.9


@dataclass(frozen=True)
class Subject:
    """One training task: its flags, and the table of `benchmarks.ppo` that measures independent processes."""

    name: str
    title: str
    flags: str
    scaling: str
    game: str | None = None  # Procgen game, on which Stable-Baselines3 trains too

    def command(self, way: str, seed: int) -> str:
        """Return the command shown on the page; its output folder is relative to that of the runs."""
        return (
            f"envfleet train ppo {self.flags} --duration {MINUTES / 60:.4f} --eval-every 0 --seed {seed} "
            f"--backend {WAYS[way]} --output-dir {self.name}/{way}-{seed}"
        )

    def comparison(self) -> str:
        runs = {way: " ".join(f"{self.name}/{way}-{seed}" for seed in SEEDS) for way in WAYS}
        given = " ".join(f"--{way} {names}" for way, names in runs.items())
        return f"envfleet compare {given} --output-dir {self.name}/compared"


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject(
            "coinrun",
            "CoinRun, Nature CNN, 32 environments",
            "--env procgen/coinrun --preset procgen-nature --n-envs 32",
            "scaling-coinrun",
            "coinrun",
        ),
        Subject("gameboy", "Game Boy adventure, 16 environments", "--env envfleet/GameBoy-v0", "scaling-gameboy"),
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.timed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="where the runs are kept")
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--page", action="store_true", help="only write the page from docs/compare/")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    options = parser.parse_args(arguments)
    if not (options.page or options.check):
        if options.folder is None:
            parser.error("name the folder that keeps the runs")
        for name in options.subjects:
            make_runs(SUBJECTS[name], options.folder.resolve())
            keep_figures(SUBJECTS[name], options.folder.resolve())
            measure_scaling(SUBJECTS[name])
    page = with_block(PAGE.read_text(), render(), START, END)
    return write_or_check({PAGE: page}, FOLDER, "benchmarks.timed --page", check=options.check)


# ---- the runs


def make_runs(subject: Subject, folder: Path) -> None:
    from envfleet.runs.checkpoints import Checkpoints

    folder.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for way in WAYS:
            run = folder / subject.name / f"{way}-{seed}"
            if Checkpoints(run / "checkpoints").step_of("final") is None:
                call(f"{subject.command(way, seed)} --overwrite", folder)
        for vector in VECTORS if subject.game is not None else ():
            course = folder / subject.name / f"{PEER}-{vector}-{seed}.json"
            if not course.exists():
                print(f"{PEER}, {VECTORS[vector]}, seed {seed}", file=sys.stderr, flush=True)
                course.write_text(peer_course(subject, folder, vector, seed))


def call(command: str, folder: Path) -> None:
    """Run one of our commands as a user would."""
    print(command, file=sys.stderr, flush=True)
    words = shlex.split(command)
    subprocess.run([sys.executable, "-m", *words], cwd=folder, env=_environment(), check=True)


def peer_course(subject: Subject, folder: Path, vector: str, seed: int) -> str:
    """Train Stable-Baselines3 with the settings of our run of the same seed; return its progress as JSON."""
    from envfleet.runs.folder import RunFolder

    if reason := reason_of_absence(PEER):
        raise SystemExit(f"{PEER}: {reason}")
    recorded = RunFolder.open(folder / subject.name / f"sequential-{seed}").read_config()
    settings = {name: value for name, value in recorded.items() if isinstance(value, int | float | dict)}
    command = [str(python_of(PEER)), "-m", "benchmarks.timed_peer", "--game", str(subject.game), "--vector", vector]
    command += ["--settings", json.dumps(settings), "--seed", str(seed), "--seconds", str(60 * MINUTES)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=_environment(), check=True)
    return done.stdout.splitlines()[-1] + "\n"


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


def keep_figures(subject: Subject, folder: Path) -> None:
    """Copy the comparison's files and the other library's results to docs/compare/."""
    call(subject.comparison(), folder)
    kept = FOLDER / subject.name
    kept.mkdir(parents=True, exist_ok=True)
    for name in ("comparison.png", "comparison_report.txt", "comparison.json"):
        (kept / name).write_bytes((folder / subject.name / "compared" / name).read_bytes())
    others = {}
    for vector in VECTORS if subject.game is not None else ():
        courses = [json.loads((folder / subject.name / f"{PEER}-{vector}-{seed}.json").read_text()) for seed in SEEDS]
        others[vector] = [course[-1] for course in courses]  # last point within the time limit
    if others:
        version = version_of(PEER, "stable_baselines3")
        (kept / "others.json").write_text(json.dumps({"version": version, "runs": others}, indent=1) + "\n")


def measure_scaling(subject: Subject) -> None:
    """Measure one process and independent processes on this machine, in turns; write docs/compare/NAME/scaling.json."""
    from envfleet.machine import usable_cores

    def report(message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    table = TABLES[subject.scaling](Procedure(usable_cores(), SCALING_ROUNDS, SCALING_SECONDS, report))
    (FOLDER / subject.name / "scaling.json").write_text(json.dumps(table["rows"], indent=1) + "\n")


# ---- the page


def render() -> str:
    sections = []
    for subject in SUBJECTS.values():
        path = FOLDER / subject.name / "comparison.json"
        if path.exists():
            sections += list(_section(subject, json.loads(path.read_text())))
        else:
            sections += [f"### {subject.title}", "This comparison has not been made with this version yet."]
    return "\n\n".join(sections)


def _section(subject: Subject, comparison: Mapping[str, Any]) -> Iterator[str]:
    sequential, parallel = comparison["groups"]
    others = _others(subject)
    yield f"### {subject.title}"
    yield (
        f"{len(SEEDS)} seeds, {MINUTES} minutes each, one run at a time. The commands for seed 1 and for the "
        f"comparison of all seeds ([report](compare/{subject.name}/comparison_report.txt)):"
    )
    yield "\n".join(f"    {subject.command(way, 1)}" for way in WAYS) + f"\n    {subject.comparison()}"
    yield f"![{subject.title}](compare/{subject.name}/comparison.png)"
    yield "\n".join(_table(sequential, parallel, others))
    learning = sequential["time_shares"]["learning"]
    yield (
        f"Learning takes {learning:.0%} of the time of the sequential runs. It is not faster in parallel runs: both "
        "use the same number of learner threads, because that number affects the numerical results."
    )
    yield "\n".join(targets_table([*_gains(subject, sequential, parallel), *_ahead(parallel, others)]))


def _table(sequential: Mapping[str, Any], parallel: Mapping[str, Any], others: Mapping[str, Any]) -> Iterator[str]:
    yield table_line("", "steps/s", "episodes/s", "final return", "CPU", "memory")
    yield table_line("---", "---:", "---:", "---:", "---:", "---:")
    for title, group in (("sequential", sequential), (f"{parallel['workers']} workers", parallel)):
        low, high = group["final_return_interval"] or (None, None)
        interval = "" if low is None else f" ({low:.2f}–{high:.2f})"
        yield table_line(
            f"**Envfleet, {title}**",
            rounded(group["steps_per_second"]),
            f"{group['episodes_per_second']:.1f}",
            f"{group['final_return']:.2f}{interval}",
            f"{group['cpu_percent']:.0f} %",
            f"{group['peak_memory_mb']:,.0f} MB",
        )
    for name, runs in others.items():
        yield table_line(
            f"Stable-Baselines3, {name}",
            rounded(fmean(run["steps"] / run["seconds"] for run in runs)),
            f"{fmean(run['episodes'] / run['seconds'] for run in runs):.1f}",
            f"{fmean(run['return'] for run in runs):.2f}",
            "",
            "",
        )


def _others(subject: Subject) -> dict[str, list[dict[str, float]]]:
    path = FOLDER / subject.name / "others.json"
    if not path.exists():
        return {}
    return {VECTORS[vector]: runs for vector, runs in json.loads(path.read_text())["runs"].items()}


def _gains(subject: Subject, sequential: Mapping[str, Any], parallel: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the targets for collecting and for training, beside the speed-up of independent processes."""
    possible = ratio(json.loads((FOLDER / subject.name / "scaling.json").read_text()), "processes", "process")
    assert possible is not None
    times = [
        {"learning": group["time_shares"]["learning"] / group["steps_per_second"], "all": 1 / group["steps_per_second"]}
        for group in (sequential, parallel)
    ]
    collecting = [each["all"] - each["learning"] for each in times]
    gain, in_all = collecting[0] / collecting[1], times[0]["all"] / times[1]["all"]
    allowed = times[0]["all"] / (times[0]["learning"] + collecting[0] / possible["median"])
    return [
        at_least(
            f"collecting is {gain:.2f} times as fast with workers; share of independent processes' speed-up "
            f"({spread(possible)})",
            {"median": gain / possible["median"], "lower": gain / possible["upper"], "upper": gain / possible["lower"]},
            LEAST_COLLECTING,
        ),
        at_least(
            f"training is {in_all:.2f} times as fast; share of the speed-up that collecting allows ({allowed:.2f})",
            in_all / allowed,
            LEAST_IN_ALL,
        ),
    ]


def _ahead(parallel: Mapping[str, Any], others: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, runs in others.items():
        speed = parallel["steps_per_second"] / fmean(run["steps"] / run["seconds"] for run in runs)
        yield at_least(f"steps per second divided by those of Stable-Baselines3, {name}", speed, 1.0)
        difference = parallel["final_return"] - fmean(run["return"] for run in runs)
        yield at_least(f"final return minus that of Stable-Baselines3, {name}", difference, 0.0)


if __name__ == "__main__":
    sys.exit(main())
