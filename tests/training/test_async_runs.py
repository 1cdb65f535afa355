"""Asynchronous runs: what is recorded can be replayed to the same weights; stops, resumes and deaths of workers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envfleet import clock
from envfleet.algorithms.settings import DQN, PPO, SAC
from envfleet.errors import SettingsError
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.metrics import read_metrics
from envfleet.training import resume, train
from envfleet.training.callbacks import Callback, Moment
from tests.rollout.envs import Counter, faulty_counter
from tests.training.running import SMALL, StopAfter, run, weights
from tests.training.test_faults import Witness, fault
from tests.training.test_timed import TIMED, Clock

THREADS: dict[str, Any] = {"backend": "threads", "workers": 2}
PROCESSES: dict[str, Any] = {"backend": "processes", "workers": 2}
ASYNC: dict[str, Any] = {"schedule": "async", "checkpoint_every": 1}
UPDATE = SMALL["n_envs"] * SMALL["rollout_steps"]
DQN_SMALL: dict[str, Any] = {
    **{name: value for name, value in SMALL.items() if name not in ("epochs", "sequence_length", "memory_size")},
    "rollout_steps": 8,
    "steps": 12 * 8 * 6,
    "learning_starts": 96,
    "minibatch_size": 16,
    "train_frequency": 8,
    "gradient_steps": 1,
}
SAC_SMALL: dict[str, Any] = {
    **{name: value for name, value in DQN_SMALL.items() if name not in ("train_frequency", "gradient_steps")},
    "env": "Pendulum-v1",
    "updates_per_step": 1 / 8,
}


class Lags(Callback):
    """Notes the lags of every update."""

    def __init__(self) -> None:
        self.most: list[float] = []

    def on_update(self, moment: Moment) -> None:
        self.most.append(moment.metrics["lag/max"])


@pytest.mark.parametrize(
    ("where", "options"),
    [
        (THREADS, {"normalise_rewards": True, "normalise_observations": True, "epochs": 2}),
        (PROCESSES, {"steps": 12 * UPDATE}),
        (THREADS, {"memory": "gru", "group_size": 3, "workers": 3}),  # four groups on three workers
    ],
    ids=["normalised", "processes", "memory"],
)
def test_a_recorded_order_replays_to_the_same_weights(where: Any, options: Any, tmp_path: Path) -> None:
    options = {**where, **options, **ASYNC}
    run(tmp_path / "run", **{**options, "record_order": True})
    order = tmp_path / "run" / "order.jsonl"
    replayed = {**options, "backend": "sequential", "workers": None, "replay_order": order}
    run(tmp_path / "again", **replayed)
    assert weights(tmp_path / "again") == weights(tmp_path / "run")
    # The order matters: with every rollout of the newest weights, as in a run on one worker, the result is another.
    run(tmp_path / "other", **{**replayed, "replay_order": None})
    assert weights(tmp_path / "other") != weights(tmp_path / "run")


@pytest.mark.parametrize("algorithm", [DQN, SAC])
def test_a_recorded_order_replays_to_the_same_weights_off_policy(algorithm: Any, tmp_path: Path) -> None:
    small = DQN_SMALL if algorithm is DQN else SAC_SMALL
    for folder, where in (("run", {**THREADS, "record_order": True}), ("again", {"backend": "sequential"})):
        order = {"replay_order": tmp_path / "run" / "order.jsonl"} if folder == "again" else {}
        train(algorithm(**{**small, **ASYNC, **where, **order, "output_dir": str(tmp_path / folder)}))
    assert weights(tmp_path / "again") == weights(tmp_path / "run")
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert lines[-1]["train/n_updates"] == lines[-1]["step"] / 8  # the ratio of updates to steps is kept


def test_sac_with_memory_is_refused() -> None:
    with pytest.raises(SettingsError, match="schedule is async, expected sync or overlap with memory"):
        SAC(env="Pendulum-v1", memory="gru", schedule="async")


def test_a_replay_needs_the_same_fleet_and_ends_with_its_order(tmp_path: Path) -> None:
    run(tmp_path / "run", **ASYNC, record_order=True)
    order = {"replay_order": tmp_path / "run" / "order.jsonl", **ASYNC}
    with pytest.raises(SettingsError, match=r"is one of 3 groups of environments, but this run has 4"):
        run(tmp_path / "other", **order, group_size=3)
    with pytest.raises(SettingsError, match=r"ends after 3 updates[\s\S]*--steps"):
        run(tmp_path / "longer", **order, steps=4 * UPDATE)
    run(tmp_path / "stopped", [StopAfter(1)], **order)
    with pytest.raises(SettingsError, match="a replay cannot be resumed"):
        resume(tmp_path / "stopped", quiet=True)


def test_on_one_worker_in_this_process_nothing_lags(tmp_path: Path) -> None:
    lags = Lags()
    for name in ("one", "two"):
        run(tmp_path / name, [lags], **ASYNC)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
    assert lags.most == [0.0] * 6


def test_what_was_learned_is_resumed_and_fresh_episodes_are_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run", [StopAfter(2)], **ASYNC, **THREADS, record_order=True, quiet=False)
    said = " ".join(capsys.readouterr().err.split())
    assert "this run is not reproducible" in said
    saved = Checkpoints(tmp_path / "run" / "checkpoints").load("last").state["parts"]
    resumed = resume(tmp_path / "run", steps=4 * UPDATE)
    said = " ".join(capsys.readouterr().err.split())
    assert "the environments start fresh episodes: with the schedule async" in said
    assert [row["step"] for row in resumed.metrics] == [UPDATE * (update + 1) for update in range(4)]
    assert [row["train/n_updates"] for row in resumed.metrics] == [8.0, 16.0, 24.0, 32.0]  # PPO's batches in one epoch
    after = Checkpoints(tmp_path / "run" / "checkpoints").load("last").state["parts"]
    assert after["schedule"]["number"] == saved["schedule"]["number"] + 2
    assert after["schedule"]["next_rollout"] > saved["schedule"]["next_rollout"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "order.jsonl").read_text().splitlines()]
    assert [line.get("update", line.get("resumed")) for line in lines] == [None, 0, 1, 2, 2, 3]
    fresh = [number for line in lines[4:] for _, number, _ in line["rollouts"]]
    assert min(fresh) >= saved["schedule"]["next_rollout"]  # no noise comes twice


def test_two_resumes_of_the_same_checkpoint_continue_alike(tmp_path: Path) -> None:
    """On one worker nothing depends on timing, so learner, optimiser and counters show that they were restored."""
    for name in ("one", "two"):
        run(tmp_path / name, [StopAfter(2)], **ASYNC, normalise_rewards=True)
        resume(tmp_path / name, quiet=True)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
    run(tmp_path / "whole", **ASYNC, normalise_rewards=True)
    assert weights(tmp_path / "whole") != weights(tmp_path / "one")  # other episodes after the resume


class UntilLost(Witness):
    """Stops the run once it has learned from the rollout with lost rows; others may be ready long before."""

    def on_update(self, moment: Moment) -> None:
        super().on_update(moment)
        if not self.valid[-1].all():
            moment.stop = True


def test_a_worker_that_is_killed_loses_only_its_step(tmp_path: Path) -> None:
    witness = UntilLost()
    options = {"n_envs": 8, "group_size": 4, "steps": 10**9, **PROCESSES, **ASYNC, "env": faulty_counter}
    done = run(tmp_path / "run", [witness], env_kwargs=fault("kill", tmp_path), record_order=True, **options)
    assert len(witness.lost) == 4  # one step of its group of four
    assert {time for _, time, _ in witness.lost} == {10}
    assert [row["step"] for row in done.metrics] == [256 * (update + 1) for update in range(len(witness.valid))]
    assert all(np.isfinite(row["train/loss"]) for row in done.metrics)
    with pytest.raises(SettingsError, match="a worker died and lost steps"):
        run(tmp_path / "again", replay_order=tmp_path / "run" / "order.jsonl", **{**options, "env": Counter})


def test_a_worker_that_is_killed_from_outside(tmp_path: Path) -> None:
    witness = Witness(kill_after=2)
    options = {"n_envs": 8, "group_size": 4, "steps": 8 * 8 * 32, **PROCESSES, **ASYNC, "env": Counter}
    done = run(tmp_path / "run", [witness], **options)
    assert len(done.metrics) == 8


def test_a_callback_can_call_the_environments(tmp_path: Path) -> None:
    class Caller(Callback):
        calls = 0

        def on_update(self, moment: Moment) -> None:
            self.calls += len(moment.call_envs("get_wrapper_attr", "spec"))

    caller = Caller()
    run(tmp_path / "run", [caller], **ASYNC, **THREADS)
    assert caller.calls == 3 * SMALL["n_envs"]


def test_a_signal_saves_and_stops(tmp_path: Path) -> None:
    class Interrupts(Callback):
        def on_update(self, moment: Moment) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        run(tmp_path / "run", [Interrupts()], **ASYNC, **THREADS)
    assert ended.value.code == 128 + signal.SIGTERM
    assert Checkpoints(tmp_path / "run" / "checkpoints").step_of("last") == UPDATE


def test_a_timed_run_ends_with_its_last_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers and learner read the clock at most 300 times before the first update is complete."""
    monkeypatch.setattr(clock, "time", Clock(600))
    done = run(tmp_path / "run", **{**ASYNC, **THREADS, **TIMED})
    assert Checkpoints(tmp_path / "run" / "checkpoints").step_of("final") == done.metrics[-1]["step"] >= UPDATE


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schedule": "async", "acting": "central"}, "each worker acts by itself"),
        ({"record_order": True}, "record_order needs schedule async"),
        ({"replay_order": "order.jsonl"}, "replay_order needs schedule async"),
        ({"schedule": "async", "replay_order": "order.jsonl", "duration": 1.0}, "a clock is not replayed"),
        ({"schedule": "async", "max_lag": 0}, "max_lag"),
    ],
)
def test_settings_that_contradict_the_schedule(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        PPO(**options)


def test_an_algorithm_says_whether_it_supports_async() -> None:
    class Own(PPO):
        algorithm = "own"
        schedules = ("sync", "overlap")

    with pytest.raises(SettingsError, match="expected sync or overlap: the learner of own does not support it"):
        Own(schedule="async")


def test_shorter_rollouts_and_fewer_passes_are_the_default(tmp_path: Path) -> None:
    """The preset of CartPole makes 20 passes over rollouts of 32 steps; with async there are 4 over those of 16."""
    given: dict[str, Any] = {"env": "CartPole-v1", "backend": "sequential", "eval_every": 0, "quiet": True, "seed": 1}
    given |= {"schedule": "async", "steps": 512, "checkpoint_every": 1, "output_dir": str(tmp_path / "run")}
    done = train(PPO(**given), callbacks=[StopAfter(1)])
    adapted = {"rollout_steps": 16, "epochs": 4, "minibatch_size": 51}
    assert {name: done.settings[name] for name in adapted} == adapted
    resumed = resume(tmp_path / "run", quiet=True)
    assert {name: resumed.settings[name] for name in adapted} == adapted  # not adapted again
    assert [row["train/n_updates"] for row in resumed.metrics] == [12.0, 24.0, 36.0, 48.0]


def test_given_rollouts_and_passes_are_left_alone(tmp_path: Path) -> None:
    done = run(tmp_path / "run", schedule="async", steps=UPDATE, learning_rate=1e-3)
    names = ("rollout_steps", "epochs", "minibatch_size", "learning_rate")
    assert [done.settings[name] for name in names] == [32, 2, 96, 1e-3]
