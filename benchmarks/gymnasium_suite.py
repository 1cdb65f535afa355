"""Run Gymnasium's own tests of its vector environments on fleets.

    python -m benchmarks.gymnasium_suite FOLDER

FOLDER is a Gymnasium checkout of the installed version. Its `tests/vector` run three times: unchanged; with a first
reset that passes no seed, as in Gymnasium; and with, in addition, a `pytest.raises` that compares exception types but
not messages. docs/clients.md has the table and explains every remaining difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = {"as they are": "", "no first seed": "unseeded", "any message": "unseeded,any-message"}
_ROUND, _RESULTS = "ENVFLEET_SUITE_ROUND", "ENVFLEET_SUITE_RESULTS"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Gymnasium checkout")
    folder = parser.parse_args(arguments).folder.resolve()
    outcomes = {name: run(folder, changes) for name, changes in ROUNDS.items()}
    files = sorted({test.split("::")[0] for tests in outcomes.values() for test in tests})
    print("| file | tests | " + " | ".join(ROUNDS) + " |")
    print("|---|---:|" + "---:|" * len(ROUNDS))
    for file in files:
        counts = [
            Counter(v for test, v in tests.items() if test.startswith(f"{file}::")) for tests in outcomes.values()
        ]
        total = sum(counts[0].values()) - counts[0]["skipped"]
        print(f"| `{Path(file).name}` | {total} | " + " | ".join(str(count["passed"]) for count in counts) + " |")
    last = outcomes[list(ROUNDS)[-1]]
    print("\nstill failing:", *(test for test, outcome in last.items() if outcome == "failed"), sep="\n  ")


def run(folder: Path, changes: str) -> dict[str, str]:
    """Run the tests with the given changes; return the outcome of each."""
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results.json"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), str(folder)]),
            _ROUND: changes,
            _RESULTS: str(results),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.gymnasium_suite", "-c", os.devnull]
        command += ["--rootdir", str(folder), "-p", "no:cacheprovider", "--timeout", "60"]
        command += [str(file) for file in sorted((folder / "tests" / "vector").glob("test_*.py"))]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if not results.exists():
            raise SystemExit(done.stdout + done.stderr)
        outcomes: dict[str, str] = json.loads(results.read_text())
        return outcomes


# --- the pytest plugin


def fleet_of(env_fns: Any, backend: str, **settings: Any) -> Any:
    import envfleet

    mode = settings.pop("autoreset_mode", "next_step")
    known = {name: settings[name] for name in ("copy", "observation_mode") if name in settings}
    fleet = envfleet.make(list(env_fns), backend=backend, start_method="fork", autoreset=mode, quiet=True, **known)
    if "unseeded" in os.environ[_ROUND]:
        fleet.reset_async = _without_first_seed(fleet)  # type: ignore[method-assign]
    return fleet


def _without_first_seed(fleet: Any) -> Callable[..., None]:
    begin = fleet.reset_async

    def reset_async(seed: Any = None, options: Any = None, tasks: Any = None) -> None:
        begin([None] * fleet.num_envs if seed is None else seed, options, tasks)

    return reset_async


def sync_vector_env(env_fns: Any, **settings: Any) -> Any:
    return fleet_of(env_fns, "sequential", **settings)


def async_vector_env(env_fns: Any, **settings: Any) -> Any:
    return fleet_of(env_fns, "processes", **settings)


if _ROUND in os.environ:
    import gymnasium.vector
    import pytest

    gymnasium.vector.SyncVectorEnv = sync_vector_env  # type: ignore[assignment,misc]
    gymnasium.vector.AsyncVectorEnv = async_vector_env  # type: ignore[assignment,misc]
    if "any-message" in os.environ[_ROUND]:
        _raises = pytest.raises
        pytest.raises = lambda *args, **kwargs: _raises(*args, **{**kwargs, "match": None})  # type: ignore[assignment]

_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: Any) -> None:
    if report.failed or (report.when == "call") or report.skipped:
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    if _RESULTS in os.environ:
        Path(os.environ[_RESULTS]).write_text(json.dumps(_outcomes))


if __name__ == "__main__":
    main()
