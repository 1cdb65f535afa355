"""SAC runs: the same weights on every backend, kills that leave no trace, and learning in every form."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from envfleet.algorithms.env_facts import EnvFacts
from envfleet.algorithms.settings import PPO, SAC
from envfleet.environments.meta.presets import OF_CLASS, PRESETS
from envfleet.environments.presets import declared_presets
from envfleet.errors import SettingsError
from envfleet.runs.run import Run
from envfleet.training import resume, train
from envfleet.training.presets import NAMED, named_preset
from tests.training.chained_kills import kill_until_done
from tests.training.running import StopAfter, weights
from tests.training.test_same_weights import ACTING, BACKENDS, SCHEDULES, WORKERS

SMALL: dict[str, Any] = {
    "n_envs": 8,
    "rollout_steps": 8,
    "steps": 512,
    "learning_starts": 128,
    "replay_size": 320,
    "minibatch_size": 16,
    "updates_per_step": 0.1,
    "hidden": (16, 16),
    "seed": 5,
    "backend": "sequential",
    "eval_every": 0,
    "quiet": True,
}
REMEMBER = "tests.training.sac_worlds:RememberNumber"
TINY_MEMORY: dict[str, Any] = {
    "memory_size": 8, "observation_embedding": 4, "action_embedding": 2, "reward_embedding": 2, "sampled_seq_len": 4
}  # fmt: skip
FORMS: dict[str, dict[str, Any]] = {
    "box": {"env": "Pendulum-v1", "learner_threads": 2},
    "discrete": {"env": "tests.training.worlds:Masked"},
    "everything": {
        "env": "Pendulum-v1", "prioritised": True, "n_step": 3, "layer_norm": True, "dropout": 0.1,
        "normalise_observations": True, "actor_frequency": 2, "learning_rate_schedule": "linear",
    },
    "batch norm": {"env": "Pendulum-v1", "batch_norm": True, "adam_beta": 0.5, "actor_frequency": 3},
    "gru": {"env": REMEMBER, "memory": "gru", **TINY_MEMORY, "learner_threads": 2, "memory_learning_rate": 1e-4},
    "lstm": {"env": REMEMBER, "memory": "lstm", **TINY_MEMORY, "burn_in": 1, "sampled_seq_len": 2},
}  # fmt: skip


def small(folder: Path, form: str, **changes: Any) -> SAC:
    return SAC(**{**SMALL, **FORMS[form], "output_dir": str(folder), **changes})


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    known: dict[tuple[str, str], bytes] = {}

    def look_up(form: str, schedule: str) -> bytes:
        if (form, schedule) not in known:
            folder = tmp_path_factory.mktemp("reference") / "run"
            train(small(folder, form, schedule=schedule))
            known[form, schedule] = weights(folder)
        return known[form, schedule]

    return look_up


@pytest.mark.parametrize(
    ("form", "schedule", "backend"),
    [
        ("box", "sync", {"backend": "processes", "workers": 2, "start_method": "spawn"}),
        ("box", "overlap", {"backend": "threads", "workers": 3, "acting": "central"}),
        ("discrete", "sync", {"backend": "threads", "workers": 2}),
        ("discrete", "overlap", {"backend": "processes", "workers": 3}),
        ("everything", "sync", {"backend": "sequential", "acting": "central"}),
        ("batch norm", "overlap", {"backend": "processes", "workers": 2}),
        ("gru", "sync", {"backend": "processes", "workers": 2, "acting": "central"}),
        ("gru", "overlap", {"backend": "threads", "workers": 1}),
        ("lstm", "sync", {"backend": "processes", "workers": 3}),
    ],
)
def test_the_same_weights_wherever_it_runs(
    tmp_path: Path, reference: Any, form: str, schedule: str, backend: dict[str, Any]
) -> None:
    train(small(tmp_path / "run", form, schedule=schedule, **backend))
    assert weights(tmp_path / "run") == reference(form, schedule)


MATRIX = [
    case
    for case in itertools.product(FORMS, SCHEDULES, BACKENDS, WORKERS, ACTING)
    if case[2] != "sequential" or case[3:] == (1, "central")  # one worker; worker acting is the reference
]


@pytest.mark.proof
@pytest.mark.parametrize(("form", "schedule", "backend", "workers", "acting"), MATRIX, ids=lambda value: str(value))
def test_the_whole_matrix(
    tmp_path: Path, reference: Any, form: str, schedule: str, backend: str, workers: int, acting: str
) -> None:
    where = {**BACKENDS[backend], "workers": workers, "acting": acting}
    train(small(tmp_path / "run", form, schedule=schedule, **where))
    assert weights(tmp_path / "run") == reference(form, schedule)


def test_forms_schedules_and_seeds_differ(tmp_path: Path, reference: Any) -> None:
    """Otherwise equal weights would prove nothing."""
    found = {reference("box", "sync"), reference("box", "overlap"), reference("gru", "sync"), reference("lstm", "sync")}
    train(small(tmp_path / "seed", "box", seed=6))
    train(small(tmp_path / "threads", "gru", learner_threads=1))
    assert len(found | {weights(tmp_path / "seed"), weights(tmp_path / "threads")}) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "schedule"),
    [
        ("box", "overlap"),
        pytest.param("gru", "sync", marks=pytest.mark.proof),
        pytest.param("everything", "sync", marks=pytest.mark.proof),
        pytest.param("discrete", "sync", marks=pytest.mark.proof),
        pytest.param("batch norm", "sync", marks=pytest.mark.proof),
        pytest.param("lstm", "overlap", marks=pytest.mark.proof),
    ],
)
def test_kills_leave_no_trace(tmp_path: Path, form: str, schedule: str) -> None:
    """Replay, target network, temperature and all optimisers are restored too."""
    settings = {"schedule": schedule, "steps": 1_024, "checkpoint_every": 64, "keep_checkpoints": 2}
    train(small(tmp_path / "whole", form, **settings))
    folder = tmp_path / "killed"
    kills = kill_until_done(
        folder,
        lambda: train(small(folder, form, **settings)),
        lambda: resume(folder, quiet=True, trust=True),
        kills=4,
        seed=1,
    )
    assert kills >= 1
    assert weights(folder) == weights(tmp_path / "whole")


@pytest.mark.parametrize("form", FORMS)
def test_a_stopped_run_resumes_with_the_same_bytes(tmp_path: Path, reference: Any, form: str) -> None:
    """After five of eight rollouts: with updates behind it, and the ring of the replay not yet full."""
    train(small(tmp_path / "run", form), callbacks=[StopAfter(5)])
    resume(tmp_path / "run", quiet=True, trust=True)
    assert weights(tmp_path / "run") == reference(form, "sync")


def test_a_trained_policy_acts_and_another_run_starts_from_it(tmp_path: Path) -> None:
    done = train(small(tmp_path / "run", "gru"))
    policy = Run.load(tmp_path / "run", trust=True).policy
    seen = np.zeros(4, np.float32)  # with the previous action and reward
    first, second = policy.act(seen), policy.act(seen)
    assert first.shape == (1,) and not np.array_equal(first, second)  # it remembers
    policy.reset()
    assert np.array_equal(policy.act(seen), first)
    assert done.settings["wrappers"] == ["history"]
    train(small(tmp_path / "next", "gru", init_from=str(tmp_path / "run"), steps=64, learning_starts=64, seed=7))
    assert weights(tmp_path / "next") != weights(tmp_path / "run")


@pytest.mark.parametrize(
    ("form", "changes", "message"),
    [
        ("gru", {"memory": "lstm"}, "it has memory 'gru', expected 'lstm'"),
        ("gru", {"hidden": (8,)}, r"it has hidden \[16, 16\], expected \[8\]"),
        ("box", {"batch_norm": True}, "it has batch_norm False, expected True"),
        ("box", {"memory": "gru", **TINY_MEMORY, "learner_threads": 1}, "it has memory 'none', expected 'gru'; "),
        ("box", {"env": "MountainCarContinuous-v0"}, "it has other observations; other actions"),
    ],
)
def test_another_policy_to_start_from_is_refused(
    tmp_path: Path, form: str, changes: dict[str, Any], message: str
) -> None:
    train(small(tmp_path / "run", form, steps=64, learning_starts=64))
    other = small(tmp_path / "next", form, **{"steps": 64, "learning_starts": 64, **changes})
    message = rf"^the weights of \S*run do not fit this run: {message}[^\n]*\nhint: init_from needs [^\n]*$"
    with pytest.raises(SettingsError, match=message):
        train(other.but(init_from=str(tmp_path / "run")))
    assert not (tmp_path / "next").exists()


def test_a_memory_without_previous_actions_and_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--no-show-previous` wins: no wrapper adds them again."""
    world = {"env": "envfleet/Wind-v0", "env_kwargs": {"show_previous": False}, "wrappers": (), "quiet": False}
    done = train(small(tmp_path / "run", "gru", **world, normalise_observations=False))
    said = " ".join(capsys.readouterr().err.split())
    assert "notice: show_previous is off: the memory reads observations only" in said and "was added" not in said
    assert not done.settings["wrappers"] and not done.settings.get("history_parts")
    policy = Run.load(tmp_path / "run").policy
    seen = np.zeros(2, np.float32)  # the position alone
    assert not np.array_equal(policy.act(seen), policy.act(seen)), "it remembers"
    shown = {**world, "env_kwargs": {}, "steps": 64}
    train(small(tmp_path / "shown", "gru", **shown))
    assert "show_previous" not in capsys.readouterr().err


