"""A killed run ends with the same bytes as one that was never interrupted."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from envfleet.runs import checkpoints
from envfleet.runs.checkpoints import Checkpoints
from envfleet.training import resume
from envfleet.training.callbacks import Callback, Moment
from tests.training.chained_kills import kill_until_done
from tests.training.envs import Walk
from tests.training.running import SMALL, run, weights
from tests.waiting import gone, wait_until

LONG: dict[str, Any] = {
    "n_envs": 8,
    "steps": 8 * 32 * 40,
    "checkpoint_every": 1,  # after every update, so that many kills hit the writing of one
    "eval_every": 8 * 32 * 10,
    "eval_episodes": 1,
    "learning_rate_schedule": "linear",
}
WAYS = [("sync", "worker", "none"), ("sync", "central", "gru"), ("overlap", "worker", "gru")]
WAYS += [("overlap", "central", "none")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "way"), [(3, WAYS[0]), (3, WAYS[2]), *(pytest.param(7, way, marks=pytest.mark.proof) for way in WAYS)]
)
def test_chained_kills(tmp_path: Path, kills: int, way: tuple[str, str, str]) -> None:
    """Several kills per run, at random moments of starting, training and saving."""
    schedule, acting, memory = way
    options = {**LONG, "schedule": schedule, "acting": acting, "memory": memory}
    if kills < 7:
        options["steps"] //= 2
    run(tmp_path / "whole", **options)
    broken = tmp_path / "broken"
    done = kill_until_done(
        broken,
        lambda: run(broken, **options),
        lambda: resume(broken, quiet=True),
        kills=kills,
        seed=len(schedule + acting + memory),
    )
    assert done == kills
    assert weights(broken) == weights(tmp_path / "whole")
    assert steps_in(broken) == steps_in(tmp_path / "whole")


def steps_in(folder: Path) -> list[tuple[int, bool]]:
    """Return the step of each row of metrics and whether it is an evaluation."""
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(row["step"], "eval/mean_reward" in row) for row in rows]


SCRIPT = """
import sys
from envfleet.algorithms.settings import PPO
from envfleet.training import resume, train
sys.path.append({root!r})
from tests.training.chained_kills import stop_after
if __name__ == "__main__":
    if sys.argv[2] == "to be killed":
        stop_after(4, 2, lambda: print("saved", flush=True))
    if sys.argv[1] == "train":
        train(PPO(**{settings!r}))
    else:
        resume({folder!r}, quiet=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "start_method"), [(1, "forkserver"), pytest.param(3, "spawn", marks=pytest.mark.proof)]
)
def test_kills_of_whole_interpreters_with_worker_processes(tmp_path: Path, kills: int, start_method: str) -> None:
    options = {**SMALL, **LONG, "env": "Acrobot-v1", "schedule": "overlap", "memory": "lstm"}
    options |= {"steps": 8 * 32 * 6 * (kills + 1), "eval_every": 0}
    run(tmp_path / "whole", **options)
    broken = tmp_path / "broken"
    settings = {**options, "output_dir": str(broken), "backend": "processes", "workers": 2}
    settings["start_method"] = start_method
    script = tmp_path / "script.py"
    root = str(Path(__file__).parents[2])
    script.write_text(SCRIPT.format(settings=settings, folder=str(broken), root=root))
    moments = random.Random(1)
    for number in range(kills):
        command = [sys.executable, str(script), "resume" if number else "train", "to be killed"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"saved\n"
            time.sleep(moments.uniform(0.0, 0.2))
            workers = [worker.pid for worker in psutil.Process(process.pid).children(recursive=True)]
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert workers and wait_until(lambda pids=workers: gone(pids))
    if start_method == "spawn":
        subprocess.run([sys.executable, str(script), "resume", "to its end"], check=True)
    else:  # in this process, which has imported torch already
        resume(broken, quiet=True)
    assert weights(broken) == weights(tmp_path / "whole")


# ---- every kind of simulator ----


NORMALISED = {"normalise_observations": True, "normalise_rewards": True}


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
@pytest.mark.parametrize(
    "options",
    [{"env": "HalfCheetah-v5", **NORMALISED}, {"env": "Taxi-v4"}, {"env": Walk, **NORMALISED}],
    ids=["mujoco-normalised", "taxi", "own-state"],
)
def test_a_run_that_lost_its_second_half_ends_with_the_same_bytes(
    tmp_path: Path, options: dict[str, Any], schedule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    n_envs, updates = 4, 6
    rollout = n_envs * SMALL["rollout_steps"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    budget = {"n_envs": n_envs, "steps": updates * rollout, "checkpoint_every": 1, "keep_checkpoints": updates}
    run(whole, **options, **budget, schedule=schedule)
    shutil.copytree(whole, cut, symlinks=True)
    for step in range(3 * rollout, updates * rollout + 1, rollout):  # in mid-episode
        shutil.rmtree(cut / "checkpoints" / f"step-{step}")
    for name in ("last", "final"):
        (cut / "checkpoints" / name).unlink()
    done = resume(cut, trust=True)
    said = capsys.readouterr().err
    assert f"resuming from step {2 * rollout}" in said
    assert "fresh episodes" not in said
    assert done.metrics[-1]["step"] == updates * rollout
    assert steps_in(cut) == steps_in(whole)
    assert weights(cut) == weights(whole)


# ---- killed while it saves ----


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_the_middle(path: Path, content: bytes) -> None:
    path.write_bytes(content[: len(content) // 2])
    die()


class DieWhileSaving(Callback):
    """After the second update, replaces `name` in `where` with a function that kills the process."""

    def __init__(self, where: Any, name: str, deadly: Any) -> None:
        self.where, self.name, self.deadly, self.updates = where, name, deadly, 0

    def on_update(self, moment: Moment) -> None:
        self.updates += 1
        if self.updates == 2:
            setattr(self.where, self.name, self.deadly)


@pytest.mark.parametrize(
    ("where", "name", "deadly", "goes_on_from"),
    [
        pytest.param(checkpoints, "write_file", die_in_the_middle, 1, id="half of a file is written"),
        pytest.param(Checkpoints, "_put", die, 1, id="the folder has no name yet"),
        pytest.param(Checkpoints, "_point", die, 2, id="last points to the one before"),
        pytest.param(Checkpoints, "_remove_old", die, 2, id="old ones are still there"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns about leftover threads
def test_killed_inside_the_writing_of_a_checkpoint(
    tmp_path: Path, where: Any, name: str, deadly: Any, goes_on_from: int, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    options = {"n_envs": 4, "steps": 4 * 32 * 4, "checkpoint_every": 1, "keep_checkpoints": 1}
    run(whole, **options)
    child = os.fork()
    if child == 0:
        try:
            run(broken, [DieWhileSaving(where, name, deadly)], **options)
        finally:
            os._exit(1)  # pytest must not continue in the child
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    resume(broken)
    assert f"resuming from step {goes_on_from * 4 * 32}" in capsys.readouterr().err
    assert steps_in(broken) == steps_in(whole)
    assert weights(broken) == weights(whole)
    left = sorted(path.name for path in (broken / "checkpoints").iterdir())
    assert left == ["final", "last", f"step-{options['steps']}"]


# ---- how often it saves ----


def test_minutes_alone_bring_checkpoints(tmp_path: Path) -> None:
    """Every update takes longer than a millionth of a minute. By steps alone, only the last one would be saved."""
    options = {"n_envs": 4, "steps": 4 * 32 * 4, "checkpoint_every": 10**9, "keep_checkpoints": 9}
    run(tmp_path / "often", **options, checkpoint_minutes=1e-6)
    assert Checkpoints(tmp_path / "often" / "checkpoints").steps() == [128, 256, 384, 512]
    run(tmp_path / "never", **options, checkpoint_minutes=1e6)
    assert Checkpoints(tmp_path / "never" / "checkpoints").steps() == [512]
    assert weights(tmp_path / "often") == weights(tmp_path / "never")
