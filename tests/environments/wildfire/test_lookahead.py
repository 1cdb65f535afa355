"""Fires to plan with: spread again only near new breaks, with the same result as spreading all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envfleet.environments.wildfire import Fire, SurfaceFire, Weather, WildfireEnv, draw_fires, generate_landscape
from envfleet.environments.wildfire.baselines import breaks_from, greedy_breaks, search_breaks
from envfleet.environments.wildfire.centrality import path_centrality
from envfleet.environments.wildfire.lookahead import Lookahead
from tests.environments.wildfire.grounds import even_ground
from tests.environments.wildfire.test_environment import burns_in_its_row

LANDSCAPE = generate_landscape("mixed", "medium", 25, 8)
FIRES = draw_fires(LANDSCAPE, np.random.default_rng(2), 8)


def looked(model: Any = None) -> Lookahead:
    return Lookahead(LANDSCAPE, FIRES, model or SurfaceFire(), 120)


@pytest.mark.parametrize("model", [None, burns_in_its_row])
def test_breaks_one_by_one_as_if_everything_were_spread_again(model: Any) -> None:
    ahead, cells = looked(model), list(range(12, 625, 25))  # a column
    ahead.counts()  # from here on they are kept up to date
    for number in range(1, len(cells) + 1):
        ahead.place(breaks_from(LANDSCAPE, cells[:number]))
    arrival = (model or SurfaceFire())(LANDSCAPE, FIRES, breaks_from(LANDSCAPE, cells), 120)
    np.testing.assert_array_equal(ahead.arrival, arrival)
    np.testing.assert_array_equal(ahead.burned_cells, np.isfinite(arrival).sum(axis=(1, 2)))
    burns, paths = ahead.counts()
    np.testing.assert_array_equal(burns, np.isfinite(arrival).sum(axis=0))
    np.testing.assert_array_equal(paths, path_centrality(arrival, np.array([fire.ignition for fire in FIRES])))
    assert (arrival != looked(model).arrival).any()


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("model", [None, burns_in_its_row])
def test_saved_cells_as_if_everything_were_spread_again(model: Any, width: int) -> None:
    ahead, breaks = looked(model), breaks_from(LANDSCAPE, [260, 261])
    ahead.place(breaks)
    candidates = np.arange(0, 620, 7)[:, None] + np.arange(width)
    received = ahead.saved(candidates)
    for cells, saved in zip(candidates, received, strict=True):
        more = breaks.copy()
        more.ravel()[cells] = True
        after = np.isfinite((model or SurfaceFire())(LANDSCAPE, FIRES, more, 120)).sum(axis=(1, 2))
        counted = [fire.ignition not in cells for fire in FIRES]
        assert saved == (ahead.burned_cells - after)[counted].sum()
    assert len(np.unique(received)) > 3


def test_what_is_remembered_is_what_a_new_simulation_finds() -> None:
    ahead, generator, chosen = looked(), np.random.default_rng(3), []
    for _ in range(12):
        chosen.append(int(generator.choice(np.flatnonzero(ahead.burned()))))
        ahead.place(breaks_from(LANDSCAPE, chosen))
        some = generator.choice(625, 150, replace=False)[:, None]  # in any order, and others each time
        new = looked()
        new.place(breaks_from(LANDSCAPE, chosen))
        np.testing.assert_array_equal(ahead.saved(some), new.saved(some))
        pairs = np.concatenate([some, (some + 1) % 625], axis=1)
        np.testing.assert_array_equal(ahead.saved(pairs), new.saved(pairs))
    assert np.count_nonzero(ahead._known >= 0) > 1000


def test_a_result_is_not_remembered_if_the_fire_reaches_other_cells() -> None:
    """Hide a burned cell, so that a fire seems to reach a cell that it does not burn without the candidate."""
    ahead, cells = looked(), np.arange(625)[:, None]
    saved = ahead.saved(cells)
    candidate = int(ahead._known[:, 0].argmax())
    assert ahead._known[candidate, 0] > 0
    ahead.arrival[0].ravel()[FIRES[0].ignition] = np.inf
    ahead.forget()
    np.testing.assert_array_equal(ahead.saved(cells)[candidate], saved[candidate])
    assert ahead._known[candidate, 0] == -1


def test_greedy_without_memory_places_the_same_breaks() -> None:
    given = LANDSCAPE, 8, FIRES, SurfaceFire(), 120.0
    np.testing.assert_array_equal(greedy_breaks(*given, remember=False), greedy_breaks(*given))


def test_a_break_at_an_ignition_saves_nothing_of_its_own_fire() -> None:
    ground, middle = even_ground(9, 102), 40
    ahead = Lookahead(ground, [Fire(middle, Weather(wind_kmh=0))], SurfaceFire(), 1e9)
    assert ahead.saved(np.array([[middle]])).tolist() == [0]
    assert ahead.saved(np.array([[0]])).tolist() == [1]  # a corner leads nowhere: only itself is saved
    assert ahead.counts()[1][4, 4] == 0


def test_a_search_over_all_cells_saves_as_much_as_greedy() -> None:
    given = LANDSCAPE, 1, FIRES, SurfaceFire(), 120.0
    found = [greedy_breaks(*given), search_breaks(*given, candidates=625), search_breaks(*given, candidates=1)]
    greedy, all_cells, one_cell = looked().saved(np.array(found))
    assert greedy == all_cells > one_cell
    assert found[2] == looked().counts()[1].argmax()


# ---- in the environment


def test_fire_channels_show_the_planning_fires_around_the_breaks() -> None:
    env = WildfireEnv(grid_size=12, fire_channels=True, planning_simulations=9)
    plain = WildfireEnv(grid_size=12)
    seen, _ = env.reset(seed=3)
    layers, info = plain.reset(seed=3)
    assert seen.shape == env.observation_space.shape == (11, 12, 12)
    np.testing.assert_array_equal(seen[:9], layers)
    for action in info["action_mask"].nonzero()[0][20:24]:
        seen, reward, *_ = env.step(action)
        assert reward == plain.step(action)[1]  # planning does not touch the fires of the reward
    assert env.observation_space.contains(seen)
    ahead = Lookahead(env.landscape, env.planning_fires, SurfaceFire(), 120)
    ahead.place(env.breaks)
    burns, paths = ahead.counts()
    np.testing.assert_allclose(seen[9], np.minimum(1, burns / 9 * 144 / 512), rtol=1e-6)
    np.testing.assert_allclose(seen[10], np.minimum(1, np.sqrt(paths / 9 * 144 / 10_000)), rtol=1e-6)
    assert seen[9].any() and not seen[9:, env.breaks].any()


def test_planning_fires_are_new_in_every_episode_and_never_those_of_the_reward() -> None:
    env = WildfireEnv(grid_size=12, num_landscapes=1, memory_simulations=64)
    drawn = []
    for _ in range(2):
        env.reset(seed=1 if not drawn else None)
        drawn += [env.planning_fires, tuple(env._fires)]
    starts = [tuple(fire.ignition for fire in fires) for fires in drawn]
    assert len(set(starts)) == 4 and all(len(each) == 64 for each in starts)


def test_a_restored_episode_has_the_same_fire_channels() -> None:
    settings: dict[str, Any] = {"grid_size": 12, "fire_channels": True, "planning_simulations": 5}
    env, other = WildfireEnv(**settings), WildfireEnv(**settings)
    _, info = env.reset(seed=3)
    allowed = info["action_mask"].nonzero()[0]
    env.step(allowed[30])
    other.reset(seed=9)
    other.set_state(env.get_state())
    assert other.planning_fires == env.planning_fires
    np.testing.assert_array_equal(other.step(allowed[40])[0], env.step(allowed[40])[0])


@pytest.mark.parametrize("block_size", [1, 3])
def test_simulated_gains_are_the_rewards_of_the_planning_fires(block_size: int) -> None:
    env = WildfireEnv(grid_size=12, block_size=block_size, planning_simulations=6)
    _, info = env.reset(seed=3)
    actions = info["action_mask"].nonzero()[0]
    before = env.get_state()
    gains = env.simulated_gains(actions)
    assert repr(env.get_state()) == repr(before)
    ahead = Lookahead(env.landscape, env.planning_fires, SurfaceFire(), 120)
    for action, gain in zip(actions, gains, strict=True):
        env.set_state(before)
        env.step(action)
        counted = [not env.breaks.ravel()[fire.ignition] for fire in ahead.fires]
        after = Lookahead(env.landscape, env.planning_fires, SurfaceFire(), 120)
        after.place(env.breaks)
        saved = (ahead.burned_cells - after.burned_cells)[counted].sum()
        assert gain == pytest.approx(100 * saved / 6 / 144)
    assert gains.max() > 0
