"""If a simulator cannot be restored, the run reports it and resumes with fresh episodes, the same on every backend."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from envfleet.runs.checkpoints import Checkpoints
from envfleet.training import exactness, resume
from envfleet.training.callbacks import Callback, Moment
from tests.fleet.pools import cart_pole
from tests.inexact_worlds import (
    ClassAttribute,
    CrashesWhenRestored,
    Handle,
    Honest,
    Moody,
    NoState,
    pendulum_of_random_mass,
)
from tests.training.running import StopAfter, run, weights

ROLLOUT = 4 * 32
OPTIONS: dict[str, Any] = {"n_envs": 4, "steps": 3 * ROLLOUT, "checkpoint_every": 1, "quiet": False}
BACKENDS: dict[str, dict[str, Any]] = {
    "sequential": {"backend": "sequential"},
    "threads": {"backend": "threads", "workers": 2, "group_size": 2},
    "processes": {"backend": "processes", "workers": 2, "group_size": 2},
}


def parts_of(folder: Path, name: str = "last") -> dict[str, Any]:
    return Checkpoints(folder / "checkpoints").load(name).state["parts"]  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactness, "_known_exact", set())


@pytest.mark.parametrize(
    ("env", "backend"),
    [
        (Handle, "sequential"),
        (Handle, "processes"),
        (ClassAttribute, "threads"),
        (CrashesWhenRestored, "sequential"),
        (pendulum_of_random_mass, "threads"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_run_says_that_its_resume_will_not_be_exact(
    tmp_path: Path, env: Any, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run", [StopAfter(2)], env=env, acting="central", **OPTIONS, **BACKENDS[backend])
    said = capsys.readouterr().err
    assert said.count("a resume of this run will begin fresh episodes: ") == 1  # although it saved twice
    assert parts_of(tmp_path / "run")["fleet"] is None
    done = resume(tmp_path / "run", env=env)
    said = capsys.readouterr().err
    assert "the environments start fresh episodes: " in said
    assert done.metrics[-1]["step"] == 3 * ROLLOUT


def test_a_pool_says_why_without_asking_for_methods_it_cannot_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run", [StopAfter(2)], env=cart_pole, acting="central", **OPTIONS, **BACKENDS["sequential"])
    said = " ".join(capsys.readouterr().err.split())
    reason = "fresh episodes: a pool cannot save and restore the state of its environments hint: write it"
    assert said.count(reason) == 1
    assert "get_state" not in said


def test_an_exact_one_is_tried_once_and_stays_exact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole", env=Honest, **OPTIONS)
    run(tmp_path / "cut", [StopAfter(2)], env=Honest, **OPTIONS)
    assert parts_of(tmp_path / "cut")["fleet_tried"]
    monkeypatch.setattr(exactness, "why_inexact", None)  # a second trial would fail
    resume(tmp_path / "cut", env=Honest)
    assert "fresh episodes" not in capsys.readouterr().err
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_trying_it_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments share a drift in this process, so an extra reset of any of them would show."""
    ClassAttribute.shared_drift = 0.0
    run(tmp_path / "tried", env=ClassAttribute, **OPTIONS)
    monkeypatch.setattr(exactness, "why_inexact", lambda *_, **__: None)
    ClassAttribute.shared_drift = 0.0
    run(tmp_path / "not tried", env=ClassAttribute, **OPTIONS)
    assert weights(tmp_path / "tried") == weights(tmp_path / "not tried")


# ---- fresh episodes


def resumed(folder: Path, **options: Any) -> bytes:
    """Return the weights of a run that was stopped after one update and resumed with fresh episodes."""
    run(folder, [StopAfter(1)], env=NoState, normalise_rewards=True, **OPTIONS, **{"group_size": 2, **options})
    resume(folder, env=NoState, quiet=True)
    return weights(folder)


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
def test_fresh_episodes_give_the_same_weights_everywhere(tmp_path: Path, schedule: str) -> None:
    """Both ways of acting give them too: both see the masks of the fresh episodes."""
    ways = [("sequential", "worker"), ("sequential", "central"), ("threads", "worker")]
    ways += [("processes", "central")] if schedule == "sync" else []
    found = {
        (backend, acting): resumed(
            tmp_path / f"{backend}-{acting}", acting=acting, schedule=schedule, **BACKENDS[backend]
        )
        for backend, acting in ways
    }
    assert len(set(found.values())) == 1, {way: hash(value) for way, value in found.items()}


