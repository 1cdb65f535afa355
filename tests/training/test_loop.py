"""The training loop: evaluations that change nothing, budgets, callbacks, and failures while learning."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from envfleet import clock
from envfleet.errors import TrainingError
from envfleet.rollout.arrays import Rollout
from envfleet.runs import progress_lines
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.evaluation import Evaluation
from envfleet.runs.run import Run
from envfleet.training import progress, resume
from envfleet.training.callbacks import Callback, Moment
from tests.training.envs import Adjustable
from tests.training.running import SMALL, run, weights
from tests.waiting import wait_until

ROLLOUT = SMALL["n_envs"] * SMALL["rollout_steps"]
SCHEDULES = pytest.mark.parametrize("schedule", ["sync", "overlap"])


# --- evaluation


@SCHEDULES
@pytest.mark.parametrize("acting", ["worker", "central"])
def test_evaluations_and_checkpoints_do_not_change_the_weights(tmp_path: Path, schedule: str, acting: str) -> None:
    options = {"schedule": schedule, "acting": acting, "memory": "gru", "normalise_observations": True}
    run(tmp_path / "with", **options, eval_every=1, eval_episodes=3, checkpoint_every=1)
    run(tmp_path / "without", **options, eval_every=0, checkpoint_every=10**9)
    assert weights(tmp_path / "with") == weights(tmp_path / "without")
    evaluated = [row["step"] for row in Run.load(tmp_path / "with").metrics if "eval/mean_reward" in row]
    assert evaluated == [ROLLOUT, 2 * ROLLOUT, 3 * ROLLOUT]


def best_evaluation(folder: Path) -> int:
    """Return the step of the best evaluation, the first one if several are equal."""
    rows = [row for row in Run.load(folder).metrics if "eval/mean_reward" in row]
    return int(max(rows, key=lambda row: row["eval/mean_reward"])["step"])


def test_best_is_the_checkpoint_of_the_best_evaluation(tmp_path: Path) -> None:
    run(tmp_path / "run", steps=8 * ROLLOUT, eval_every=1, eval_episodes=2, keep_checkpoints=1)
    assert Checkpoints(tmp_path / "run" / "checkpoints").step_of("best") == best_evaluation(tmp_path / "run")
    assert Run.load(tmp_path / "run", checkpoint="best").policy.act(np.zeros(4, np.float32)) in (0, 1)


def test_best_survives_a_kill_just_before_it_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """Simulates kill -9: nothing runs after it."""

    def killed(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "mark", killed)
        with pytest.raises(Killed):
            run(tmp_path / "run", eval_every=3 * ROLLOUT, eval_episodes=1)
    resume(tmp_path / "run", quiet=True)
    assert Checkpoints(tmp_path / "run" / "checkpoints").step_of("best") == best_evaluation(tmp_path / "run")


def test_a_slow_evaluation_shows_its_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count(step=2)  # each episode takes two seconds
    monkeypatch.setattr(progress_lines, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    run(tmp_path / "run", eval_every=10**6, eval_episodes=5, quiet=False)  # only at the end
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("evaluating")]
    assert said == ["evaluating: 2 of 5 episodes", "evaluating: 4 of 5 episodes"]


# --- budgets


def test_a_budget_of_steps_is_filled_up_to_the_rollout(tmp_path: Path) -> None:
    done = run(tmp_path / "run", steps=ROLLOUT + 1)
    assert done.metrics[-1]["step"] == 2 * ROLLOUT


def test_a_budget_of_episodes(tmp_path: Path) -> None:
    done = run(tmp_path / "run", steps=100 * ROLLOUT, num_episodes=30)
    episodes = [row["rollout/episodes"] for row in done.metrics]
    assert episodes[-1] >= 30
    assert all(count < 30 for count in episodes[:-1])
    assert weights(tmp_path / "run")


class Clock:
    """Replaces the budget's clock: each update takes an hour, everything else no time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.hours = 0
        for module in (progress, clock):
            patch.setattr(module, "time", SimpleNamespace(monotonic=self, perf_counter=time.perf_counter))

    def __call__(self) -> float:
        return 3600.0 * self.hours


class Hourly(Callback):
    def __init__(self, clock: Clock, stop_after: int | None = None) -> None:
        self.clock, self.stop_after = clock, stop_after

    def on_update(self, moment: Moment) -> None:
        self.clock.hours += 1
        moment.stop = self.clock.hours == self.stop_after


