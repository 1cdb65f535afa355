"""Train on Lantern Isle as users do, and record the results in docs/gameboy.json for the docs page.

python -m rom.learn train train-20k [--seeds 1 2 3] [--folder training_runs/lantern_isle]

Runs one training at a time. Unless `--again` is given, runs already in the file are skipped, and a finished run in its
folder is only evaluated.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from envfleet.machine import describe
from envfleet.runs.metrics import read_metrics
from envfleet.runs.plot import plot_runs
from rom.page import FIGURES, ROOT
from rom.page import main as write_page

CURVES = ROOT / "docs/images/gameboy_learning.png"
COMMAND = [sys.executable, "-m", "envfleet.cli"]
# The flags of the Makefile targets, without seed and folder.
FLAGS = {
    "train": ["--random-steps", "20000"],
    "train-20k": [
        "--steps", "20000", "--n-envs", "2", "--group-size", "1", "--episode-length", "750", "--epochs", "6",
        "--minibatch-size", "128", "--learning-rate-schedule", "constant", "--eval-every", "0",
        "--random-steps", "20000",
    ],
}  # fmt: skip
EVALUATED = {"train": 50}  # episodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", choices=FLAGS, help="targets of the Makefile")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--folder", type=Path, default=ROOT / "training_runs/lantern_isle", help="folder of the runs")
    parser.add_argument("--again", action="store_true", help="repeat runs that are already in the file")
    given = parser.parse_args()
    for target in given.targets:
        for seed in given.seeds:
            known = json.loads(FIGURES.read_text(encoding="utf-8")).get("training", [])
            if given.again or not any((run["target"], run["seed"]) == (target, seed) for run in known):
                _keep(_learned(target, seed, given.folder / f"{target}-seed-{seed}", again=given.again))
    finished = [given.folder / f"train-seed-{seed}" for seed in given.seeds]
    if "train" in given.targets and all(path.is_dir() for path in finished):
        plot_runs(finished, CURVES, title=f"Lantern Isle, {len(finished)} seeds of `make train`")
    write_page()


def _learned(target: str, seed: int, path: Path, *, again: bool) -> dict[str, Any]:
    if again or not (path / "checkpoints/final").exists():
        flags = ["--env", "envfleet/GameBoy-v0", "--seed", str(seed), "--output-dir", str(path), "--overwrite"]
        subprocess.run([*COMMAND, "train", "ppo", *flags, *FLAGS[target]], check=True)
    rows = read_metrics(path / "metrics.jsonl")
    updates = [row for row in rows if "rollout/ep_rew_mean" in row]
    speeds = [row["time/fps"] for row in updates]
    evaluated = _evaluated(path, EVALUATED[target]) if target in EVALUATED else None
    return {
        "target": target,
        "seed": seed,
        "processor": describe()["cpu"],
        "steps": updates[-1]["step"],
        "minutes_by_the_clock": round((updates[-1]["time"] - updates[0]["time"]) / 60, 2),
        "steps_per_second": round(median(speeds)),
        "return": round(updates[-1]["rollout/ep_rew_mean_10"], 2),
        "random": round(next(row["random/ep_rew_mean"] for row in rows if "random/ep_rew_mean" in row), 2),
        "evaluated": evaluated,
        "curve": [
            [row["step"], round(row["rollout/ep_rew_mean"], 2)]
            for row in updates[:: max(1, len(updates) // 100)]
            if math.isfinite(row["rollout/ep_rew_mean"])
        ],
    }


def _evaluated(path: Path, episodes: int) -> dict[str, Any]:
    """Evaluate with sampled actions, as the preset does, and count how often the best actions alone finish the game."""
    sampled, best = (_played(path, episodes, how) for how in ("--sampled", "--best-actions"))
    return {
        "episodes": episodes,
        "finished": round(sampled["success_rate"] * episodes),
        "finished_by_best": round(best["success_rate"] * episodes),
        "return": sampled["mean_reward"],
    }


def _played(path: Path, episodes: int, how: str) -> dict[str, Any]:
    command = [*COMMAND, "evaluate", str(path), "--episodes", str(episodes), how, "--json"]
    results: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return results


def _keep(run: dict[str, Any]) -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    others = [
        each for each in figures.get("training", []) if (each["target"], each["seed"]) != (run["target"], run["seed"])
    ]
    figures["training"] = sorted([*others, run], key=lambda each: (each["target"], each["seed"]))
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
