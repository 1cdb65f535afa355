"""User metrics from infos and callbacks, in metrics, TensorBoard and the console, on every backend."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from envfleet.algorithms.settings import DQN
from envfleet.runs.run import Run
from envfleet.training import resume, train
from envfleet.training.callbacks import Callback, Moment
from envfleet.training.evaluating import evaluate_run
from tests.training.envs import Scored
from tests.training.running import run

UPDATES, ROLLOUT = 4, 4 * 16
OPTIONS: dict[str, Any] = {"n_envs": 4, "rollout_steps": 16, "steps": UPDATES * ROLLOUT, "minibatch_size": 64}
KEYS = ("term", "terms.half:sum", "score:last")


class Lengths(Callback):
    """Collects the lengths of all episodes."""

    def __init__(self) -> None:
        self.all: list[int] = []

    def on_episode(self, moment: Moment, episode_return: float, length: int) -> None:
        self.all.append(length)


def own_metrics(trained: Run) -> list[dict[str, float]]:
    names = ("info/", "rollout/success_rate", "eval/")
    return [{name: value for name, value in row.items() if name.startswith(names)} for row in trained.metrics]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[int]]:
    lengths = Lengths()
    folder = tmp_path_factory.mktemp("numbers") / "run"
    trained = run(folder, [lengths], env=Scored, log_info=KEYS, eval_every=2 * ROLLOUT, eval_episodes=3, **OPTIONS)
    return trained, lengths.all


def test_infos_are_averaged_over_each_episode_and_then_over_episodes(reference: tuple[Run, list[int]]) -> None:
    trained, lengths = reference
    assert len(lengths) < 100  # so the means of the last update cover all of them
    row = next(row for row in reversed(trained.metrics) if "info/term" in row)
    assert row["info/term"] == pytest.approx(fmean((length + 1) / 2 for length in lengths))
    assert row["info/terms.half_sum"] == pytest.approx(fmean(length * (length + 1) / 4 for length in lengths))
    assert row["info/score_last"] == pytest.approx(fmean(lengths))
    assert row["rollout/success_rate"] == pytest.approx(fmean(length % 2 == 0 for length in lengths))
    played = next(row for row in trained.metrics if "eval/mean_reward" in row)
    assert played["eval/info/score_last"] == played["eval/mean_ep_length"]
    assert played["eval/info/term"] == pytest.approx((played["eval/mean_ep_length"] + 1) / 2)
    assert played["eval/success_rate"] in (0.0, 1 / 3, 2 / 3, 1.0)


def test_tensorboard_has_them(reference: tuple[Run, list[int]]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained, _ = reference
    events = EventAccumulator(str(trained.folder.logs))
    events.Reload()
    assert {"info/term", "rollout/success_rate", "eval/info/term"} <= set(events.Tags()["scalars"])


@pytest.mark.parametrize(
    ("backend", "acting", "schedule"),
    [("sequential", "central", "sync"), ("threads", "worker", "sync"), ("threads", "central", "sync")],
)
def test_they_are_the_same_wherever_it_is_trained(
    tmp_path: Path, reference: tuple[Run, list[int]], backend: str, acting: str, schedule: str
) -> None:
    options = {"backend": backend, "acting": acting, "schedule": schedule, "eval_every": 2 * ROLLOUT}
    again = run(tmp_path / "run", env=Scored, log_info=KEYS, eval_episodes=3, **options, **OPTIONS)
    assert own_metrics(again) == own_metrics(reference[0])


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
def test_a_resumed_run_continues_them(tmp_path: Path, schedule: str) -> None:
    class Stop(Callback):
        def on_update(self, moment: Moment) -> None:
            moment.stop = moment.steps == 2 * ROLLOUT

    options = {"env": Scored, "log_info": KEYS, "schedule": schedule, **OPTIONS}
    whole = run(tmp_path / "whole", **options)
    run(tmp_path / "run", [Stop()], **options)
    resumed = resume(tmp_path / "run", env=Scored, quiet=True)
    assert own_metrics(resumed) == own_metrics(whole)


def test_a_resumed_run_can_log_other_keys(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_update(self, moment: Moment) -> None:
            moment.stop = moment.steps == 2 * ROLLOUT

    run(tmp_path / "run", [Stop()], env=Scored, log_info=("term",), schedule="overlap", **OPTIONS)
    resumed = resume(tmp_path / "run", env=Scored, quiet=True, log_info=("score:last",))
    names = [{name for name in row if name.startswith("info/")} for row in resumed.metrics]
    assert names[:2] == [{"info/term"}] * 2
    assert names[-1] == {"info/score_last"}
    assert 3 <= resumed.metrics[-1]["info/score_last"] <= 6  # without the rollout collected before the key was set


def test_dqn_has_them_too(tmp_path: Path) -> None:
    settings = DQN(
        env=Scored, n_envs=4, rollout_steps=8, steps=128, learning_starts=32, replay_size=128, train_frequency=8,
        hidden=(8,), seed=5, backend="sequential", eval_every=0, quiet=True, log_info=("term",),
        output_dir=tmp_path / "run",
    )  # fmt: skip
    row = train(settings).metrics[-1]
    assert row["info/term"] == pytest.approx((row["rollout/ep_len_mean"] + 1) / 2)
    assert 0 < row["rollout/success_rate"] < 1


def test_the_console_shows_them_and_says_once_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("term", "word", "trem")
    run(tmp_path / "run", env=Scored, log_info=keys, **{**OPTIONS, "quiet": False})
    output = capsys.readouterr().err
    for key in ("word", "trem"):
        assert output.count(f"episodes had a number in info['{key}']") == 1
    assert "info['term']" not in output
    last = [line for line in output.splitlines() if line.startswith("100 %")][-1]
    assert "  success " in last and "  term " in last


def test_an_environment_without_success_has_no_rate(tmp_path: Path) -> None:
    rows = run(tmp_path / "run", **OPTIONS).metrics
    assert not [name for row in rows for name in row if "success" in name or name.startswith("info/")]


def test_evaluate_reports_them(reference: tuple[Run, list[int]]) -> None:
    result = evaluate_run(reference[0].path, episodes=4, env=Scored, seeds=(1, 2))
    assert result.infos["score_last"] == pytest.approx(result.mean_length)
    assert result.success_rate == fmean(length % 2 == 0 for length in result.lengths)
    assert set(result.to_json()["infos"]) == {"term", "terms.half_sum", "score_last"}


# --- callbacks


class Noting(Callback):
    """Sets a metric in every hook."""

    def on_rollout(self, moment: Moment, rollout: Any) -> None:
        moment.metrics["own/rollouts"] = rollout.number

    def on_update(self, moment: Moment) -> None:
        assert moment.metrics["own/rollouts"] == moment.steps // ROLLOUT - 1
        moment.metrics["own/constant"] = np.float32(0.5)
        moment.metrics["own/word"] = "high"  # type: ignore[assignment]

    def on_evaluation(self, moment: Moment, evaluation: Any) -> None:
        moment.metrics["own/evaluated"] = evaluation.episodes

    def on_end(self, moment: Moment) -> None:
        moment.metrics["own/end"] = 1


def test_what_a_callback_sets_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"env": Scored, "eval_every": 2 * ROLLOUT, "eval_episodes": 2, "quiet": False, **OPTIONS}
    rows = run(tmp_path / "run", [Noting()], **{**options, "quiet": False}).metrics
    updates = [row for row in rows if "train/loss" in row]
    assert [row["own/rollouts"] for row in updates] == [0, 1, 2, 3]
    assert [row["own/constant"] for row in updates] == [0.5] * UPDATES
    assert [row.get("own/evaluated") for row in updates] == [None, None, 2, None]  # in the next line
    assert (rows[-1]["own/end"], rows[-1]["own/evaluated"], rows[-1]["step"]) == (1, 2, UPDATES * ROLLOUT)
    assert not [name for row in rows for name in row if name == "own/word"]
    output = capsys.readouterr().err
    assert output.count("moment.metrics['own/word'] to 'high', expected a number; it is not logged") == 1
    assert "own/constant 0.5" in output


@pytest.mark.parametrize("schedule", ["sync", "overlap"])
@pytest.mark.parametrize("acting", ["worker", "central"])
def test_calls_of_environments_return_results(tmp_path: Path, schedule: str, acting: str) -> None:
    class Longer(Callback):
        def __init__(self) -> None:
            self.results: list[tuple[Any, ...]] = []

        def on_update(self, moment: Moment) -> None:
            self.results.append(moment.call_envs("add_to_time", 0))

    callback = Longer()
    run(tmp_path / "run", [callback], env=Scored, schedule=schedule, acting=acting, **OPTIONS)
    assert len(callback.results) == UPDATES
    assert all(len(results) == 4 and set(results) <= {3, 4, 5, 6} for results in callback.results)
