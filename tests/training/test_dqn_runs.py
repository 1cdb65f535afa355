"""DQN runs: the same weights on every backend, kills that leave no trace, and learning on small worlds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from envfleet import cli
from envfleet.algorithms.env_facts import EnvFacts
from envfleet.algorithms.settings import DQN
from envfleet.environments.presets import declared_presets
from envfleet.errors import SettingsError
from envfleet.policies.q_policy import build_q_policy
from envfleet.policies.q_settings import QSettings
from envfleet.rollout.replay import Replay
from envfleet.rollout.replay_spec import ReplaySpec
from envfleet.runs.run import Run
from envfleet.training import resume, train
from tests.fleet.loop_back import use_loop_back
from tests.policies import own_networks
from tests.training.chained_kills import kill_until_done
from tests.training.dqn_worlds import Chain, Masked, Picture, stacked_cartpole
from tests.training.running import weights
from tests.training.test_rates import StopsAfter
from tests.training.test_same_weights import ACTING, BACKENDS, SCHEDULES, WORKERS

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
    ("extras", "schedule", "backend"),
    [
        ("plain", "sync", {"backend": "processes", "workers": 2}),
        ("plain", "overlap", {"backend": "threads", "workers": 2, "acting": "central"}),
        ("everything", "sync", {"backend": "threads", "workers": 1}),
        ("everything", "sync", {"backend": "sequential", "acting": "central"}),
        ("everything", "overlap", {"backend": "processes", "workers": 2}),
    ],
)
def test_the_same_weights_wherever_it_runs(
    tmp_path: Path, reference: Any, extras: str, schedule: str, backend: dict[str, Any]
) -> None:
    train(small(tmp_path / "run", schedule=schedule, **EXTRAS[extras], **backend))
    assert weights(tmp_path / "run") == reference(extras, schedule)


@pytest.fixture(autouse=True)
def _prepared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the threads backend in cases of 'loop-back'."""
    if "loop-back" in request.node.name:
        use_loop_back("loop-back", monkeypatch)


MATRIX = [
    (extras, schedule, backend, workers, acting)
    for extras, schedule, backend, workers, acting in itertools.product(
        ("plain", "everything"), SCHEDULES, BACKENDS, WORKERS, ACTING
    )
    if backend != "sequential" or (workers == 1 and acting == "central")  # one worker; worker acting is the reference
]


@pytest.mark.proof
@pytest.mark.parametrize(("extras", "schedule", "backend", "workers", "acting"), MATRIX, ids=lambda value: str(value))
def test_the_whole_matrix(
    tmp_path: Path, reference: Any, extras: str, schedule: str, backend: str, workers: int, acting: str
) -> None:
    where = {**BACKENDS[backend], "workers": workers, "acting": acting}
    expected = reference(extras, schedule)
    train(small(tmp_path / "run", schedule=schedule, **EXTRAS[extras], **where))
    assert weights(tmp_path / "run") == expected


def test_extras_schedules_and_seeds_differ(tmp_path: Path, reference: Any) -> None:
    """Otherwise equal weights would prove nothing."""
    found = {reference(extras, schedule) for extras in ("plain", "everything") for schedule in SCHEDULES}
    for extras in ("plain", "everything"):
        train(small(tmp_path / extras, seed=6, **EXTRAS[extras]))
        found.add(weights(tmp_path / extras))
    assert len(found) == 6


@pytest.mark.slow
@pytest.mark.parametrize(("extras", "schedule"), [("plain", "sync"), ("everything", "overlap"), ("frames", "sync")])
def test_kills_leave_no_trace(tmp_path: Path, extras: str, schedule: str) -> None:
    """Replay, priorities and the target network are restored too."""
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
    assert 0 < len(pieces) < 20  # only those that the kept checkpoints need


def test_frames_that_are_stored_once_change_nothing(tmp_path: Path) -> None:
    """Frame stacks are detected automatically; storing them whole gives the same weights."""
    found = train(small(tmp_path / "found", env=stacked_cartpole))
    train(small(tmp_path / "whole", env=stacked_cartpole, frame_stack=1))
    assert found.settings["frame_stack"] == 4
    assert weights(tmp_path / "found") == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("setting", "kind"), [("policy", own_networks.ActionValues), ("network", own_networks.Doubled)]
)
def test_a_network_of_the_users_own_learns_and_is_loaded_again(tmp_path: Path, setting: str, kind: Any) -> None:
    done = train(small(tmp_path / "run", **{setting: kind}))
    train(small(tmp_path / "central", **{setting: kind}, acting="central"))
    assert weights(tmp_path / "run") == weights(tmp_path / "central")
    with pytest.raises(SettingsError, match="not part of Envfleet"):
        _ = done.policy
    trusted = Run.load(tmp_path / "run", trust=True).policy
    given = Run.load(tmp_path / "run", policy=kind).policy
    fresh = build_q_policy(given.observation_space, given.action_space, QSettings(**{setting: kind}), seed=5)
    own = [next(part for part in each.modules() if type(part) is kind) for each in (fresh, given.policy)]
    assert not torch.equal(next(own[0].parameters()), next(own[1].parameters()))
    for seen in np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32):
        assert trusted.act(seen) == given.act(seen)
    train(small(tmp_path / "stopped", **{setting: kind}), callbacks=[StopsAfter(5)])
    resumed = resume(tmp_path / "stopped", trust=True, quiet=True)
    assert resumed.settings[setting] == f"tests.policies.own_networks:{kind.__name__}"
    assert weights(tmp_path / "stopped") == weights(tmp_path / "run")


