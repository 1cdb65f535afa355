"""DQN as a run: the same weights everywhere, kills that leave no trace, and learning on small worlds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import FrameStackObservation

from envfleet import cli
from envfleet.algorithms.settings import DQN
from envfleet.rollout.replay import Replay
from envfleet.rollout.replay_plan import ReplayPlan
from envfleet.training import resume, train
from tests.training.chained_kills import kill_until_done
from tests.training.dqn_worlds import Chain, Masked, Picture
from tests.training.running import weights

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 8,
    "rollout_steps": 8,
    "steps": 640,
    "learning_starts": 64,
    "replay_size": 320,
    "train_frequency": 8,
    "hidden": (16,),
    "seed": 5,
    "backend": "sequential",
    "eval_every": 0,
    "quiet": True,
}


def stacked_cartpole() -> gymnasium.Env[Any, Any]:
    return FrameStackObservation(gymnasium.make("CartPole-v1"), 4)


EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {"double": False, "dueling": False, "n_step": 1},
    "everything": {"prioritised": True, "noisy": True, "n_step": 3},
    "frames": {"env": stacked_cartpole, "prioritised": True},
}


def small(folder: Path, **changes: Any) -> DQN:
    return DQN(**{**SMALL, "output_dir": str(folder), **changes})


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    known: dict[tuple[str, str], bytes] = {}

    def look_up(extras: str, schedule: str) -> bytes:
        if (extras, schedule) not in known:
            folder = tmp_path_factory.mktemp("reference") / "run"
            train(small(folder, schedule=schedule, **EXTRAS[extras]))
            known[extras, schedule] = weights(folder)
        return known[extras, schedule]

    return look_up


@pytest.mark.parametrize(
    ("extras", "schedule", "place"),
    [
        ("plain", "sync", {"backend": "processes", "workers": 2}),
        ("plain", "overlap", {"backend": "threads", "workers": 2, "acting": "central"}),
        ("everything", "sync", {"backend": "threads", "workers": 1}),
        ("everything", "sync", {"backend": "sequential", "acting": "central"}),
        ("everything", "overlap", {"backend": "processes", "workers": 2, "start_method": "fork"}),
    ],
)
def test_the_same_weights_wherever_it_runs(
    tmp_path: Path, reference: Any, extras: str, schedule: str, place: dict[str, Any]
) -> None:
    train(small(tmp_path / "run", schedule=schedule, **EXTRAS[extras], **place))
    assert weights(tmp_path / "run") == reference(extras, schedule)


@pytest.mark.slow
@pytest.mark.parametrize(("extras", "schedule"), [("plain", "sync"), ("everything", "overlap"), ("frames", "sync")])
def test_kills_leave_no_trace(tmp_path: Path, extras: str, schedule: str) -> None:
    """Replay, priorities and the target network come back with the rest."""
    settings = {**EXTRAS[extras], "schedule": schedule, "steps": 1_280, "checkpoint_every": 64, "keep_checkpoints": 2}
    train(small(tmp_path / "whole", **settings))
    folder = tmp_path / "killed"
    kills = kill_until_done(
        folder,
        lambda: train(small(folder, **settings)),
        lambda: resume(folder, quiet=True, trust=True),
        kills=6,
        seed=1,
    )
    assert kills >= 1
    assert weights(folder) == weights(tmp_path / "whole")
    pieces = list((folder / "checkpoints" / "pieces").iterdir())
    assert 0 < len(pieces) < 20  # those that the kept checkpoints need, and no more


def test_frames_that_are_stored_once_change_nothing(tmp_path: Path) -> None:
    """That observations are stacks is seen by itself; stored whole, they give the same weights."""
    found = train(small(tmp_path / "found", env=stacked_cartpole))
    train(small(tmp_path / "whole", env=stacked_cartpole, frame_stack=1))
    assert found.settings["frame_stack"] == 4
    assert weights(tmp_path / "found") == weights(tmp_path / "whole")


def test_what_other_systems_have_before_the_replay_gets_a_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In files for any environment, and in any section that settings may be in."""
    plain = {name: value for name, value in SMALL.items() if name not in ("quiet", "hidden")}
    others = {"collection_batch_size": 48, "parallel": {"experience_buffer_size": 1500}}
    (tmp_path / "settings.json").write_text(json.dumps({**plain, "steps": 128, **others}))
    flags = ["--config", str(tmp_path / "settings.json"), "--output-dir", str(tmp_path / "run")]
    assert cli.main(["train", "dqn", *flags]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "notice: collection_batch_size has no effect: each environment collects rollout_steps steps" in said
    assert "notice: experience_buffer_size has no effect: steps go straight into the replay (replay_size)" in said
    assert not DQN().notices()


def test_the_size_of_the_replay_is_said_before_it_is_allocated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    allocate = Replay.of

    def listened(plan: ReplayPlan) -> Replay:
        said.append(capsys.readouterr().err)
        return allocate(plan)

    monkeypatch.setattr(Replay, "of", listened)
    train(small(tmp_path / "run", quiet=False, prioritised=True))
    (before,) = said
    assert "the replay holds 320 steps of 8 environments in 0 MiB, priorities included" in before


def test_one_that_does_not_fit_is_told_with_what_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env", "CartPole-v1", "--backend", "sequential", "--output-dir", str(tmp_path / "run")]
    assert cli.main(["train", "dqn", *flags, "--replay-size", str(10**13)]) != 0
    said = capsys.readouterr().err
    assert "the replay needs" in said and "GiB for 10,000,000,000,000 steps, but only" in said
    assert "hint: about" in said and "steps fit" in said
    assert not (tmp_path / "run").exists()


def score(folder: Path, **settings: Any) -> float:
    """Mean return of 100 evaluation episodes after training by the settings."""
    run = train(
        DQN(
            **{"seed": 1, "quiet": True, "output_dir": str(folder), "eval_episodes": 100, "backend": "sequential"}
            | settings
        )
    )
    return float([row["eval/mean_reward"] for row in run.metrics if "eval/mean_reward" in row][-1])


@pytest.mark.slow
@pytest.mark.timeout(400)  # on a machine that others use as well
def test_cartpole_by_preset(tmp_path: Path) -> None:
    """475 over 100 episodes within 50,000 steps, seed 1."""
    assert score(tmp_path / "run", env="CartPole-v1", eval_every=50_000) >= 475.0


@pytest.mark.slow
@pytest.mark.timeout(400)  # on a machine that others use as well
def test_a_reward_ten_steps_away_is_found(tmp_path: Path) -> None:
    """Going back pays a little at once, the far end 1 after ten steps: found within 10,000 steps, seed 1."""
    settings = {"steps": 10_000, "n_step": 5, "gamma": 0.95, "exploration_fraction": 0.6, "train_frequency": 8}
    found = score(tmp_path / "run", env=Chain, **settings)
    assert found == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.timeout(400)  # on a machine that others use as well
def test_masks_are_minded_by_actions_and_targets(tmp_path: Path) -> None:
    """At least 95 % of the optimum, which is 1 in each of 20 steps, within 10,000 steps, seed 1."""
    assert score(tmp_path / "run", env=Masked, steps=10_000, gamma=0.5, n_step=1) >= 19.0


@pytest.mark.slow
@pytest.mark.timeout(400)  # on a machine that others use as well
def test_pictures_are_told_apart(tmp_path: Path) -> None:
    """At least 9 of 10 quarters named right, within 6,000 steps, seed 1."""
    settings = {"steps": 6_000, "gamma": 0.1, "n_step": 1, "train_frequency": 8, "learning_starts": 500}
    assert score(tmp_path / "run", env=Picture, **settings) >= 9.0
