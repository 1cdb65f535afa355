"""Learn the tasks that take too long for the tests: `python -m benchmarks.learning halfcheetah lunarlander`.

Runs go one at a time. Each is written to docs/learning/TASK.json when it ends, and runs that are already in the file
are not repeated. If the environment variable LEARNING_DIR is set, run folders are kept there and an interrupted run
resumes. At the end, the curves and docs/learning.md are rendered from the files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.learning import page
from benchmarks.learning.tasks import TASKS, Task
from benchmarks.peers.install import python_of, reason_of_absence, version_of
from benchmarks.sessions import ROOT

PEER = "stable-baselines3"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", choices=TASKS, help="tasks to learn")
    parser.add_argument("--backend", default="auto", help="backend of our runs; `sequential` uses one core")
    parser.add_argument("--again", action="store_true", help="repeat runs that are already in the files")
    options = parser.parse_args(arguments)
    for name in options.tasks:
        path = page.FOLDER / f"{name}.json"
        results = _circumstances(TASKS[name])
        cpu = results["machine"]["cpu"]
        if path.exists() and not options.again:
            earlier = json.loads(path.read_text())
            results["runs"] = [{**run, "cpu": run.get("cpu", earlier["machine"]["cpu"])} for run in earlier["runs"]]
        for library, seed in _missing(TASKS[name], results["runs"]):
            print(f"{name}: {library}, seed {seed}", file=sys.stderr, flush=True)
            results["runs"].append({"library": library, "cpu": cpu, **_run(name, library, seed, options.backend)})
            page.FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(results, ensure_ascii=False).replace('{"library"', '\n {"library"') + "\n")
    return page.main([])


def _circumstances(task: Task) -> dict[str, Any]:
    from envfleet.machine import describe

    versions = {PEER: reason_of_absence(PEER) or version_of(PEER, "stable_baselines3")} if task.beside_peer else {}
    return {"task": task.name, "machine": describe(), "libraries": versions, "runs": []}


def _missing(task: Task, runs: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    there = {(run["library"], run["seed"]) for run in runs}
    libraries = ["envfleet", *([PEER] if task.beside_peer else [])]
    for seed in task.seeds:
        for library in libraries:
            if (library, seed) not in there:
                yield library, seed


def _run(task: str, library: str, seed: int, backend: str) -> dict[str, Any]:
    """Train one run in a separate process and return its result; its progress is shown."""
    if library == PEER:
        command = [str(python_of(PEER)), "-m", "benchmarks.learning.peer_run", task, "--seed", str(seed)]
        paths = [ROOT]
    else:
        command = [sys.executable, "-m", "benchmarks.learning.our_run", task, "--seed", str(seed), "--backend", backend]
        paths = [ROOT, ROOT / "src"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with code {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    sys.exit(main())