def test_a_preset_leaves_the_network_to_a_policy_of_the_users_own() -> None:
    entry_point = "envfleet.environments.wildfire:x"
    env = EnvFacts(
        Box(0.0, 1.0, (3, 8, 8)), Discrete(64), entry_point, frozenset(), declared_presets(entry_point), 1, {}
    )
    assert DQN().family_preset(env).values["network"] == "cells"
    assert "network" not in DQN(policy=own_networks.ActionValues).family_preset(env).values


def test_what_other_systems_have_before_the_replay_gets_a_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings are found in files for any environment and in any section."""
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

    def listened(spec: ReplaySpec) -> Replay:
        said.append(capsys.readouterr().err)
        return Replay(spec)

    monkeypatch.setattr("envfleet.algorithms.experience.Replay", listened)
    train(small(tmp_path / "run", quiet=False, prioritised=True))
    (before,) = said
    assert "the replay holds 320 steps of 8 environments in 0 MiB, priorities included" in before


def test_one_that_does_not_fit_is_reported_with_what_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env", "CartPole-v1", "--backend", "sequential", "--output-dir", str(tmp_path / "run")]
    assert cli.main(["train", "dqn", *flags, "--replay-size", str(10**13)]) != 0
    said = capsys.readouterr().err
    assert "the replay needs" in said and "GiB for 10,000,000,000,000 steps, but only" in said
    assert "hint: about" in said and "steps fit" in said
    assert not (tmp_path / "run").exists()


def score(folder: Path, **settings: Any) -> float:
    """Train with the settings and return the mean return of the last evaluation (100 episodes by default)."""
    run = train(
        DQN(
            **{"seed": 1, "quiet": True, "output_dir": str(folder), "eval_episodes": 100, "backend": "sequential"}
            | settings
        )
    )
    return float([row["eval/mean_reward"] for row in run.metrics if "eval/mean_reward" in row][-1])


@pytest.mark.proof
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cartpole_by_preset(tmp_path: Path, seed: int) -> None:
    """475 over 100 episodes within 50,000 steps. Left to `make proof`: each seed takes half a minute."""
    assert score(tmp_path / "run", env="CartPole-v1", eval_every=50_000, seed=seed) >= 475.0


@pytest.mark.slow
@pytest.mark.timeout(400)  # for a busy machine
@pytest.mark.parametrize(
    ("n_step", "seed"),
    [(5, 1), *(pytest.param(n_step, seed, marks=pytest.mark.proof) for n_step, seed in ((1, 1), (5, 2), (1, 2)))],
)
def test_five_steps_find_a_reward_that_one_step_does_not(tmp_path: Path, n_step: int, seed: int) -> None:
    """Going back pays 0.01 at once, 0.4 per episode; the far end pays 1 after nine steps. Within 20,000 steps.

    The target network is updated twice in that time, and each update carries a value back by n steps: far enough with
    five, not with one. (Measured with seeds 1 to 5.)
    """
    settings = {"steps": 20_000, "gamma": 0.95, "exploration_fraction": 0.6, "eval_every": 20_000, "eval_episodes": 5}
    rounds = {"train_frequency": 16, "target_update_frequency": 400}
    reached = score(tmp_path / "run", env=Chain, seed=seed, n_step=n_step, **settings, **rounds)
    assert reached == pytest.approx(1.0) if n_step == 5 else reached < 0.5


@pytest.mark.slow
@pytest.mark.timeout(400)  # for a busy machine
def test_masks_are_minded_by_actions_and_targets(tmp_path: Path) -> None:
    """At least 95 % of the optimum (1 in each of 20 steps) within 10,000 steps, seed 1."""
    assert score(tmp_path / "run", env=Masked, steps=10_000, gamma=0.5, n_step=1, eval_every=10_000) >= 19.0


@pytest.mark.slow
@pytest.mark.timeout(400)  # for a busy machine
def test_noisy_heads_and_priorities_learn(tmp_path: Path) -> None:
    """The same world and threshold within 4,000 steps, seed 1: no epsilon-random actions, and prioritised replay."""
    extras = {"noisy": True, "prioritised": True, "eval_every": 4_000}
    assert score(tmp_path / "run", env=Masked, steps=4_000, gamma=0.5, n_step=1, **extras) >= 19.0


@pytest.mark.slow
@pytest.mark.timeout(400)  # for a busy machine
def test_pictures_are_told_apart_by_the_nature_network(tmp_path: Path) -> None:
    """At least 9 of 10 quarters right at 36 x 36 pixels, the network's minimum, within 2,000 steps, seed 1."""
    settings = {"steps": 2_000, "gamma": 0.1, "n_step": 1, "learning_starts": 200, "eval_every": 2_000}
    assert score(tmp_path / "run", env=Picture, env_kwargs={"size": 36}, network="nature", **settings) >= 9.0


@pytest.mark.proof
def test_pictures_are_told_apart(tmp_path: Path) -> None:
    """At least 9 of 10 quarters right within 6,000 steps, seed 1."""
    settings = {"steps": 6_000, "gamma": 0.1, "n_step": 1, "train_frequency": 8, "learning_starts": 500}
    assert score(tmp_path / "run", env=Picture, **settings) >= 9.0
