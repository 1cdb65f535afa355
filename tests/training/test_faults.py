"""Training continues when workers die or hang or environments raise; only the rows in progress are lost."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from envfleet.errors import ClusterLostError, EnvError, WorkerError
from envfleet.fleet.fleet import Fleet
from envfleet.rollout.arrays import Rollout
from envfleet.runs.run import Run
from envfleet.training.callbacks import Callback, Moment
from tests.rollout.envs import Counter, faulty_counter
from tests.training.envs import Ages
from tests.training.running import run, weights

pytestmark = pytest.mark.usefixtures("start_method")
SEED, ENVS, STEPS, GROUP = 5, 8, 32, 4
PROCESSES: dict[str, Any] = {"backend": "processes", "workers": 2}
SETTINGS: dict[str, Any] = {"env": faulty_counter, "n_envs": ENVS, "group_size": GROUP, "steps": 3 * ENVS * STEPS}
BOTH_WAYS = pytest.mark.parametrize("acting", ["worker", "central"])


class Witness(Callback):
    """Records which rows were valid, and kills a worker after update `kill_after`."""

    def __init__(self, kill_after: int | None = None) -> None:
        self.valid: list[Any] = []
        self.restarts = 0.0
        self._kill_after = kill_after

    def on_rollout(self, moment: Moment, rollout: Rollout) -> None:
        self.valid.append(rollout.valid.copy())

    def on_update(self, moment: Moment) -> None:
        self.restarts = max(self.restarts, moment.metrics.get("fleet/restarts", 0.0))
        if len(self.valid) == self._kill_after:
            os.kill(workers_of_this_process()[0], signal.SIGKILL)

    @property
    def lost(self) -> list[tuple[int, int, int]]:
        """Return (rollout, time, environment) of every lost row."""
        return [tuple(map(int, place)) for place in np.argwhere(~np.array(self.valid))]


def workers_of_this_process() -> list[int]:
    """Return the pids of the worker processes, the first worker first."""
    found = {
        name: child.pid
        for child in psutil.Process().children(recursive=True)
        if re.fullmatch(r"envfleet-\d+", name := child.name())
    }
    return [found[name] for name in sorted(found)]


def fault(kind: str, tmp_path: Path, step: int = STEPS + 10) -> dict[str, Any]:
    """Return a fault of the second environment, by default in the second rollout."""
    marker = "takes-long" if kind == "hang" else f"struck-{len(list(tmp_path.iterdir()))}"
    return {"kind": kind, "seed": SEED + 1, "step": step, "marker": str(tmp_path / f"{marker}-once")}


@pytest.mark.parametrize(("acting", "schedule"), [("worker", "overlap"), ("central", "sync")])
def test_a_worker_that_is_killed_in_a_rollout(acting: str, schedule: str, tmp_path: Path) -> None:
    witness = Witness()
    options = {**SETTINGS, **PROCESSES, "acting": acting, "schedule": schedule}
    done = run(tmp_path / "run", [witness], env_kwargs=fault("kill", tmp_path), **options)
    assert witness.lost == [(1, 10, env) for env in range(GROUP)]
    assert [row["step"] for row in done.metrics] == [256, 512, 768]
    assert all(np.isfinite(row["train/loss"]) for row in done.metrics)
    assert weights(tmp_path / "run")


def test_no_more_restarts_than_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**SETTINGS, **PROCESSES, "restarts": 0}
    with pytest.raises(WorkerError, match="restarts= allows more"):
        run(tmp_path / "run", env_kwargs=fault("kill", tmp_path), **options)
    said = capsys.readouterr()
    assert f"the last checkpoint is at step 256; resume with: envfleet resume {tmp_path / 'run'}" in said.out + said.err


def test_a_cluster_that_is_lost_while_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint without its environments would not resume exactly, so the one before it stays the last."""
    original, saved = Fleet.state, []

    def state(fleet: Fleet, progress: Any = None) -> dict[str, Any]:
        if fleet.num_envs == ENVS:  # not the one that tests whether a resume is exact
            saved.append(fleet)
        if len(saved) == 2:
            raise ClusterLostError("the head has not answered")
        return original(fleet, progress)

    monkeypatch.setattr(Fleet, "state", state)
    with pytest.raises(ClusterLostError):
        run(tmp_path / "run", **{**SETTINGS, "env": Counter, "checkpoint_every": 1})
    assert Run.load(tmp_path / "run").checkpoint().step == 256


@pytest.mark.usefixtures("limits_hold")
def test_an_environment_that_hangs(tmp_path: Path) -> None:
    witness = Witness()
    options = {**SETTINGS, **PROCESSES, "acting": "central", "timeout": 1.0, "memory": "gru"}
    run(tmp_path / "run", [witness], env_kwargs=fault("hang", tmp_path), **options)
    assert witness.lost == [(1, 10, env) for env in range(GROUP)]


