"""Start-up cost of a run: seconds to its first step, and memory of its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from benchmarks.interleave import quartiles
from benchmarks.ppo.environments import FIRST_STEP_FILE
from benchmarks.ppo.rounds import Procedure
from benchmarks.ppo.workloads import SIZES
from benchmarks.sessions import ROOT, Session

COMMAND = ["train", "ppo", "--env", "CartPole-v1", "--quiet"]
WRAPPER = "benchmarks.ppo.environments:tells_first_step"
PATIENCE = 120.0


def measure_beginning(procedure: Procedure) -> dict[str, Any]:
    """Measure the seconds from the command to the first environment step, and the private MB of a worker."""
    procedure.report("start: seconds to the first step")
    first_step_seconds()  # fill the file cache and write the byte code
    seconds = [first_step_seconds() for _ in range(procedure.rounds)]
    procedure.report("start: memory of a worker")
    memory = {
        acting: _worker_memory(SIZES["cartpole-64"].ours(acting=acting), procedure) for acting in ("worker", "central")
    }
    procedure.report("start: seconds of --help")
    helped = [help_seconds() for _ in range(procedure.rounds)]
    return {
        "command": " ".join(["envfleet", *COMMAND]),
        "seconds": quartiles(seconds),
        "help_seconds": quartiles(helped),
        "worker_memory_mb": memory,
    }


def help_seconds() -> float:
    """Return the seconds that `envfleet --help` takes."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "envfleet", "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def first_step_seconds() -> float:
    """Run the command, wait for the first step of any environment, kill it; return the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "first-step"
        paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {FIRST_STEP_FILE: str(path), "PYTHONPATH": os.pathsep.join(paths)}
        program = [sys.executable, "-m", "envfleet", *COMMAND, "--wrappers", WRAPPER]
        with open(Path(folder) / "stderr", "w+") as errors:
            began = time.time()  # a clock that all processes share
            run = subprocess.Popen(program, cwd=folder, env=environment, stderr=errors, start_new_session=True)
            try:
                while not (path.exists() and path.read_text()):
                    if run.poll() is not None or time.time() - began > PATIENCE:
                        errors.seek(0)
                        raise RuntimeError(f"the command took no step: {errors.read()[-300:]}")
                    time.sleep(0.002)
                return float(path.read_text()) - began
            finally:
                with suppress(ProcessLookupError):  # it has ended already
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()


def _worker_memory(settings: dict[str, Any], procedure: Procedure) -> float:
    with closing(Session("benchmarks.ppo.training_session", ["--settings", json.dumps(settings)])) as session:
        session.wait_until_ready()
        return float(session.measure(procedure.duration)["worker_memory_mb"])
