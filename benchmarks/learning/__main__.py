"""Learn the tasks that take too long for the tests: `python -m benchmarks.learning halfcheetah lunarlander`.

Each run is written to docs/learning/TASK.json when it ends, and runs that are already in the file are not repeated. If
the environment variable LEARNING_DIR is set, run folders are kept there and an interrupted run resumes. At the end, the
curves and docs/learning.md are rendered from the files.

By default runs go one at a time, on all cores. `--jobs 2` makes two at a time, each on one core of its own: together
they are done earlier if learning uses one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

from benchmarks.learning import page
from benchmarks.learning.tasks import TASKS, Task
from benchmarks.peers.install import python_of, reason_of_absence, version_of
from benchmarks.sessions import ROOT

PEER = "stable-baselines3"


class Job(NamedTuple):
    """One run to make."""

    task: str
    library: str
    seed: int
    backend: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", choices=TASKS, help="tasks to learn")
    parser.add_argument("--backend", default="auto", help="backend of our runs; `sequential` uses one core")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; above 1, each has a core of its own")
    parser.add_argument("--again", action="store_true", help="repeat runs that are already in the files")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"received --jobs {options.jobs}, expected at least 1")
    backend = options.backend if options.jobs == 1 else "sequential"
    results = {name: _earlier(TASKS[name], again=options.again) for name in options.tasks}
    jobs = [Job(name, *run, backend) for name in options.tasks for run in _missing(TASKS[name], results[name]["runs"])]
    absent = reason_of_absence(PEER) if any(job.library == PEER for job in jobs) else None
    if absent is not None:
        parser.error(f"{PEER}: {absent}")
    for job, found in _made(jobs, options.jobs):
        result = results[job.task]
        result["runs"].append({"library": job.library, "cpu": result["machine"]["cpu"], **found})
        result["runs"].sort(key=lambda run: (run["library"] == PEER, run["seed"]))
        page.FOLDER.mkdir(parents=True, exist_ok=True)
        text = json.dumps(result, ensure_ascii=False).replace('{"library"', '\n {"library"')
        (page.FOLDER / f"{job.task}.json").write_text(text + "\n")
    return page.main([])


def _earlier(task: Task, *, again: bool) -> dict[str, Any]:
    """Return the results of a task: this machine, and the runs of earlier calls."""
    from envfleet.machine import describe

    path = page.FOLDER / f"{task.name}.json"
    versions = {PEER: reason_of_absence(PEER) or version_of(PEER, "stable_baselines3")} if task.beside_peer else {}
    runs = []
    if path.exists() and not again:
        earlier = json.loads(path.read_text())
        runs = [{**run, "cpu": run.get("cpu", earlier["machine"]["cpu"])} for run in earlier["runs"]]
    return {"task": task.name, "machine": describe(), "libraries": versions, "runs": runs}


def _missing(task: Task, runs: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    there = {(run["library"], run["seed"]) for run in runs}
    libraries = ["envfleet", *([PEER] if task.beside_peer else [])]
    for seed in task.seeds:
        for library in libraries:
            if (library, seed) not in there:
                yield library, seed


def _made(jobs: list[Job], at_a_time: int) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Make the runs, and yield each with its result when it ends."""
    if at_a_time == 1:
        for job in jobs:
            yield job, _run(job)
        return
    cores: queue.SimpleQueue[int] = queue.SimpleQueue()
    usable = sorted(os.sched_getaffinity(0))
    for place in range(at_a_time):
        cores.put(usable[place % len(usable)])

    def bind() -> None:
        os.sched_setaffinity(0, {cores.get()})  # of this thread, and of the processes that it starts

    with ThreadPoolExecutor(at_a_time, initializer=bind) as threads:
        begun = {threads.submit(_run, job): job for job in jobs}
        failed: list[str] = []
        try:
            for done in as_completed(begun):
                error = done.exception()
                if error is None:
                    yield begun[done], done.result()
                else:  # the other runs go on, and are kept
                    failed.append(str(error))
                    print(error, file=sys.stderr, flush=True)
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
        if failed:
            raise SystemExit("\n".join(failed))


def _run(job: Job) -> dict[str, Any]:
    """Train one run in a separate process and return its result; its progress is shown."""
    print(f"{job.task}: {job.library}, seed {job.seed}", file=sys.stderr, flush=True)
    given = [job.task, "--seed", str(job.seed)]
    if job.library == PEER:
        command = [str(python_of(PEER)), "-m", "benchmarks.learning.peer_run", *given]
        paths = [ROOT]
    else:
        command = [sys.executable, "-m", "benchmarks.learning.our_run", *given, "--backend", job.backend]
        paths = [ROOT, ROOT / "src"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with code {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    sys.exit(main())
