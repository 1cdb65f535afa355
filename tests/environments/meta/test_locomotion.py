"""MuJoCo robots with tasks: rewards, observations, ends, pictures."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv

import envfleet
from envfleet import extras
from envfleet.environments.meta.locomotion import AntDir, AntGoal, HalfCheetahDir, HalfCheetahVel, HumanoidDir
from envfleet.environments.meta.pictures import gauge, view_from_above, with_caption
from envfleet.errors import MissingExtraError

WALKERS: dict[str, Any] = {
    "HalfCheetahVel": HalfCheetahVel,
    "HalfCheetahDir": HalfCheetahDir,
    "AntDir": AntDir,
    "AntGoal": AntGoal,
    "HumanoidDir": HumanoidDir,
}


@pytest.mark.proof
@pytest.mark.parametrize("name", WALKERS)
def test_passes_the_check(name: str) -> None:
    report = envfleet.check(f"envfleet/{name}-v0", seconds=250)
    assert report.ok, str(report)
    assert "resume is exact" in str(report)


def played(env: Any, task: Any, actions: Any, model: str, **settings: Any) -> tuple[list[Any], list[Any]]:
    """The steps of the environment, and of Gymnasium's own model with the same seed and torques."""
    own = gymnasium.make(model, **settings)
    env.reset(seed=3, options={"task": task})
    own.reset(seed=3)
    scale = float(own.action_space.high[0])
    return [env.step(action) for action in actions], [own.step(scale * np.float64(action)) for action in actions]


def random_actions(size: int, count: int = 20) -> Any:
    return np.random.default_rng(0).uniform(-1.0, 1.0, (count, size)).astype(np.float32)


def test_half_cheetah_vel() -> None:
    actions = random_actions(6)
    steps, own = played(HalfCheetahVel(), 1.5, actions, "HalfCheetah-v5")
    for action, ours, theirs in zip(actions, steps, own, strict=True):
        assert np.array_equal(ours[0], np.float32(theirs[0])) and ours[0].shape == (17,)
        cost = 0.05 * np.square(action).sum()
        assert ours[1] == pytest.approx(-abs(theirs[4]["x_velocity"] - 1.5) - cost)


def test_half_cheetah_dir() -> None:
    actions = random_actions(6)
    for task in (-1.0, 1.0):
        steps, own = played(HalfCheetahDir(), task, actions, "HalfCheetah-v5")
        for action, ours, theirs in zip(actions, steps, own, strict=True):
            assert ours[1] == pytest.approx(task * theirs[4]["x_velocity"] - 0.05 * np.square(action).sum())


def test_ant_dir() -> None:
    actions = random_actions(8)
    steps, own = played(AntDir(), 1.0, actions, "Ant-v5", include_cfrc_ext_in_observation=False)
    for action, ours, theirs in zip(actions, steps, own, strict=True):
        assert np.array_equal(ours[0], np.float32(theirs[0])) and ours[0].shape == (27,)
        moved = theirs[4]
        speed = math.cos(1.0) * moved["x_velocity"] + math.sin(1.0) * moved["y_velocity"]
        cost = 0.5 * np.square(action).sum() - moved["reward_contact"]
        assert ours[1] == pytest.approx(speed - cost + 1.0)
    forwards, plain = played(AntDir(), 0.0, actions, "Ant-v5")
    assert [step[1] for step in forwards] == pytest.approx([step[1] for step in plain]), "straight ahead is Ant-v5"


def test_ant_goal() -> None:
    actions = random_actions(8)
    steps, own = played(AntGoal(), [1.0, -2.0], actions, "Ant-v5", exclude_current_positions_from_observation=False)
    for action, ours, theirs in zip(actions, steps, own, strict=True):
        assert np.array_equal(ours[0], np.float32(theirs[0])) and ours[0].shape == (107,)
        moved = theirs[4]
        distance = abs(moved["x_position"] - 1.0) + abs(moved["y_position"] + 2.0)
        assert ours[1] == pytest.approx(moved["reward_contact"] - 0.1 * np.square(action).sum() - distance)


def test_humanoid_dir() -> None:
    actions = random_actions(17, 10)
    steps, own = played(HumanoidDir(), 2.0, actions, "Humanoid-v5")
    for ours, theirs in zip(steps, own, strict=True):
        assert np.array_equal(ours[0], np.float32(theirs[0])) and ours[0].shape == (348,)
        moved = theirs[4]
        speed = math.cos(2.0) * moved["x_velocity"] + math.sin(2.0) * moved["y_velocity"]
        rest = theirs[1] - moved["reward_forward"]
        assert ours[1] == pytest.approx(1.25 * speed + rest)
    assert steps[0][4] == {}