@SCHEDULES
def test_a_budget_of_hours(tmp_path: Path, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = Clock(monkeypatch)
    done = run(tmp_path / "run", [Hourly(hours)], steps=10**9, duration=3.0, schedule=schedule)
    assert [row["step"] for row in done.metrics] == [ROLLOUT, 2 * ROLLOUT, 3 * ROLLOUT]
    assert weights(tmp_path / "run")


def test_the_hours_before_a_resume_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = Clock(monkeypatch)
    run(tmp_path / "run", [Hourly(hours, stop_after=2)], steps=10**9, duration=3.0)
    hours.hours = 100  # another process has another zero point
    done = resume(tmp_path / "run", callbacks=[Hourly(hours)], quiet=True)
    assert [row["step"] for row in done.metrics] == [ROLLOUT, 2 * ROLLOUT, 3 * ROLLOUT]


def test_a_clock_that_jumps_moves_nothing_but_the_times_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    often = {"eval_every": 1, "eval_episodes": 1, "checkpoint_every": 1, "learning_rate_schedule": "constant"}
    run(tmp_path / "steady", **often)
    wall, jumps = time.time, itertools.cycle((0.0, -7200.0, 1e6))
    monkeypatch.setattr(time, "time", lambda: wall() + next(jumps))
    jumping = run(tmp_path / "jumping", **often, duration=0.5)
    assert weights(tmp_path / "jumping") == weights(tmp_path / "steady")
    noted = [row["time"] for row in jumping.metrics]
    assert noted != sorted(noted)  # the clock did jump during training
    assert all(value >= 0 for row in jumping.metrics for name, value in row.items() if name.startswith("time/"))
    assert min(row["time/fps"] for row in jumping.metrics if "time/fps" in row) > 10
    resumed = resume(tmp_path / "jumping", steps=4 * ROLLOUT, quiet=True)  # finds the newest checkpoint by its step
    assert resumed.metrics[-1]["step"] == 4 * ROLLOUT


# --- callbacks


class Diarist(Callback):
    """Records every call."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.calls: list[tuple[str, int]] = []
        self.returns: list[float] = []
        self._stop_after = stop_after

    def on_rollout(self, moment: Moment, rollout: Rollout) -> None:
        self.calls.append(("rollout", moment.steps))

    def on_episode(self, moment: Moment, episode_return: float, length: int) -> None:
        assert episode_return == length  # holds for CartPole
        self.returns.append(episode_return)

    def on_update(self, moment: Moment) -> None:
        self.calls.append(("update", moment.steps))
        assert moment.episodes == len(self.returns)
        assert moment.mean_return == pytest.approx(np.mean(self.returns[-100:]))
        assert {"train/loss", "train/approx_kl", "time/fps", "rollout/ep_rew_mean"} <= moment.metrics.keys()
        assert moment.metrics["rollout/experiences_per_second"] > 0.0 < moment.metrics["rollout/seconds_per_step"]
        moment.stop = sum(name == "update" for name, _ in self.calls) == self._stop_after

    def on_evaluation(self, moment: Moment, evaluation: Evaluation) -> None:
        self.calls.append(("evaluation", moment.steps))
        assert evaluation.episodes == 2

    def on_end(self, moment: Moment) -> None:
        self.calls.append(("end", moment.steps))


@SCHEDULES
def test_callbacks_come_in_order(tmp_path: Path, schedule: str) -> None:
    diarist = Diarist()
    run(tmp_path / "run", [diarist], schedule=schedule, eval_every=2 * ROLLOUT, eval_episodes=2)
    one, two, three = ROLLOUT, 2 * ROLLOUT, 3 * ROLLOUT
    assert diarist.calls == [
        *[("rollout", one), ("update", one)],
        *[("rollout", two), ("update", two), ("evaluation", two)],
        *[("rollout", three), ("update", three), ("evaluation", three)],
        ("end", three),
    ]


def test_a_callback_can_stop_the_training(tmp_path: Path) -> None:
    diarist = Diarist(stop_after=2)
    done = run(tmp_path / "run", [diarist])
    assert done.metrics[-1]["step"] == 2 * ROLLOUT
    assert diarist.calls[-1] == ("end", 2 * ROLLOUT)
    assert Checkpoints(tmp_path / "run" / "checkpoints").step_of("last") == 2 * ROLLOUT


class Raise(Callback):
    """Sets the level of every environment to the number of updates so far."""

    def __init__(self) -> None:
        self.levels: list[list[float]] = []

    def on_rollout(self, moment: Moment, rollout: Rollout) -> None:
        self.levels.append(np.unique(rollout.rewards).tolist())

    def on_update(self, moment: Moment) -> None:
        moment.call_envs("set_level", moment.steps // ROLLOUT)


@SCHEDULES
@pytest.mark.parametrize("acting", ["worker", "central"])
@pytest.mark.parametrize("checkpoint_every", [1, 10**9])
def test_environments_can_be_called_between_rollouts(
    tmp_path: Path, schedule: str, acting: str, checkpoint_every: int
) -> None:
    """Calls take effect in the next rollout; with overlap in the one after, because the next is already in progress."""
    callback = Raise()
    options = {"env": Adjustable, "steps": 5 * ROLLOUT, "checkpoint_every": checkpoint_every}
    run(tmp_path / "run", [callback], schedule=schedule, acting=acting, **options)
    expected = {"sync": [[0], [1], [2], [3], [4]], "overlap": [[0], [0], [1], [2], [3]]}
    assert callback.levels == expected[schedule]


@pytest.mark.parametrize(
    "schedule",
    [
        "sync",
        "overlap",
    ],
)
def test_calls_that_wait_are_not_forgotten_by_a_resume(tmp_path: Path, schedule: str) -> None:
    class RaiseAndStop(Raise):
        def on_update(self, moment: Moment) -> None:
            super().on_update(moment)
            moment.stop = len(self.levels) == 2

    whole, first, second = Raise(), RaiseAndStop(), Raise()
    options = {"env": Adjustable, "steps": 5 * ROLLOUT, "schedule": schedule}
    run(tmp_path / "whole", [whole], **options)
    run(tmp_path / "run", [first], **options)
    resume(tmp_path / "run", callbacks=[second], env=Adjustable, quiet=True)
    assert first.levels + second.levels == whole.levels
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


# --- failures


@SCHEDULES
@pytest.mark.parametrize("acting", ["worker", "central"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # from NumPy, about the infinite rewards
def test_weights_that_are_no_numbers_end_the_training_and_keep_the_last_good_checkpoint(
    tmp_path: Path, schedule: str, acting: str
) -> None:
    """Rewards become infinite in the third rollout."""
    exploding = {"env": Adjustable, "env_kwargs": {"explode_after": 2 * 32 + 5}, "checkpoint_every": 1}
    with pytest.raises(TrainingError, match="after rollout 2") as failure:
        run(tmp_path / "run", schedule=schedule, acting=acting, steps=9 * ROLLOUT, **exploding)
    assert "--init-from RUN" in str(failure.value)
    kept = Run.load(tmp_path / "run")
    assert kept.checkpoint().step == 2 * ROLLOUT
    assert all(np.isfinite(tensor.numpy()).all() for tensor in kept.checkpoint().policy.values())
    assert not [entry for entry in (tmp_path / "run" / "checkpoints").iterdir() if entry.name.startswith(".")]
    with pytest.raises(TrainingError):  # it can be resumed, because it is unlocked, but fails at the same point
        resume(tmp_path / "run", env=Adjustable, quiet=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_loss_that_is_no_number_ends_the_training_too(tmp_path: Path) -> None:
    exploding = {"env": Adjustable, "env_kwargs": {"explode_after": 5, "explosion": 1e30}}
    with pytest.raises(TrainingError):
        run(tmp_path / "run", **exploding)


def threads_of_the_system() -> set[int]:
    """Return all threads of this process, whether started by Python, torch or OpenMP."""
    return {thread.id for thread in psutil.Process().threads()}


class CountsThreads(Callback):
    """Records the threads seen during training."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def on_update(self, moment: Moment) -> None:
        self.seen |= threads_of_the_system()


def test_a_training_leaves_no_thread_behind(tmp_path: Path) -> None:
    run(tmp_path / "first", learner_threads=2)  # libraries start threads of their own and keep them
    before, during = threads_of_the_system(), CountsThreads()
    for number, (schedule, acting) in enumerate(itertools.product(["sync", "overlap"], ["worker", "central"])):
        run(tmp_path / str(number), [during], schedule=schedule, acting=acting, learner_threads=2)
    assert len(during.seen - before) >= 4  # at least one learner thread per run
    assert wait_until(lambda: threads_of_the_system() <= before)
