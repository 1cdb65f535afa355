"""The wildfire environment: rewards, effect of breaks, restored states, and the same bytes on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import envfleet
from envfleet.environments.wildfire import (
    Fire,
    Landscape,
    SurfaceFire,
    WildfireEnv,
    draw_fires,
    generate_landscape,
)
from envfleet.environments.wildfire.baselines import burned_hectares, centrality_breaks
from envfleet.environments.wildfire.observation import CHANNELS, fuel_hazard
from envfleet.errors import ProtocolError, SettingsError, StateError
from tests.environments.wildfire.grounds import even_ground
from tests.fleet.backends import same
from tests.fleet.continuation import is_plain


def play(env: WildfireEnv, seed: int | None = None) -> tuple[list[float], list[dict[str, Any]]]:
    """Play an episode that always takes the middle one of the allowed actions; return its rewards and infos."""
    _, info = env.reset(seed=seed)
    rewards, infos, ended = [], [info], False
    while not ended:
        allowed = np.flatnonzero(infos[-1]["action_mask"])
        _, reward, terminated, truncated, info = env.step(allowed[len(allowed) // 2])
        rewards.append(reward)
        infos.append(info)
        ended = terminated or truncated
    return rewards, infos


def test_keeps_to_the_rules() -> None:
    report = envfleet.check("envfleet/Wildfire-v0", steps=80, seconds=250)
    assert report.ok, str(report)
    assert not report.problems
    assert report.resumable


def test_rewards_add_up_to_the_area_that_did_not_burn() -> None:
    env = WildfireEnv(memory_simulations=30, fire_risk="high")
    rewards, infos = play(env, seed=3)
    assert len(rewards) == 31  # 5 % of 625
    hectares = 625 * 0.09
    avoided = infos[0]["burned_hectares"] - infos[-1]["burned_hectares"]
    assert sum(rewards) == pytest.approx(100 * avoided / hectares)
    assert avoided > 0


def test_what_is_seen() -> None:
    env = WildfireEnv(landscapes=[generate_landscape("forest", "high", 20, 1)])
    observation, info = env.reset(seed=0)
    assert observation.shape == (9, 20, 20) and observation in env.observation_space
    landscape = env.landscape
    np.testing.assert_allclose(observation[CHANNELS.index("slope")], landscape.layer("slope") / 60)
    elevation = landscape.layer("elevation")
    np.testing.assert_allclose(observation[CHANNELS.index("elevation")], (elevation - elevation.min()) / 500)
    fuel = observation[CHANNELS.index("fuel_model")]
    assert ((fuel == 0) == ~landscape.burnable).all()
    assert not observation[-1].any()
    assert (info["action_mask"].reshape(20, 20) == landscape.burnable).all()
    action = int(np.flatnonzero(info["action_mask"])[7])
    later, *_, info = env.step(np.int64(action))
    assert later[-1].ravel()[action] == 1 and later[-1].sum() == 1
    assert not observation[-1].any()  # earlier observations are unchanged
    assert info["action_mask"][action] == 0
    assert landscape.burnable.ravel()[action]  # the landscape is unchanged too


def test_fast_fuels_look_dangerous() -> None:
    hazard = fuel_hazard()
    assert hazard[98] == 0 and hazard.max() == 1
    assert hazard[107] > hazard[102] > hazard[181] > 0


def test_an_action_that_is_masked_spends_its_share_on_nothing() -> None:
    env = WildfireEnv(budget_percent=0.5)  # 3 cells
    _, info = env.reset(seed=1)
    barred = int(np.flatnonzero(info["action_mask"] == 0)[0])
    for step in range(3):
        observation, reward, terminated, _, after = env.step(np.int64(barred))
        assert reward == 0 and not observation[-1].any() and terminated == (step == 2)
        assert after["burned_hectares"] == info["burned_hectares"]


def test_an_episode_ends_at_its_budget_or_is_cut_after_its_steps() -> None:
    env = WildfireEnv(steps_per_episode=4)
    env.reset(seed=1)
    ends = [env.step(np.int64(action))[2:4] for action in range(300, 304)]
    assert ends == [(False, False)] * 3 + [(False, True)]
    env = WildfireEnv(steps_per_episode=31)
    env.reset(seed=1)
    assert [env.step(np.int64(action))[2:4] for action in range(300, 331)][-1] == (True, False)


def test_blocks_of_cells() -> None:
    env = WildfireEnv(grid_size=24, block_size=3, budget_percent=5)  # 28 cells: 3 blocks of 9
    _, info = env.reset(seed=2)
    assert env.action_space.n == 64 and info["action_mask"].shape == (64,)
    observation, *_ = env.step(np.int64(10))  # block row 1, block column 2
    inside = np.zeros((24, 24), np.bool_)
    inside[3:6, 6:9] = True
    assert ((observation[-1] > 0) == (inside & env.landscape.burnable)).all()
    with pytest.raises(SettingsError, match="block_size: got 7, expected a divisor of grid_size 24"):
        WildfireEnv(grid_size=24, block_size=7)


@pytest.mark.parametrize("kind", ["forest", "grassland", "mixed"])
def test_breaks_matter(kind: str) -> None:
    """Fires do not burn everything, and 5 % of well-placed breaks save a good part of the burned area."""
    model, generator = SurfaceFire(), np.random.default_rng(0)
    shares, saved = [], []
    for seed in range(6):
        landscape = generate_landscape(kind, "medium", 25, seed)
        plan, test = draw_fires(landscape, generator, 40), draw_fires(landscape, generator, 60)
        cells = centrality_breaks(landscape, 31, plan, model, 120)
        before = burned_hectares(landscape, [], test, model, 120).mean()
        shares.append(before / (625 * 0.09))
        saved.append(1 - burned_hectares(landscape, cells, test, model, 120).mean() / before)
    assert 0.01 < np.mean(shares) < 0.3
    assert np.mean(saved) > 0.2


def test_landscapes_are_spread_over_environments_and_episodes() -> None:
    grounds = [even_ground(6, fuel) for fuel in (101, 102, 104)]
    env = WildfireEnv(landscapes=grounds, budget_percent=3)
    met = []
    for seed in (4, None, None, None):
        env.reset(seed=seed)
        met.append(grounds.index(env.landscape))
    assert met == [1, 2, 0, 1]
    env.reset(options={"landscape": 2})
    assert env.landscape is grounds[2]  # shared, not copied
    with pytest.raises(SettingsError, match="landscape is 3, expected 0 to 2"):
        env.reset(options={"landscape": 3})
    with pytest.raises(SettingsError, match=r"shapes \[\(6, 6\), \(7, 7\)\]"):
        WildfireEnv(landscapes=[even_ground(6, 101), even_ground(7, 101)])


def test_a_new_landscape_for_each_episode_by_default() -> None:
    env = WildfireEnv()
    names = []
    for seed in (5, None, None, 5):
        env.reset(seed=seed)
        names.append(env.landscape.name)
    assert len(set(names)) == 3 and names[0] == names[3]


def test_settings_are_checked() -> None:
    with pytest.raises(SettingsError, match="gridsize: there is no such setting; did you mean grid_size"):
        gymnasium.make("envfleet/Wildfire-v0", gridsize=5)
    with pytest.raises(SettingsError, match="fire_risk: got"):
        WildfireEnv(fire_risk="huge")
    with pytest.raises(ProtocolError, match="no episode has begun"):
        WildfireEnv().step(np.int64(0))


def test_state_comes_back_in_the_middle_of_an_episode() -> None:
    env, other = WildfireEnv(memory_simulations=3), WildfireEnv(memory_simulations=3)
    env.reset(seed=8)
    for action in (40, 41, 300):
        env.step(np.int64(action))
    state = env.get_state()
    assert is_plain(state)
    expected = [env.step(np.int64(action)) for action in range(200, 228)], env.reset()
    other.set_state(state)
    received = [other.step(np.int64(action)) for action in range(200, 228)], other.reset()
    assert same(expected, received)
    with pytest.raises(StateError, match="same settings and landscapes"):
        WildfireEnv(grid_size=20).set_state(state)


def burns_in_its_row(
    landscape: Landscape, fires: Sequence[Fire], breaks: NDArray[np.bool_], minutes: float
) -> NDArray[np.float64]:
    """A user's fire model: fire runs east along its row, up to a break."""
    arrival = np.full((len(fires), *landscape.shape), np.inf)
    for fire, times in zip(fires, arrival, strict=True):
        row, column = divmod(fire.ignition, landscape.shape[1])
        stop = np.flatnonzero(breaks[row, column:])
        end = column + stop[0] if stop.size else landscape.shape[1]
        times[row, column:end] = np.arange(end - column)
    return arrival


