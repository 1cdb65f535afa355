"""Ctrl-C, SIGTERM and SIGHUP during training, in real processes: saves, prints one line, exits with the usual code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import envfleet
from envfleet.runs.checkpoints import Checkpoints
from envfleet.signals import Terminated
from envfleet.training.interruption import Interruption
from tests.cli.signalling import SignalsItsGroup
from tests.waiting import gone, wait_until

ENDLESS = ("--steps", "1000000000")

SLOW = """
import pathlib, time, gymnasium, numpy as np

class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        pathlib.Path("stepping").write_text("yes")
        time.sleep(0.5)
        return np.zeros(2, np.float32), 1.0, False, False, {}
"""


@contextmanager
def training(folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run in its own process group, as a terminal does; endless without `--steps`."""
    command = [sys.executable, "-m", "envfleet", "train", "ppo", "--output-dir", "run", "--backend", "processes"]
    process = subprocess.Popen(
        [*command, "--eval-every", "0", *(() if "--steps" in flags else ENDLESS), *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(what: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the process has written to the file."""

    def is_over() -> bool:
        return process.poll() is not None or (what.exists() and what.stat().st_size > 0)

    assert wait_until(is_over), f"{what} did not come"
    assert process.poll() is None, process.stderr and process.stderr.read()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_ends(number: signal.Signals, code: int, tmp_path: Path) -> None:
    flags = ["--quiet", "--seed", "1", "--n-envs", "8", "--workers", "2", "--acting", "central"]
    with training(tmp_path, *flags) as process:
        wait_for(tmp_path / "run" / "metrics.jsonl", process)
        workers = children_of(process)
        # A terminal sends Ctrl-C to all processes; a service manager signals only the main one.
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode == code
    last = Checkpoints(tmp_path / "run" / "checkpoints").load("last")
    assert errors == f"stopped at step {last.step:,}, everything is saved; resume with: envfleet resume run\n"
    assert not (tmp_path / "run" / "checkpoints" / "final").exists()
    assert len(workers) >= 2
    assert wait_until(lambda: gone(workers))


def children_of(process: subprocess.Popen[str]) -> list[int]:
    return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]


SHORT: dict[str, Any] = {
    "n_envs": 8,
    "group_size": 4,
    "rollout_steps": 64,
    "steps": 8 * 64 * 4,
    "minibatch_size": 128,
    "epochs": 2,
    "hidden": (16,),
    "seed": 5,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The final weights of a run that receives no signal."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "sent").touch()
    kwargs = {"number": 0, "sent": str(folder / "sent")}
    envfleet.train(
        envfleet.PPO(
            env=SignalsItsGroup,
            env_kwargs=kwargs,
            backend="sequential",
            eval_every=0,
            quiet=True,
            output_dir=str(folder / "run"),
            **SHORT,
        )
    )
    return (folder / "run" / "checkpoints" / "final" / "policy.safetensors").read_bytes()


def signalling(folder: Path, number: int, when: str) -> list[str]:
    """Return the flags of a short run in which a worker's environment sends `number` to all processes of the run."""
    own = ["--env", "tests.cli.signalling:SignalsItsGroup", "--workers", "2", "--acting", "central"]
    own += ["--env-kwargs", f"number={int(number)}", f"sent={folder / 'sent'}", f"when={when}"]
    for name, value in SHORT.items():
        own += [f"--{name.replace('_', '-')}", str(value[0] if isinstance(value, tuple) else value)]
    return own


@pytest.mark.parametrize(
    ("start_method", "number", "code"),
    [
        *(pytest.param(method, signal.SIGTERM, 143, marks=pytest.mark.proof) for method in ("spawn", "fork")),
        ("forkserver", signal.SIGTERM, 143),
        ("fork", signal.SIGHUP, 129),
    ],
)
def test_a_signal_to_all_processes_changes_no_result(
    start_method: str, number: signal.Signals, code: int, tmp_path: Path, undisturbed: bytes
) -> None:
    flags = [*signalling(tmp_path, number, "step"), "--start-method", start_method]
    with training(tmp_path, *flags) as process:
        _, errors = process.communicate()
    assert process.returncode == code, errors
    assert "restart" not in errors and "everything is saved" in errors, errors
    run = tmp_path / "run"
    last = Checkpoints(run / "checkpoints").load("last")
    assert 0 < last.step < SHORT["steps"]
    assert not (run / "checkpoints" / "final").exists()
    envfleet.resume(run, trust=True, backend="sequential", quiet=True)
    assert (run / "checkpoints" / "final" / "policy.safetensors").read_bytes() == undisturbed


def test_a_signal_while_workers_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with training(tmp_path, *signalling(tmp_path, signal.SIGTERM, "make")) as process:
        _, errors = process.communicate()
        left = not wait_until(lambda: gone(members_of_group(process.pid)))
    assert process.returncode == 143, errors
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    assert not left
    assert not (tmp_path / "run").exists()


def members_of_group(group: int) -> list[int]:
    return [pid for pid in psutil.pids() if _group_of(pid) == group]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_second_signal_has_its_own_exit_code(number: signal.Signals, code: int) -> None:
    with Interruption(quiet=True) as interruption:
        signal.raise_signal(signal.SIGTERM)
        assert interruption.asked
        with pytest.raises(Terminated) as caught:
            signal.raise_signal(number)
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("acting", "workers"),
    [("worker", 1), ("central", 1), *(pytest.param(way, 2, marks=pytest.mark.proof) for way in ("worker", "central"))],
)
def test_a_second_signal_does_not_wait_for_the_rollout(tmp_path: Path, acting: str, workers: int) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    # A rollout takes 500 s or more, so only the second signal can end this before the test times out.
    flags = ["--env", "slow:Slow", "--n-envs", "8", "--rollout-steps", "250", "--acting", acting]
    flags += ["--workers", str(workers)]
    with training(tmp_path, *flags) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("  folder"):  # the last line before the first rollout
                break
        (tmp_path / "stepping").unlink(missing_ok=True)  # left by the trial environment
        wait_for(tmp_path / "stepping", process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr.readline() == "\n"
        assert process.stderr.readline() == "stopping after this update; once more ends at once, without saving\n"
        workers = children_of(process)
        assert workers and process.poll() is None
        os.killpg(process.pid, signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 143
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    assert wait_until(lambda: gone(workers))
    assert not (tmp_path / "run").exists()  # nothing was trained, so no folder is left
