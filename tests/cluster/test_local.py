"""The ray backend on a cluster of this machine: the same weights, a lost host, errors, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.local_program import RUNS
from tests.cluster.training import train_in
from tests.waiting import gone, wait_until

pytest.importorskip("ray")
pytestmark = pytest.mark.proof  # a cluster takes long to start, and longer on a busy machine
ROOT = Path(__file__).parents[2]


VARIABLE = "a variable of the environment that nobody should see"


def _run(arguments: list[str], home: Path, ray_folder: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "HOME": str(home), "RAY_TMPDIR": ray_folder, "PYTHONPATH": os.pathsep.join(sys.path)}
    given["ENVFLEET_TEST_VARIABLE"] = VARIABLE
    return subprocess.run(
        [sys.executable, *arguments], env=given, cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what the program found, and its run folders."""
    folder = tmp_path_factory.mktemp("runs")
    with tempfile.TemporaryDirectory(prefix="ef") as short:  # paths of sockets have at most 107 characters
        done = _run(["-m", "tests.cluster.local_program", str(folder)], folder, short)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("result "))
    return json.loads(line.removeprefix("result ")), folder, done.stderr


@pytest.mark.parametrize(("world", "schedule"), RUNS)
def test_the_same_weights_as_on_one_machine(world: str, schedule: str, program: Any, tmp_path: Path) -> None:
    expected = train_in(tmp_path / "run", world, schedule=schedule, backend="sequential")
    assert program[0]["runs"][f"{world}-{schedule}"] == expected


def test_a_lost_worker_and_a_lost_host(program: Any) -> None:
    found = program[0]["lost"]
    assert found["one"] == [True, True, False, False]  # the host outlives its worker
    assert found["both"] == [True, True, True, True]
    assert found["last"] == [1, 1, 0, 0]  # the second loss hit the reset of the first two
    assert "worker 0 is restarted" in program[2] and "has died" in program[2]


def test_nothing_is_left_behind(program: Any) -> None:
    assert wait_until(lambda: gone(program[0]["lost"]["workers"]))


def test_errors_say_what_to_do(program: Any) -> None:
    said = program[0]["refusals"]
    assert said["workers"].startswith("ResourceError: 99 workers were asked for, but the cluster has")
    assert "SettingsError: address is 'ray://127.0.0.1:10001'" in said["client"]
    assert "SettingsError: runtime_env: no-such-file.yaml cannot be read" in said["runtime_env"]


def test_the_manifest_has_the_numerics_and_no_address(program: Any) -> None:
    for world, schedule in RUNS:
        folder = program[1] / f"{world}-{schedule}"
        text = (folder / "manifest.json").read_text()
        manifest = json.loads(text)
        (host,) = manifest["numerics"]["hosts"]
        assert host["blas"] == manifest["numerics"]["here"]["blas"]
        recorded = text + (folder / "config.yaml").read_text()
        assert "address" not in recorded and "runtime_env" not in recorded and "127.0.0.1" not in recorded


def test_a_run_folder_has_no_secrets(program: Any) -> None:
    """Neither the token nor the address of the cluster nor a variable of the environment, in any file."""
    found, folder, _ = program
    token = (folder / ".ray" / "auth_token").read_text().strip()
    secrets = [token, found["head"], found["head"].partition(":")[0], VARIABLE, "ENVFLEET_TEST_VARIABLE"]
    assert all(len(secret) > 6 for secret in secrets)
    files = [file for world, schedule in RUNS for file in (folder / f"{world}-{schedule}").rglob("*") if file.is_file()]
    assert len(files) > 5 * len(RUNS)
    for file in files:
        content = file.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], file


def test_a_folder_with_a_long_path(tmp_path: Path) -> None:
    (long := tmp_path / ("long" * 20)).mkdir()
    train = ["-m", "envfleet", "train", "ppo", "--env", "CartPole-v1", "--backend", "ray", "--steps", "64"]
    done = _run([*train, "--output-dir", str(tmp_path / "run")], tmp_path, str(long))
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    assert "a local Ray cluster could not be started" in done.stderr
    assert "hint: set RAY_TMPDIR to a folder with a short path" in done.stderr
