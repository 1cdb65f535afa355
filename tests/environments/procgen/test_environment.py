"""`procgen/<game>`: observations, levels, refused settings, and exact restore."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import envfleet
from envfleet import cli
from envfleet.cli.evaluate import _report
from envfleet.environments import PROCGEN_GAMES, REGISTERED
from envfleet.environments.procgen.environment import ProcgenEnv
from envfleet.environments.procgen.settings import EXPLORATION_LEVELS, ProcgenSettings
from envfleet.errors import ProtocolError, SettingsError, StateError
from envfleet.extras import procgen_installation
from envfleet.fleet.os_compat import uses_linux
from envfleet.machine import private_memory
from envfleet.training import resume
from tests.fleet.backends import BACKENDS, same, trace
from tests.training.chained_kills import kill_until_done
from tests.training.running import run, weights

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("procgen") is None and importlib.util.find_spec("procgen_gym") is None,
    reason=f"Procgen's library is not installed: {procgen_installation()}",
)
EASY = {"distribution_mode": "easy", "num_levels": 20}


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[ProcgenEnv] = []

    def build(game: str = "coinrun", **settings: Any) -> ProcgenEnv:
        made.append(ProcgenEnv(game, **settings))
        return made[-1]

    yield build
    for env in made:
        env.close()


def actions(count: int, seed: int = 0) -> list[int]:
    return [int(action) for action in np.random.default_rng(seed).integers(0, 15, count)]


def played(env: ProcgenEnv, chosen: list[int]) -> list[Any]:
    """Step through the actions, with a reset after every episode end; return everything seen."""
    seen: list[Any] = []
    for action in chosen:
        seen.append(env.step(action))
        if seen[-1][2]:
            seen.append(env.reset())
    return seen


# ---- observations, levels and episodes


def test_all_games_are_registered_and_step() -> None:
    assert {f"procgen/{game}" for game in PROCGEN_GAMES} <= set(REGISTERED)
    for game in PROCGEN_GAMES:
        env = gymnasium.make(f"procgen/{game}", distribution_mode="easy", disable_env_checker=True)
        observation, info = env.reset(seed=1)
        assert env.observation_space.contains(observation) and observation.any() and info["level"] >= 0
        for action in actions(20):
            observation, reward, terminated, truncated, info = env.step(action)
            assert env.observation_space.contains(observation) and isinstance(reward, float) and not truncated
            if terminated:
                env.reset()
        env.close()


def test_passes_the_check() -> None:
    report = envfleet.check("procgen/coinrun", env_kwargs=EASY, seconds=250)
    assert report.ok, str(report)
    assert "resume is exact" in str(report)


def test_the_same_seed_plays_the_same_levels(make: Any) -> None:
    one, other = make(**EASY), make(**EASY)
    assert same(one.reset(seed=7), other.reset(seed=7))
    assert same(played(one, actions(300)), played(other, actions(300)))
    assert same(one.reset(seed=7), make(**EASY).reset(seed=7)), "a seed starts over"
    assert not same(one.reset(seed=7)[0], other.reset(seed=8)[0])


def test_levels_are_those_that_were_asked_for(make: Any) -> None:
    env = make(distribution_mode="easy", num_levels=3, start_level=40)
    levels = {env.reset(seed=1)[1]["level"], *(env.reset()[1]["level"] for _ in range(30))}
    assert levels == {40, 41, 42}


def test_success_is_reported_at_the_end_of_an_episode(make: Any) -> None:
    """A coin is worth 10 and solves the level; falling into a pit is worth nothing and does not."""
    env = make(**EASY)
    env.reset(seed=3)
    right = [7, 8] * 2000  # right, and right with a jump
    ends = [step for step in played(env, right) if len(step) == 5 and step[2]]
    assert {bool(step[4]["is_success"]) for step in ends} == {True, False}
    assert all(step[4]["is_success"] == (step[1] == 10.0) for step in ends)


def test_an_end_shows_the_last_picture_and_the_next_reset_the_next_level(make: Any) -> None:
    env = make(**EASY)
    before, _ = env.reset(seed=3)
    for action in [7, 8] * 1000:
        observation, _, terminated, _, info = env.step(action)
        if terminated:
            assert np.array_equal(observation, before)
            break
        before = observation
    else:
        pytest.fail("no episode has ended")
    following, next_info = env.reset()
    assert not np.array_equal(following, before)
    assert "level" in info and "level" in next_info


def test_a_time_out_ends_an_episode_like_any_other_end(make: Any) -> None:
    env = make(**EASY)
    env.reset(seed=1)
    steps = [env.step(4) for _ in range(1000)]  # stands still
    assert not any(terminated for _, _, terminated, _, _ in steps[:-1])
    _, _, terminated, truncated, info = steps[-1]
    assert terminated and not truncated and not info["is_success"]


def test_a_reset_in_the_middle_goes_to_the_next_level(make: Any) -> None:
    env, other = make(num_levels=0), make(num_levels=0)
    first = env.reset(seed=5)
    env.step(7)
    second = env.reset()
    assert not same(first[0], second[0])
    other.reset(seed=5)
    other.step(7)
    assert same(second, other.reset())


def test_a_picture_for_people(make: Any) -> None:
    env = make(render_mode="rgb_array", **EASY)
    env.reset(seed=1)
    picture = env.render()
    assert picture.shape == (512, 512, 3) and picture.std() > 10
    env.step(7)
    plain = make(**EASY)
    plain.reset(seed=1)
    assert same(env.step(8)[0], (plain.step(7), plain.step(8))[1][0]), "a screen changes nothing"


@pytest.mark.parametrize(
    "changes",
    [
        {"use_backgrounds": False},
        {"restrict_themes": True},
        {"use_monochrome_assets": True},
        {"use_generated_assets": True},
        {"paint_vel_info": True},
    ],
)
def test_every_setting_of_the_looks_reaches_the_game(make: Any, changes: dict[str, bool]) -> None:
    ordinary, changed = make(**EASY), make(**EASY, **changes)
    pictures = [[env.reset(seed=seed)[0] for seed in range(6)] for env in (ordinary, changed)]
    assert not same(*pictures)


# ---- refused in Python, before the library would abort the process


@pytest.mark.parametrize(
    ("game", "settings", "words"),
    [
        ("coinrun", {"distribution_mode": "extreme"}, "chaser, dodgeball, leaper, starpilot"),
        ("coinrun", {"distribution_mode": "memory"}, "coinrun has no mode 'memory'"),
        ("bigfish", {"distribution_mode": "exploration"}, "bigfish has no mode"),
        ("coinrun", {"distribution_mode": "esay"}, "did you mean|expected one of"),
        ("coinrun", {"num_levels": -1}, "num_levels"),
        ("coinrun", {"start_level": 5}, "start_level: got 5 without a num_levels above 0; give both"),
        ("coinrun", {"start_level": 2**31 - 1, "num_levels": 2}, "sum"),
        ("coinrun", {"levels": 3}, "levels"),
        ("coinrum", {}, "did you mean 'coinrun'"),
    ],
)
def test_wrong_options_are_refused_in_python(game: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        ProcgenEnv(game, **settings)


def test_a_first_level_does_not_take_the_number_of_levels_of_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "ppo", "--env", "procgen/coinrun", "--start-level", "500"]) == 2
    assert "got 500 without a num_levels above 0; give both" in capsys.readouterr().err


@pytest.mark.parametrize(("game", "mode"), [("chaser", "extreme"), ("maze", "memory")])
def test_modes_of_some_games(make: Any, game: str, mode: str) -> None:
    assert not same(make(game, distribution_mode=mode).reset(seed=1), make(game).reset(seed=1))


def test_exploration_is_one_level_whatever_a_preset_says(make: Any) -> None:
    env = make("ninja", distribution_mode="exploration", num_levels=200)
    levels = {env.reset(seed=seed)[1]["level"] for seed in range(5)}
    assert levels == {EXPLORATION_LEVELS["ninja"]}
    assert env.generalisation() is None


def test_calls_at_the_wrong_moment(make: Any) -> None:
    env = make(**EASY)
    with pytest.raises(ProtocolError, match="before reset"):
        env.step(1)
    env.reset(seed=1)
    for wrong in (-1, 15, 3.7, "5"):
        with pytest.raises(SettingsError, match="0 to 14"):
            env.step(wrong)
    env.close()
    with pytest.raises(ProtocolError, match="closed"):
        env.reset()


# ---- state


def test_a_state_goes_on_exactly_in_another_environment(make: Any) -> None:
    env, other = make(**EASY), make(**EASY)
    env.reset(seed=9)
    played(env, actions(150))
    other.reset(seed=1)
    other.set_state(env.get_state())
    assert same(played(env, actions(400, seed=2)), played(other, actions(400, seed=2)))


def test_a_state_of_other_levels_is_refused(make: Any) -> None:
    env = make(**EASY)
    env.reset(seed=9)
    with pytest.raises(StateError, match="same settings"):
        make(distribution_mode="easy").set_state(env.get_state())


def test_a_damaged_state_is_refused(make: Any) -> None:
    """The library would end the process."""
    env = make(**EASY)
    env.reset(seed=9)
    state = env.get_state()
    with pytest.raises(StateError, match="damaged"):
        env.set_state({**state, "playing": state["playing"][:-10]})
    env.set_state({key: value for key, value in state.items() if key != "checksum"})  # of an earlier version


# ---- in a fleet


@pytest.mark.parametrize("name", ["threads", "spawn", "fork", "forkserver"])
def test_every_backend_gives_the_same_bytes(name: str) -> None:
    traces = []
    for backend in (BACKENDS["sequential"], BACKENDS[name]):
        with envfleet.make("procgen/coinrun", 4, env_kwargs=EASY, seed=3, **backend) as fleet:
            traces.append(trace(fleet, 60, seed=3))
    assert same(*traces)


@pytest.mark.proof
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """In a worker process: a forked child cannot use a library that its parent has loaded."""
    options = {"env": "procgen/coinrun", "env_kwargs": EASY, "network": "nature", "n_envs": 4, "rollout_steps": 8}
    options |= {"minibatch_size": 16, "epochs": 1, "steps": 4 * 8 * 12, "checkpoint_every": 1}
    options |= {"backend": "processes", "workers": 1}
    run(tmp_path / "whole", **options)
    broken = tmp_path / "broken"
    kills = kill_until_done(broken, lambda: run(broken, **options), lambda: resume(broken, quiet=True), kills=2, seed=5)
    assert kills == 2
    assert weights(broken) == weights(tmp_path / "whole")
    manifest = json.loads((broken / "manifest.json").read_text())
    assert manifest["machine"]["libraries"].keys() & {"procgen-mirror", "procgen-gym"}


def test_levels_beside_those_of_the_training(make: Any) -> None:
    offer = make(**EASY).generalisation()
    assert offer.env_kwargs == {"num_levels": 0, "start_level": 0} and offer.trained == "levels 0 to 19"
    assert make(distribution_mode="easy").generalisation() is None
    assert ProcgenSettings(**{**EASY, **offer.env_kwargs}).num_levels == 0


@pytest.mark.slow
def test_evaluate_plays_the_training_levels_and_all_levels(tmp_path: Path) -> None:
    options = {"env": "procgen/coinrun", "env_kwargs": EASY, "network": "nature", "n_envs": 2, "rollout_steps": 8}
    options |= {"minibatch_size": 16, "epochs": 1, "steps": 2 * 8, "log_info": ("level",)}
    run(tmp_path / "run", **options)
    trained = envfleet.evaluate_run(tmp_path / "run", episodes=3, max_steps=5)
    everything = trained.held_out
    assert everything is not None
    assert (trained.played, everything.played) == ("levels 0 to 19", "all levels")
    assert trained.episodes == everything.episodes == 3
    assert 0 <= trained.infos["level"] <= 19 < everything.infos["level"]
    shown = _report(trained)
    assert shown.index("levels 0 to 19:") < shown.index("all levels:") and shown.count("over 3 episodes") == 2


@pytest.mark.skipif(not uses_linux(), reason="workers are forked from a server on Linux")
def test_workers_share_the_images_of_the_library() -> None:
    """A process that loads them itself has 340 MB of its own."""
    with envfleet.make("procgen/coinrun", 4, env_kwargs=EASY, backend="processes", workers=2, quiet=True) as fleet:
        fleet.reset()
        for worker in fleet.statistics().workers:
            assert private_memory(worker.pid) < 100 * 2**20