def test_a_fire_model_of_ones_own() -> None:
    weights = np.zeros((6, 6))
    weights[2, 1] = 1
    ground = Landscape(even_ground(6, 102).layers, ignition_weights=weights)
    env = WildfireEnv(landscapes=[ground], fire_model=burns_in_its_row, budget_percent=10)
    _, info = env.reset(seed=0)
    assert info["burned_hectares"] == pytest.approx(5 * 0.09)
    _, reward, *_ = env.step(np.int64(2 * 6 + 3))
    assert reward == pytest.approx(100 * 3 / 36)
    assert env.burn_probability()[2].tolist() == [0, 1, 1, 0, 0, 0]
    wrong = WildfireEnv(landscapes=[ground], fire_model=lambda *_: np.zeros((6, 6)))
    with pytest.raises(SettingsError, match=r"returned an array of shape \(6, 6\), expected \(2, 6, 6\)"):
        wrong.reset(seed=0)


def test_a_picture_shows_the_breaks() -> None:
    env = WildfireEnv(render_mode="rgb_array")
    _, info = env.reset(seed=3)
    generator_before = env.np_random.bit_generator.state
    before = env.render()
    action = int(np.flatnonzero(info["action_mask"])[100])
    env.step(np.int64(action))
    after = env.render()
    assert before is not None and after is not None
    assert after.shape == (325, 3 * 325 + 16, 3) and after.dtype == np.uint8
    row, column = divmod(action, 25)
    for panel in range(3):
        left = panel * (325 + 8) + column * 13
        assert (after[row * 13 : (row + 1) * 13, left : left + 13] == 13).all()
        assert (before[row * 13 : (row + 1) * 13, left : left + 13] > 13).any()
    assert env.np_random.bit_generator.state == generator_before
    with pytest.raises(SettingsError, match="render_mode is 'human'"):
        WildfireEnv(render_mode="human")