def test_whole_episodes_that_never_fit_get_a_notice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The replay keeps 40 of the 75 steps of an episode, so only the first rollouts are learned from."""
    world = {"env": "envfleet/Wind-v0", "sampled_seq_len": -1, "wrappers": (), "learning_starts": 8, "quiet": False}
    train(small(tmp_path / "run", "gru", **world))
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("notice: nothing is learned now: no whole episode is stored") == 1
    assert "Set a larger replay_size (it is shared by n_envs)" in said


def test_pictures_go_through_a_network_of_their_own(tmp_path: Path) -> None:
    """A CNN each for actor and critics, and the same weights with central acting in threads."""
    world = {"env": "tests.training.picture_worlds:Quarters", "steps": 128, "learning_starts": 64, "minibatch_size": 8}
    train(small(tmp_path / "one", "box", **world))
    train(small(tmp_path / "two", "box", **world, backend="threads", workers=2, acting="central"))
    assert weights(tmp_path / "one") == weights(tmp_path / "two")


def ahead(observations: Any) -> Any:
    """Pushes the pendulum with half of its strength."""
    return np.ones((len(observations), 1), np.float32)


def test_demonstrations_enter_batches_from_the_start(tmp_path: Path) -> None:
    shown = {"demonstrations": ahead, "demonstration_steps": 200, "demonstration_share": 0.5, "pretrain_steps": 20}
    train(small(tmp_path / "run", "box", steps=128, **shown))
    train(small(tmp_path / "none", "box", steps=128))
    assert weights(tmp_path / "run") != weights(tmp_path / "none")
    train(small(tmp_path / "again", "box", steps=128, backend="threads", workers=2, **shown))
    assert weights(tmp_path / "again") == weights(tmp_path / "run")


def test_a_run_too_short_for_updates_says_so() -> None:
    (notice,) = SAC(steps=600, learning_starts=600).notices()
    assert notice.startswith("learning_starts is 600, but the budget is 600 steps: nothing will be learned")
    assert not SAC(steps=601, learning_starts=600).notices()


def test_the_preset_for_few_steps_belongs_to_sac() -> None:
    found = SAC().filled(named_preset("sample-efficient", SAC()).values)
    assert (found.batch_norm, found.adam_beta, found.updates_per_step) == (True, 0.5, 1.0)
    for settings in (SAC(memory="gru"), SAC(layer_norm=True), SAC(dropout=0.01)):
        found = settings.filled(named_preset("sample-efficient", settings).values)
        assert (found.batch_norm, found.layer_norm, found.dropout, found.updates_per_step) == (False, True, 0.01, 4.0)
    with pytest.raises(SettingsError, match="ppo has no preset 'sample-efficient'"):
        named_preset("sample-efficient", PPO())


@pytest.mark.parametrize("name", [*{**NAMED, **SAC().named_presets()}])
@pytest.mark.parametrize("family", ["walker", "PointRobot", "Wind"])
def test_named_presets_do_not_contradict_those_of_the_environments(family: str, name: str) -> None:
    own = PRESETS["sac"] if family == "walker" else OF_CLASS[family]["sac"]
    settings = SAC(memory="gru")
    found = settings.filled(named_preset(name, settings).over(own).values)
    assert found.learning_starts <= found.replay_size
    assert SAC(memory="gru", replay_size=9_000).filled(own.values).learning_starts <= 9_000


META = "envfleet.environments.meta"


@pytest.mark.parametrize(
    ("entry_point", "actions", "preset"),
    [
        (
            "gymnasium.envs.classic_control.pendulum:PendulumEnv",
            Box(-2, 2, (1,)),
            "classic control, continuous actions",
        ),
        ("gymnasium.envs.classic_control.cartpole:CartPoleEnv", Discrete(2), "classic control"),
        ("gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv", Box(-1, 1, (6,)), "MuJoCo"),
        (f"{META}.point_robot:Wind", Box(-1, 1, (2,)), "wind"),
        (f"{META}.point_robot:PointRobotSparse", Box(-1, 1, (2,)), "point robot"),
        (f"{META}.locomotion:HalfCheetahVel", Box(-1, 1, (6,)), "walking robot with tasks"),
        ("my.simulator:Env", Box(-1, 1, (6,)), "general"),
    ],
)
def test_presets_by_family(entry_point: str, actions: Any, preset: str) -> None:
    """With memory, environments that have no preset for it get the general one, and the previous action and reward."""
    history = {"action": ("", 0, 2), "reward": ("", 2, 3)} if entry_point.startswith(META) else {}
    seen, presets = Box(-1, 1, (4,)), declared_presets(entry_point)
    env = EnvFacts(seen, actions, entry_point, frozenset(), presets, 1, {}, history)
    assert SAC().family_preset(env).name == f"SAC, {preset}"
    SAC().filled(SAC().family_preset(env).values)  # every name and value is valid
    remembering = SAC(memory="gru")
    assert remembering.family_preset(env).name == (f"SAC, {preset}" if history else "SAC with memory")
    assert list(remembering.needed_wrappers(env)) == ([] if history else ["history"])
    assert remembering.adapted(env).history_parts == history
    assert not SAC().needed_wrappers(env)


# ---- learning


def score(folder: Path, **settings: Any) -> float:
    """Train with the settings and return the mean return of the last evaluation."""
    base: dict[str, Any] = {"seed": 1, "quiet": True, "output_dir": str(folder), "backend": "sequential"}
    run = train(SAC(**{**base, "eval_episodes": 20, "eval_every": settings["steps"], "learner_threads": 1, **settings}))
    return float([row["eval/mean_reward"] for row in run.metrics if "eval/mean_reward" in row][-1])


@pytest.mark.slow
@pytest.mark.timeout(600)  # for a busy machine
def test_a_pendulum_is_swung_up(tmp_path: Path) -> None:
    """At least -300 within 4,000 steps, seed 1 (chance: -1,200; measured: -148)."""
    settings = {"hidden": (64, 64), "minibatch_size": 128, "learning_rate": 2e-3, "gamma": 0.98}
    found = score(
        tmp_path / "run", env="Pendulum-v1", steps=4_000, n_envs=2, rollout_steps=2, learning_starts=200, **settings
    )
    assert found >= -300.0


BALANCING: dict[str, Any] = {
    "n_envs": 8, "rollout_steps": 2, "learning_starts": 500, "hidden": (64, 64), "minibatch_size": 64,
    "learning_rate": 2e-3, "target_rate": 0.02, "updates_per_step": 0.4,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)  # for a busy machine
def test_a_pole_is_balanced_by_discrete_actions(tmp_path: Path) -> None:
    """At least 120 within 3,000 steps, seed 1 (chance: 22; measured: 328, with seed 2: 197)."""
    found = score(tmp_path / "run", env="CartPole-v1", steps=3_000, n_step=3, target_entropy=0.2, **BALANCING)
    assert found >= 120.0


@pytest.mark.slow
@pytest.mark.timeout(600)  # for a busy machine
def test_masks_are_minded_by_actions_and_targets(tmp_path: Path) -> None:
    """At least 9 of 10 within 3,000 steps, seed 1: a forbidden action raises, and only the mask says which one pays."""
    found = score(tmp_path / "run", env="tests.training.worlds:Masked", steps=3_000, gamma=0.5, **BALANCING)
    assert found >= 9.0


REMEMBERING: dict[str, Any] = {
    "env": REMEMBER, "n_envs": 8, "rollout_steps": 4, "learning_starts": 256, "gamma": 0.9, "learning_rate": 3e-3,
    "hidden": (32,), "memory_size": 16, "observation_embedding": 8, "action_embedding": 4, "reward_embedding": 4,
    "minibatch_size": 32, "updates_per_step": 0.25, "sampled_seq_len": 4, "steps": 4_000,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)  # for a busy machine
@pytest.mark.parametrize("memory", ["gru", pytest.param("lstm", marks=pytest.mark.proof)])
def test_a_number_is_remembered(tmp_path: Path, memory: str) -> None:
    """At least -0.1 within 4,000 steps, seed 1 (measured: -0.002); no memory, no better than -0.55 (optimum -0.64)."""
    assert score(tmp_path / "with", **REMEMBERING, memory=memory) >= -0.1
    if memory == "gru":
        assert score(tmp_path / "without", **REMEMBERING) <= -0.55