def test_episodes_have_200_steps_and_ants_fall() -> None:
    cheetah = HalfCheetahVel()
    cheetah.reset(seed=1)
    ends = [cheetah.step(np.zeros(6))[2:4] for _ in range(200)]
    assert ends == [(False, False)] * 199 + [(False, True)]
    for kind, falls in ((AntDir, True), (AntGoal, False)):
        ant = kind()
        ant.reset(seed=1)
        ant.data.qpos[2] = 3.0  # thrown into the air
        assert ant.step(np.zeros(8))[2] is falls


def test_tasks() -> None:
    generator = np.random.default_rng(0)
    speeds = HalfCheetahVel().sample_tasks(500, generator)
    assert min(speeds) < 0.1 and 2.9 < max(speeds) <= 3.0
    assert set(HalfCheetahDir().sample_tasks(50, generator)) == {-1.0, 1.0}
    assert set(AntDir(directions="two").sample_tasks(50, generator)) == {-1.0, 1.0}
    for kind in (AntDir, HumanoidDir):
        angles = kind().sample_tasks(500, generator)
        assert min(angles) < 0.1 and 6.2 < max(angles) < 2 * math.pi
    radii = np.linalg.norm(AntGoal().sample_tasks(2000, generator), axis=1)
    assert radii.max() <= 3.0 and np.mean(radii < 1.5) == pytest.approx(0.25, abs=0.03), "uniform in the disc"


def test_the_task_is_in_the_caption() -> None:
    """MuJoCo draws the robot, which needs OpenGL; the caption does not."""
    env = AntDir(render_mode="rgb_array")
    env.reset(seed=1, options={"task": math.pi / 2})
    assert env.describe() == "direction 90°" and env.metadata["render_fps"] == 20
    picture = with_caption(np.zeros((100, 200, 3), np.uint8), "episode 1", env.describe())
    assert picture.shape == (144, 200, 3) and picture[100:].min() < 100


def places(picture: Any, colour: tuple[int, int, int]) -> Any:
    """The centre of all points of a colour, from the middle of the inset: right, up."""
    rows, columns = np.nonzero((picture == colour).all(axis=2))
    return np.array([columns.mean() - 75, 75 - rows.mean()])


GREEN, BLUE = (45, 164, 78), (9, 105, 218)


@pytest.mark.parametrize("angle", [0.0, 2.0, math.pi, -0.5])
def test_the_inset_has_an_arrow_in_the_direction(angle: float) -> None:
    picture = view_from_above([(5.0, 5.0), (5.0, 7.0)], direction=angle)
    right, up = places(picture, GREEN)
    assert math.hypot(right, up) > 25 and math.cos(math.atan2(up, right) - angle) > 0.99
    right, up = places(picture, BLUE)
    assert abs(right) < 2 and up > 35, "it walked upwards, from its start in the middle"


def test_the_inset_has_goal_and_path() -> None:
    picture = view_from_above([(0.0, 0.0), (0.0, 1.0)], goal=(2.0, -1.5))
    right, up = places(picture, GREEN)
    assert right == pytest.approx(63, abs=1.5) and up == pytest.approx(-0.75 * 63, abs=1.5)
    assert places(picture, BLUE)[1] > 15
    away = view_from_above([(0.0, 0.0), (40.0, 0.0)], goal=(2.0, -1.5))
    assert places(away, BLUE)[0] > 30 and np.hypot(*places(away, GREEN)) < 8, "the scale fits the path"


def test_the_inset_has_both_speeds() -> None:
    slow, fast = gauge(3.0, 0.0, -1.0, 4.0), gauge(3.0, 9.0, -1.0, 4.0)
    marks = slow[40:75], slow[95:125]
    assert places(marks[0], GREEN)[0] - places(marks[1], BLUE)[0] == pytest.approx(3 / 5 * 122, abs=2)
    assert places(fast[95:125], BLUE)[0] == pytest.approx(61, abs=2), "at the end of the scale"


@pytest.mark.parametrize(
    ("kind", "task"), [(HalfCheetahVel, 2.0), (HalfCheetahDir, -1.0), (AntDir, 1.0), (AntGoal, [1.0, 2.0])]
)
def test_pictures_have_the_inset(kind: Any, task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture of the robot itself needs OpenGL, so it is black here."""
    monkeypatch.setattr(MujocoEnv, "render", lambda _: np.zeros((480, 480, 3), np.uint8))
    env = kind(render_mode="rgb_array")
    for _ in range(2):
        env.reset(seed=1, options={"task": task})
        first = env.render()
        env.data.qpos[0] += 0.5
        env.step(np.zeros(env.action_space.shape))
        second = env.render()
        assert len(env._path) == 2, "of this episode"
        assert (first[:, :320] == 0).all() and (first[10:170, 330:470] == GREEN).all(axis=2).sum() > 100
        assert not np.array_equal(first, second), "the robot has moved"


def test_without_mujoco_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda module: module != "mujoco")
    with pytest.raises(MissingExtraError, match=r"envfleet\[mujoco\]"):
        envfleet.make("AntDir-v0", 1, backend="sequential")
    envfleet.make("envfleet/Bandit-v0", 1, backend="sequential").close()