def rollout(fleet: envfleet.Fleet, steps: int) -> list[Any]:
    generator = np.random.default_rng(0)
    return [fleet.step(generator.integers(0, 144, fleet.num_envs)) for _ in range(steps)]


def test_the_same_bytes_in_the_caller_in_threads_and_in_processes() -> None:
    settings: dict[str, Any] = {
        "env_kwargs": {"grid_size": 12, "landscape_type": "any", "num_landscapes": 3},
        "seed": 5,
    }
    results = []
    for backend in ("sequential", "threads", "processes"):
        fleet = envfleet.make("envfleet/Wildfire-v0", 4, backend=backend, group_size=2, workers=2, **settings)
        results.append((fleet.reset(), rollout(fleet, 20)))
        fleet.close()
    assert same(results[0], results[1])
    assert same(results[0], results[2])
    rewards = np.array([step[1] for step in results[0][1]])
    assert (rewards > 0).sum() > 5


def test_a_fleet_goes_on_from_its_state_on_another_backend() -> None:
    settings: dict[str, Any] = {"env_kwargs": {"grid_size": 12}, "seed": 5, "group_size": 2}
    one = envfleet.make("envfleet/Wildfire-v0", 4, backend="processes", workers=2, **settings)
    one.reset()
    rollout(one, 10)
    saved = one.state()
    assert is_plain(saved)
    expected = rollout(one, 20)
    one.close()
    other = envfleet.make("envfleet/Wildfire-v0", 4, backend="threads", workers=2, **settings)
    other.restore(saved)
    received = rollout(other, 20)
    other.close()
    assert same(expected, received)