def test_fresh_episodes_are_not_those_with_which_the_run_began(tmp_path: Path) -> None:
    run(tmp_path / "run", [StopAfter(1)], env=NoState, **OPTIONS)
    resume(tmp_path / "run", env=NoState, quiet=True, steps=2 * ROLLOUT)
    first = NoState.seeds[-4:]
    resume(tmp_path / "run", env=NoState, quiet=True)
    assert len({*first, *NoState.seeds[-4:], 5, 6, 7, 8}) == 12


# ---- a restore that fails


@pytest.mark.parametrize(
    ("backend", "acting"), [("sequential", "worker"), ("threads", "central"), ("processes", "central")]
)
def test_a_restore_that_raises_begins_fresh_episodes(
    tmp_path: Path, backend: str, acting: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run", [StopAfter(1)], env=Moody, acting=acting, **OPTIONS)
    assert parts_of(tmp_path / "run")["fleet"] is not None
    monkeypatch.setenv("ENVFLEET_TEST_MOOD", "raise")
    where = {name: value for name, value in BACKENDS[backend].items() if name != "group_size"}
    done = resume(tmp_path / "run", env=Moody, **where)
    said = capsys.readouterr().err
    assert "the environments start fresh episodes: NotImplementedError: this simulator cannot be set" in said
    assert done.metrics[-1]["step"] == 3 * ROLLOUT


def test_a_restore_that_kills_its_worker_begins_fresh_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run", [StopAfter(1)], env=Moody, acting="central", **OPTIONS)
    monkeypatch.setenv("ENVFLEET_TEST_MOOD", "exit")
    monkeypatch.setenv("ENVFLEET_TEST_PID", str(os.getpid()))
    done = resume(tmp_path / "run", env=Moody, backend="processes", workers=1, restarts=0)
    assert "the environments start fresh episodes: worker 0 died" in capsys.readouterr().err
    assert done.metrics[-1]["step"] == 3 * ROLLOUT


# ---- not tried yet


def test_one_that_was_stopped_in_a_hurry_is_tried_when_it_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C before the first checkpoint saves at once, without trying the state."""

    class Interrupt(Callback):
        def on_update(self, moment: Moment) -> None:
            signal.raise_signal(signal.SIGINT)

    def interrupted(folder: Path, env: Any) -> None:
        with monkeypatch.context() as changed, pytest.raises(KeyboardInterrupt):
            changed.setattr(exactness, "why_inexact", None)
            run(folder, [Interrupt()], env=env, **OPTIONS)
        assert parts_of(folder)["fleet"] is not None
        assert not parts_of(folder)["fleet_tried"]

    run(tmp_path / "whole", env=Honest, **OPTIONS)
    monkeypatch.setattr(exactness, "_known_exact", set())
    interrupted(tmp_path / "honest", Honest)
    interrupted(tmp_path / "handle", Handle)
    capsys.readouterr()
    resume(tmp_path / "honest", env=Honest)
    assert "fresh episodes" not in capsys.readouterr().err
    assert weights(tmp_path / "honest") == weights(tmp_path / "whole")
    resume(tmp_path / "handle", env=Handle)
    said = capsys.readouterr().err
    assert "start fresh episodes: restored into a fresh environment, it continues differently" in said
    assert "a resume of this run will begin" not in said  # it was reported already


def test_a_trial_that_a_signal_ended_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to the whole process group may kill the processes of the trial."""

    def stopped(*_: Any, **__: Any) -> str:
        signal.raise_signal(signal.SIGINT)
        return "worker 0 died"

    monkeypatch.setattr(exactness, "why_inexact", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", env=Honest, **OPTIONS)
    assert parts_of(tmp_path / "run")["fleet"] is not None
    assert not parts_of(tmp_path / "run")["fleet_tried"]


def test_an_environment_that_was_mended_is_exact_from_its_next_checkpoint_on(tmp_path: Path) -> None:
    run(tmp_path / "run", [StopAfter(1)], env=NoState, **OPTIONS)
    assert parts_of(tmp_path / "run")["fleet"] is None
    resume(tmp_path / "run", env=Honest, quiet=True)
    assert parts_of(tmp_path / "run")["fleet"] is not None
