"""The fleet behaves like Gymnasium's own vector environments, to the byte, on every backend."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import envfleet
from tests.fleet.backends import same, trace
from tests.fleet.simulators import Counter, Masked, MixedNumbers, Nested, Talks

ENVS: dict[str, Any] = {
    "cartpole": lambda: gymnasium.make("CartPole-v1"),
    "pendulum": lambda: gymnasium.make("Pendulum-v1", max_episode_steps=15),
    "frozenlake": lambda: gymnasium.make("FrozenLake-v1"),
    "counter": Counter,
    "masked": Masked,
    "nested": Nested,
    "talks": Talks,
}


def cast_as_gymnasium_does(expected: dict[str, Any], received: dict[str, Any], key: str) -> None:
    """Cast the values of one key to the type of the first environment: the only difference allowed."""
    for one, other in ((expected, received), (expected.get("final_info", {}), received.get("final_info", {}))):
        if key in one:
            other[key] = other[key].astype(one[key].dtype)


def test_numbers_of_several_types_keep_their_values(backend: dict[str, Any]) -> None:
    """The only difference from Gymnasium, which casts all values to the first environment's type: 0.25 becomes 0."""
    fleet = envfleet.make(MixedNumbers, 4, group_size=2, autoreset="same_step", **backend)
    reference = SyncVectorEnv([MixedNumbers] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    for env in (fleet, reference):
        env.reset(seed=1)
        env.set_attr("length", [2, 3, 4, 5])
    for shares, casted in (
        ([0.25] * 4, [0.25] * 4),
        ([1, 0.25, 0.25, 0.25], [1, 0, 0, 0]),
        ([0.25, 1, 0.25, 0.25],) * 2,
    ):
        assert fleet.step(np.zeros(4, np.int64))[-1]["share"].tolist() == shares
        assert reference.step(np.zeros(4, np.int64))[-1]["share"].tolist() == casted
    fleet.close()
    reference.close()


@pytest.mark.parametrize("env", list(ENVS))
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_gives_what_gymnasium_gives(env: str, mode: AutoresetMode) -> None:
    reference = SyncVectorEnv([ENVS[env]] * 5, autoreset_mode=mode)
    with_fleet = envfleet.make(ENVS[env], 5, backend="sequential", group_size=2, autoreset=mode)
    expected, received = trace(reference, 60, seed=7), trace(with_fleet, 60, seed=7)
    for step, (one, other) in enumerate(zip(expected, received, strict=True)):
        if env == "frozenlake":  # its "prob" is the integer 1 after a reset and 1/3 after a step
            cast_as_gymnasium_does(one[-1], other[-1], "prob")
        assert same(one, other), f"step {step}: {one} and {other}"
    with_fleet.close()
    reference.close()


def test_spaces_and_metadata(backend: dict[str, Any]) -> None:
    reference = SyncVectorEnv([Nested] * 4)
    fleet = envfleet.make(Nested, 4, group_size=2, **backend)
    assert fleet.num_envs == 4
    assert fleet.observation_space == reference.observation_space
    assert fleet.action_space == reference.action_space
    assert fleet.single_observation_space == reference.single_observation_space
    assert fleet.single_action_space == reference.single_action_space
    assert fleet.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert fleet.render_mode == "rgb_array"
    fleet.close()


def test_call_get_set_attr_and_render(backend: dict[str, Any]) -> None:
    with_fleet = envfleet.make(Counter, 4, group_size=2, **backend)
    with_fleet.reset(seed=1)
    with_fleet.set_attr("length", [3, 4, 5, 6])
    assert with_fleet.get_attr("length") == (3, 4, 5, 6)
    with_fleet.set_attr("length", 7)
    assert with_fleet.call("get_wrapper_attr", "length") == (7, 7, 7, 7)
    with_fleet.step(np.zeros(4, np.int64))
    frames = with_fleet.render()
    assert len(frames) == 4 and frames[0].shape == (2, 2, 3) and frames[3].max() == 1
    with pytest.raises(envfleet.EnvError, match=r"environment 0.*nonsense"):
        with_fleet.call("nonsense")
    with_fleet.call_at([1, 3], "__setattr__", "length", 99)
    assert with_fleet.get_attr("length") == (7, 99, 7, 99)
    with_fleet.step(np.zeros(4, np.int64))  # a failed call costs no episode
    with_fleet.close()


def test_reset_mask(backend: dict[str, Any]) -> None:
    fleet = envfleet.make(Counter, 4, group_size=2, autoreset="disabled", **backend)
    fleet.reset(seed=1)
    before = fleet.step(np.zeros(4, np.int64))[0]
    mask = np.array([True, False, False, True])
    after, infos = fleet.reset(options={"reset_mask": mask})
    assert after[:, 0].tolist() == [0, 1, 1, 0]
    assert same(after[1:3], before[1:3])
    assert infos["_began"].tolist() == mask.tolist()
    with pytest.raises(envfleet.SettingsError, match="at least one True"):
        fleet.reset(options={"reset_mask": np.zeros(4, bool)})
    with pytest.raises(envfleet.SettingsError, match="must be a numpy array"):
        fleet.reset(options={"reset_mask": [True] * 4})
    with pytest.raises(TypeError, match=r"np\.bool_"):
        fleet.reset(options={"reset_mask": np.ones(4)})
    with pytest.raises(ValueError, match=r"shape `\(4,\)`, got \(3,\)"):
        fleet.reset(options={"reset_mask": np.ones(3, bool)})
    fleet.close()


def test_disabled_autoreset_refuses_a_step_after_the_end() -> None:
    fleet = envfleet.make(lambda: Counter(length=2), 4, backend="sequential", autoreset="disabled")
    fleet.reset(seed=1)
    fleet.step(np.zeros(4, np.int64))
    ended = fleet.step(np.zeros(4, np.int64))[2]
    assert ended.all()
    with pytest.raises(envfleet.ProtocolError, match=r"environments \[0, 1, 2, 3\] have ended"):
        fleet.step(np.zeros(4, np.int64))
    fleet.reset(options={"reset_mask": ended})
    assert fleet.step(np.zeros(4, np.int64))[0][0, 0] == 1
    fleet.close()


def test_seed_lists_and_the_drawn_seed() -> None:
    fleet = envfleet.make(Counter, 3, backend="sequential")
    first = fleet.reset()[0]
    again = fleet.reset(seed=fleet.seed)[0]
    assert same(first, again)
    listed = fleet.reset(seed=[fleet.seed, fleet.seed + 1, fleet.seed + 2])[0]
    assert same(first, listed)
    with pytest.raises(envfleet.SettingsError, match="2 entries"):
        fleet.reset(seed=[1, 2])
    fleet.close()


@pytest.mark.parametrize(
    "wrap",
    [
        wrappers.RecordEpisodeStatistics,
        wrappers.NormalizeObservation,
        wrappers.NormalizeReward,
        lambda env: wrappers.ClipReward(env, 0.0, 0.5),
        wrappers.DictInfoToList,
    ],
)
def test_gymnasium_vector_wrappers_work(wrap: Any) -> None:
    def run(env: Any) -> list[Any]:
        env = wrap(env)
        results = trace(env, 40, seed=3)
        env.close()
        for result in results:  # wall-clock times differ
            if isinstance(result[-1], dict) and "episode" in result[-1]:
                result[-1]["episode"].pop("t")
        return results

    reference = run(SyncVectorEnv([ENVS["cartpole"]] * 4))
    received = run(envfleet.make("CartPole-v1", 4, backend="threads", workers=2, group_size=2))
    assert same(reference, received)


def test_copies_are_safe_and_views_live_for_one_more_step() -> None:
    actions = np.zeros(4, np.int64)
    fleet = envfleet.make(Counter, 4, backend="sequential")
    fleet.reset(seed=1)
    first = fleet.step(actions)[0]
    kept = first.copy()
    for _ in range(4):
        fleet.step(actions)
    assert same(first, kept)
    fleet.close()
    views = envfleet.make(Counter, 4, backend="sequential", copy=False)
    views.reset(seed=1)
    first = views.step(actions)[0]
    views.step(actions)
    assert same(first, kept)  # a view stays valid during the next step
    views.step(actions)
    assert not same(first, kept)
    views.close()


def test_actions_are_the_environments_own() -> None:
    """An environment may keep the action array it was given."""
    fleet = envfleet.make(Nested, 2, backend="sequential")
    fleet.reset(seed=1)
    fleet.action_space.seed(1)
    given = [fleet.action_space.sample() for _ in range(3)]
    for actions in given:
        fleet.step(actions)
    for env, kept in enumerate(fleet.get_attr("kept")):
        assert [k.tolist() for k in kept] == [g["push"][env].tolist() for g in given]
    fleet.close()


def test_gymnasium_is_among_the_direct_bases() -> None:
    """As skrl's `wrap_env` recognises a vector environment."""
    assert any(base.__module__.startswith("gymnasium.") for base in envfleet.Fleet.__bases__)