@BOTH_WAYS
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_an_environment_that_raises(
    acting: str, memory: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    witness = Witness()
    options = {**SETTINGS, "acting": acting, "on_error": "restart", "memory": memory, "quiet": False}
    done = run(tmp_path / "run", [witness], env_kwargs=fault("raise", tmp_path), **options)
    assert witness.lost == [(1, 10, 1)]
    assert [row.get("fleet/lost_steps") for row in done.metrics] == [None, 1.0, 1.0]
    (restart,) = caplog.messages
    assert restart.startswith("an environment is restarted: RuntimeError: the simulator has failed (environment 1, ")
    assert "1 step to faults of environments or workers" in capfd.readouterr().err


@BOTH_WAYS
@pytest.mark.parametrize("schedule", ["sync", "overlap"])
def test_an_environment_that_raises_stops_the_training_where_nothing_else_was_asked(
    acting: str, schedule: str, tmp_path: Path
) -> None:
    with pytest.raises(EnvError, match="the simulator has failed") as failure:
        run(tmp_path / "run", env_kwargs=fault("raise", tmp_path), acting=acting, schedule=schedule, **SETTINGS)
    assert failure.value.context.env_index == 1
    assert failure.value.context.seed == SEED + 1


@pytest.mark.parametrize(
    ("schedule", "acting"),
    [
        ("sync", "worker"),
        ("overlap", "worker"),
        ("sync", "central"),
        ("overlap", "central"),
    ],
)
def test_a_worker_that_dies_idle_does_not_fail_a_call_of_a_callback(acting: str, schedule: str, tmp_path: Path) -> None:
    class Caller(Witness):
        def on_update(self, moment: Moment) -> None:
            super().on_update(moment)
            moment.call_envs("get_wrapper_attr", "spec")

    options = {**SETTINGS, **PROCESSES, "env": Counter, "acting": acting, "schedule": schedule}
    done = run(tmp_path / "run", [Caller(kill_after=1)], **options)
    assert [row["step"] for row in done.metrics] == [256, 512, 768]


@pytest.mark.parametrize(("acting", "schedule"), [("worker", "overlap"), ("worker", "sync"), ("central", "overlap")])
def test_a_worker_that_is_killed_while_the_learner_learns(acting: str, schedule: str, tmp_path: Path) -> None:
    """After the first update: with sync no rollout is in progress, with overlap the second one may be."""
    witness = Witness(kill_after=1)
    options = {**SETTINGS, **PROCESSES, "env": Counter, "acting": acting, "schedule": schedule, "memory": "gru"}
    run(tmp_path / "run", [witness], **options)
    if schedule == "sync":
        assert witness.lost == [(1, 0, env) for env in range(GROUP)]
    else:
        (rollout, time), *others = sorted({lost[:2] for lost in witness.lost})
        assert not others
        assert (rollout == 1) or (rollout, time) == (2, 0)
        assert len(witness.lost) == GROUP


@pytest.mark.parametrize("shared", [False, True])
def test_both_ways_of_acting_learn_the_same_from_a_death(shared: bool, tmp_path: Path) -> None:
    for acting in ("worker", "central"):
        options = {**SETTINGS, **PROCESSES, "acting": acting, "shared": shared}
        run(tmp_path / acting, env_kwargs=fault("kill", tmp_path), **options)
    assert weights(tmp_path / "worker") == weights(tmp_path / "central")


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
def test_the_metrics_tell_of_the_restart(schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envfleet.training.reporting.HEALTH_SECONDS", 0.0)
    witness = Witness()
    options = {**SETTINGS, **PROCESSES, "acting": "central", "schedule": schedule}
    run(tmp_path / "run", [witness], env_kwargs=fault("kill", tmp_path), **options)
    assert witness.restarts == 1.0


class OldestAges(Callback):
    """Records the most episodes that an environment has had since it was built."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_update(self, moment: Moment) -> None:
        self.seen.append(max(moment.call_envs("age")))


def test_environments_are_rebuilt_after_as_many_episodes_as_asked_for(tmp_path: Path) -> None:
    for every, name in ((None, "kept"), (3, "rebuilt")):
        ages = OldestAges()
        run(tmp_path / name, [ages], env=Ages, recycle_every=every)
        assert ages.seen[-1] > 3 if every is None else max(ages.seen) == 3
    run(tmp_path / "in-workers", env=Ages, recycle_every=3, backend="processes", workers=2)
    assert weights(tmp_path / "in-workers") == weights(tmp_path / "rebuilt") != weights(tmp_path / "kept")
