"""Trajectories match the environments' own steps, in any autoreset mode and after failures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import envfleet
from envfleet.errors import SettingsError
from envfleet.fleet.fleet import Fleet
from envfleet.rollout import Collection, Trajectory, collect
from tests.rollout.diaries import Diary, Fragile, Masked, MaskedAtFirst, NestedDiary, Tasked

MODES = list(AutoresetMode)


def diaries(
    *lengths: tuple[int, ...],
    mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    kind: type[Diary] = Diary,
    **kwargs: Any,
) -> SyncVectorEnv[Any, Any]:
    makers = [lambda n=n, own=own: kind(n, own, **kwargs) for n, own in enumerate(lengths)]
    return SyncVectorEnv(makers, autoreset_mode=mode, copy=False)


def fleet_of(
    *lengths: tuple[int, ...],
    mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    kind: type[Diary] = Diary,
    backend: str = "sequential",
    on_error: str = "raise",
    **kwargs: Any,
) -> Fleet:
    makers = [lambda n=n, own=own: kind(n, own, **kwargs) for n, own in enumerate(lengths)]
    return envfleet.make(
        makers,
        backend=backend,
        workers=None if backend == "sequential" else 2,
        group_size=1,
        autoreset=mode.name.lower(),
        on_error=on_error,
        copy=False,
        quiet=True,
    )


def step_as_action(observations: Any) -> Any:
    """Return the step at which each action is chosen, as the action."""
    return observations[:, 2].astype(np.int64) % 5


def assert_contiguous(trajectory: Trajectory) -> None:
    """Every transition belongs to the environment: no gap, no repetition, no foreign row."""
    steps = len(trajectory)
    numbers, episodes, times = trajectory.observations.T
    assert set(numbers) == {trajectory.env_index}
    assert len(set(episodes)) == 1
    np.testing.assert_array_equal(times, np.arange(steps + 1))
    np.testing.assert_array_equal(trajectory.rewards, np.arange(1, steps + 1))
    np.testing.assert_array_equal(trajectory.actions, np.arange(steps) % 5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [diaries, fleet_of, partial(fleet_of, backend="processes")])
def test_rollouts_are_complete_episodes_shared_out_by_environment(make: Any, mode: AutoresetMode) -> None:
    fleet = make((2,), (100,), (3, 4), mode=mode)

    collection = collect(fleet, step_as_action, rollouts=7)
    fleet.close()

    assert [(t.env_index, int(t.observations[0, 1]), len(t)) for t in collection.trajectories] == [
        (0, 0, 2), (0, 1, 2), (0, 2, 2), (1, 0, 100), (1, 1, 100), (2, 0, 3), (2, 1, 4),
    ]  # fmt: skip
    for trajectory in collection.trajectories:
        assert_contiguous(trajectory)
        assert (trajectory.terminated, trajectory.truncated, trajectory.complete) == (True, False, True)


@settings(deadline=None)  # another process may be using the core
@given(
    lengths=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), min_size=1, max_size=4),
    mode=st.sampled_from(MODES),
    steps=st.integers(1, 60),
)
def test_pieces_hold_every_step_once(lengths: list[tuple[int, ...]], mode: AutoresetMode, steps: int) -> None:
    collection = collect(diaries(*lengths, mode=mode), step_as_action, steps=steps)

    assert steps <= collection.statistics.steps < steps + len(lengths)
    assert collection.statistics.steps == sum(map(len, collection.trajectories))
    episodes: dict[int, int] = {}
    for trajectory in collection.trajectories:
        assert_contiguous(trajectory)
        env, episode = trajectory.env_index, int(trajectory.observations[0, 1])
        assert episode == episodes.get(env, 0)  # no episode is skipped
        episodes[env] = episode + 1
        assert trajectory.complete == (len(trajectory) == lengths[env][episode % len(lengths[env])])
        assert trajectory.terminated == trajectory.complete
        assert not trajectory.truncated


def test_truncated_episodes_are_complete_and_not_terminated() -> None:
    (trajectory,) = collect(diaries((4,), terminates=False), step_as_action, rollouts=1).trajectories
    assert (trajectory.terminated, trajectory.truncated, trajectory.complete) == (False, True, True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [diaries, fleet_of])
def test_nested_spaces_and_objects(make: Any, mode: AutoresetMode) -> None:
    fleet = make((70,), (2, 3), mode=mode, kind=NestedDiary)

    collection = collect(fleet, random=True, rollouts=4, seed=0)
    fleet.close()

    assert [len(trajectory) for trajectory in collection.trajectories] == [70, 70, 2, 3]
    for trajectory in collection.trajectories:
        steps = len(trajectory)
        number, rest = trajectory.observations["place"]
        assert set(number) == {trajectory.env_index}
        np.testing.assert_array_equal(rest[:, 1], np.arange(steps + 1))
        assert trajectory.observations["note"] == tuple(f"step {time}" for time in range(steps + 1))
        assert trajectory.actions["push"].shape == (steps, 2)
        assert trajectory.actions["go"].dtype == np.int64


def test_an_environment_replays_its_trajectory() -> None:
    """The strongest check: a single environment with the same seed and actions gives the same values."""
    fleet = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync")

    trajectories = collect(fleet, random=True, rollouts=3, seed=5).trajectories

    for trajectory in trajectories:
        env = gymnasium.make("CartPole-v1")
        observations = [env.reset(seed=5 + trajectory.env_index)[0]]
        for action in trajectory.actions:
            observation, reward, terminated, truncated, _ = env.step(action)
            observations.append(observation)
        np.testing.assert_array_equal(trajectory.observations, observations)
        assert reward == trajectory.rewards[-1]
        assert (terminated, truncated) == (trajectory.terminated, trajectory.truncated) == (True, False)


@pytest.mark.parametrize("mode", MODES)
def test_a_trajectory_knows_the_task_that_its_environment_names(mode: AutoresetMode) -> None:
    makers = [partial(Tasked, number, (3,)) for number in range(2)]
    fleet = envfleet.make(makers, backend="sequential", tasks=["north", "south"], autoreset=mode, quiet=True)

    trajectories = collect(fleet, step_as_action, rollouts=4).trajectories
    fleet.close()

    assert [trajectory.task for trajectory in trajectories] == ["north", "north", "south", "south"]


# --------------------------------------------------------------------------------------- lost environments


def fragile_fleet(mode: AutoresetMode, memory: Path, *, kills: bool) -> Fleet:
    backend = "processes" if kills else "sequential"
    return fleet_of(
        (6,),
        (5,),
        (4,),
        mode=mode,
        kind=Fragile,
        backend=backend,
        on_error="restart",
        memory=memory,
        kills=kills,
    )


@pytest.mark.parametrize("kills", [False, True], ids=["raises", "is killed"])
@pytest.mark.parametrize("mode", MODES)
def test_a_lost_step_is_no_transition(mode: AutoresetMode, kills: bool, tmp_path: Path) -> None:
    fleet = fragile_fleet(mode, tmp_path / "was lost", kills=kills)

    collection = collect(fleet, step_as_action, steps=40)
    fleet.close()

    cut, following, *_ = [t for t in collection.trajectories if t.env_index == 0]
    assert (len(cut), cut.terminated, cut.truncated, cut.complete, cut.restarted) == (
        3,
        False,
        True,
        False,
        True,
    )
    assert (len(following), following.complete, following.restarted) == (6, True, False)
    for trajectory in collection.trajectories:
        assert_contiguous(trajectory)
    assert collection.statistics.restarts == sum(t.restarted for t in collection.trajectories)
    assert not any(t.restarted for t in collection.trajectories if t.env_index == 1), "on the other worker"


@pytest.mark.parametrize("mode", MODES)
def test_a_cut_episode_is_no_rollout(mode: AutoresetMode, tmp_path: Path) -> None:
    fleet = fragile_fleet(mode, tmp_path / "was lost", kills=False)

    collection = collect(fleet, step_as_action, rollouts=6)
    fleet.close()

    assert [(t.env_index, len(t)) for t in collection.trajectories] == [
        (0, 6),
        (0, 6),
        (1, 5),
        (1, 5),
        (2, 4),
        (2, 4),
    ]
    assert all(trajectory.complete for trajectory in collection.trajectories)
    assert (collection.statistics.restarts, collection.statistics.episodes) == (1, 6)


# ------------------------------------------------------------------------------------------- random actions


def actions_of(collection: Collection) -> list[list[int]]:
    return [trajectory.actions.tolist() for trajectory in collection.trajectories]


def test_random_actions_follow_the_seed() -> None:
    def draw(seed: int) -> list[list[int]]:
        return actions_of(collect(diaries((20,), (20,)), random=True, rollouts=2, seed=seed))

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_without_a_seed_random_actions_go_on_with_the_generator_of_the_action_space() -> None:
    fleet, other = diaries((20,), (20,)), diaries((20,), (20,))
    fleet.action_space.seed(3)
    other.action_space.seed(3)

    first, second = (actions_of(collect(fleet, random=True, rollouts=2)) for _ in range(2))

    assert first != second
    assert first == actions_of(collect(other, random=True, rollouts=2))


def test_a_seed_leaves_the_generator_of_the_action_space_alone() -> None:
    fleet, untouched = diaries((20,)), diaries((20,))
    fleet.action_space.seed(3)
    untouched.action_space.seed(3)

    collect(fleet, random=True, rollouts=1, seed=1)

    np.testing.assert_array_equal(fleet.action_space.sample(), untouched.action_space.sample())


@pytest.mark.parametrize("mode", MODES)
def test_random_actions_respect_action_masks(mode: AutoresetMode) -> None:
    collection = collect(diaries((7,), (3, 2), mode=mode, kind=Masked), random=True, steps=60, seed=0)
    for trajectory in collection.trajectories:
        expected = (trajectory.env_index + np.arange(len(trajectory))) % 5
        np.testing.assert_array_equal(trajectory.actions, expected)


@pytest.mark.parametrize("mode", MODES)
def test_trajectories_have_the_mask_beside_each_observation(mode: AutoresetMode) -> None:
    collection = collect(diaries((7,), (3, 2), mode=mode, kind=Masked), random=True, steps=60, seed=0)
    for trajectory in collection.trajectories:
        allowed = (trajectory.env_index + np.arange(len(trajectory) + 1)) % 5
        assert trajectory.masks is not None
        np.testing.assert_array_equal(trajectory.masks, np.eye(5, dtype=np.bool_)[allowed])


@pytest.mark.parametrize("mode", MODES)
def test_a_mask_holds_for_one_step(mode: AutoresetMode) -> None:
    fleet = diaries((30,), (20,), mode=mode, kind=MaskedAtFirst)
    later: set[int] = set()
    for trajectory in collect(fleet, random=True, rollouts=4, seed=0).trajectories:
        assert trajectory.actions[0] == 0
        later.update(trajectory.actions[1:].tolist())
        assert trajectory.masks is not None
        assert trajectory.masks.sum(axis=1).tolist() == [1] + [5] * len(trajectory)
    assert later == set(range(5))


# ----------------------------------------------------------------------------------------------- statistics


def test_statistics_are_those_of_complete_episodes() -> None:
    statistics = collect(diaries((2,), (4,)), step_as_action, rollouts=2).statistics
    assert (statistics.episodes, statistics.restarts, statistics.steps) == (2, 0, 6)
    assert (statistics.min_return, statistics.mean_return, statistics.max_return) == (3.0, 6.5, 10.0)
    assert (statistics.std_return, statistics.mean_length) == (3.5, 3.0)
    assert statistics.steps_per_second == pytest.approx(6 / statistics.seconds)


def test_statistics_without_a_complete_episode_are_nan() -> None:
    statistics = collect(diaries((50,)), step_as_action, steps=5).statistics
    assert (statistics.episodes, statistics.steps) == (0, 5)
    assert np.isnan([statistics.mean_return, statistics.std_return, statistics.mean_length]).all()


def test_progress_is_quiet_where_nobody_watches(capfd: pytest.CaptureFixture[str]) -> None:
    collect(diaries((5,)), step_as_action, rollouts=3, progress=True)
    assert capfd.readouterr() == ("", "")


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"random": True}, "rollouts=None and steps=None"),
        ({"random": True, "rollouts": 1, "steps": 1}, "rollouts=1 and steps=1"),
        ({"random": True, "rollouts": 0}, "rollouts is 0"),
        ({"random": True, "steps": 1.5}, r"steps is 1\.5"),
        ({"random": True, "steps": True}, "steps is True"),
        ({"steps": 1}, "policy=None and random=False"),
        ({"steps": 1, "policy": step_as_action, "random": True}, "random=True, expected"),
        ({"steps": 1, "policy": "greedy"}, "policy='greedy'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        collect(diaries((5,)), **arguments)


def test_a_vector_environment_that_does_not_say_how_it_resets() -> None:
    fleet = diaries((5,))
    del fleet.metadata["autoreset_mode"]
    with pytest.raises(SettingsError, match="autoreset_mode=None"):
        collect(fleet, random=True, steps=1)
