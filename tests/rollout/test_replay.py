"""The replay returns the stored steps; n-step returns match the definition; nothing leaks across episodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from envfleet.errors import ResourceError
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Replay
from envfleet.rollout.replay_spec import ReplaySpec
from envfleet.rollout.sum_tree import SumTree
from tests.rollout.made import rollout_of, transitions_at

Array = np.ndarray[Any, Any]
ENVS = 3
SPACE = spaces.Box(-np.inf, np.inf, (2,), np.float64)
GAMMA = 0.9


class World:
    """Rollouts whose observations are (environment, time); also keeps all rewards and flags."""

    def __init__(self, seed: int, *, masked: bool = False, choices: int = 10**9) -> None:
        self._generator = np.random.default_rng(seed)
        self._masked, self._choices = masked, choices
        self.time = 0
        self.rewards: list[Array] = []
        self.terminated: list[Array] = []
        self.truncated: list[Array] = []
        self.valid: list[Array] = []

    def rollout(self, steps: int) -> Rollout:
        draw = self._generator.random
        terminated, truncated = draw((steps, ENVS)) < 0.15, draw((steps, ENVS)) < 0.15
        valid = draw((steps, ENVS)) > 0.1
        truncated |= ~valid
        terminated &= valid
        rewards = draw((steps, ENVS), np.float32)
        rewards[~valid] = 0.0
        times = self.time + np.arange(steps + 1)
        observations = np.stack(
            np.broadcast_arrays(np.arange(ENVS, dtype=np.float64), times[:, None].astype(np.float64)), axis=-1
        )
        finals = np.full((steps, ENVS, 2), np.nan)
        kept = truncated & ~terminated & valid
        for env in range(ENVS):
            for k, t in enumerate(np.flatnonzero(kept[:, env])):
                finals[k, env] = (env, -(self.time + t + 1.0))  # a negative time marks a final observation
        for name, rows in (
            ("rewards", rewards),
            ("terminated", terminated),
            ("truncated", truncated),
            ("valid", valid),
        ):
            getattr(self, name).extend(rows)
        masks = draw((steps + 1, ENVS, 4)) < 0.5 if self._masked else None
        self.time += steps
        actions = (times[:-1, None] * 10 + np.arange(ENVS)).astype(np.int64) % self._choices
        flags = {"terminated": terminated, "truncated": truncated, "valid": valid}
        return rollout_of(observations, finals, actions, masks, rewards=rewards, **flags)

    def transition(self, time: int, env: int, steps: int) -> tuple[float, tuple[float, float], float]:
        """Return the n-step return, the observation to bootstrap from and its discount, from the definition."""
        total, factor = 0.0, 1.0
        for k in range(steps):
            t = time + k
            if k and (t >= self.time or not self.valid[t][env]):
                return total, (env, float(t)), factor
            total += factor * float(self.rewards[t][env])
            factor *= GAMMA
            if self.terminated[t][env]:
                return total, (env, float(t + 1)), 0.0
            if self.truncated[t][env]:
                return total, (env, -float(t + 1)), factor
        return total, (env, float(time + steps)), factor


def lost_rollout(world: World) -> Rollout:
    """A rollout of which no step happened."""
    made = world.rollout(4)
    none, every = np.zeros_like(made.valid), np.ones_like(made.valid)
    return replace(made, valid=none, terminated=none, truncated=every, rewards=np.zeros_like(made.rewards))


def replay_of(capacity: int, *, mask_size: int = 0) -> Replay:
    return Replay(ReplaySpec(SPACE, ((), np.int64), capacity=capacity, n_envs=ENVS, mask_size=mask_size))


def bytes_of(thing: Any) -> int:
    """Return the bytes of all arrays that one of our objects holds, directly or through others of ours."""
    if isinstance(thing, np.ndarray):
        return int(thing.nbytes) if thing.base is None else 0
    if isinstance(thing, dict | list | tuple):
        return sum(map(bytes_of, thing.values() if isinstance(thing, dict) else thing))
    ours = type(thing).__module__.startswith("envfleet.rollout")
    return sum(map(bytes_of, vars(thing).values())) if ours else 0


def assert_as_defined(replay: Replay, world: World, steps: int) -> None:
    """Compare every step that is still stored with the definition."""
    entries = np.arange(replay.rows * ENVS)
    entries = entries[replay.happened(entries)]
    taken = transitions_at(replay, entries, steps=steps, gamma=GAMMA)
    assert len(entries)
    for i in range(len(entries)):
        env, time = (int(value) for value in taken.observations[""][i])
        assert taken.actions[i] == time * 10 + env
        total, following, factor = world.transition(time, env, steps)
        assert taken.returns[i] == pytest.approx(total, rel=1e-5)
        assert taken.discounts[i] == pytest.approx(factor, rel=1e-6)
        if factor:
            assert tuple(taken.following[""][i]) == following


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    capacity=st.integers(6, 60),
    steps=st.integers(1, 5),
)
def test_every_transition_is_that_of_the_definition(seed: int, lengths: list[int], capacity: int, steps: int) -> None:
    world, replay = World(seed), replay_of(capacity)
    for length in lengths:
        replay.add(world.rollout(length))
    kept = min(world.time, replay.rows - 1)
    happened = sum(int(valid.sum()) for valid in world.valid[-kept:])
    entries = np.arange(replay.rows * ENVS)
    assert int(replay.happened(entries).sum()) == happened and len(replay) == kept * ENVS
    if happened:
        assert_as_defined(replay, world, steps)


def test_an_even_draw_finds_every_step_that_happened_and_no_other() -> None:
    world, replay = World(1), replay_of(30)
    for _ in range(4):
        replay.add(world.rollout(7))
    drawn = replay.uniform_entries(np.random.default_rng(0), 5_000)
    there = np.flatnonzero(replay.happened(np.arange(replay.rows * ENVS)))
    counts = np.bincount(drawn, minlength=replay.rows * ENVS)[there]
    assert set(drawn.tolist()) == set(there.tolist())
    assert np.abs(counts / counts.mean() - 1.0).max() < 0.35


@pytest.mark.parametrize("put_back", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_masks_are_those_of_where_the_value_is_taken(known: bool, put_back: bool) -> None:
    """At the end of a truncated episode, the mask is that of the final observation, or all actions if it has none."""
    world, replay = World(2, masked=True), replay_of(60, mask_size=4)
    rollout = world.rollout(10)
    assert rollout.masks is not None
    at_ends = np.random.default_rng(1).random((10, ENVS, 4)) < 0.5
    finals = {(time, env): at_ends[k, env] for time, env, k in zip(*rollout.final_rows(), strict=True)}
    assert len(finals) > 1
    replay.add(replace(rollout, final_masks=at_ends) if known else rollout)
    if put_back:
        rows, replay = replay.rows_since(10), replay_of(60, mask_size=4)
        replay.put_rows(rows)
    entries = np.arange(9 * ENVS)
    entries = entries[replay.happened(entries)]
    taken = transitions_at(replay, entries, steps=1, gamma=GAMMA)
    assert taken.masks is not None
    for i, entry in enumerate(entries):
        row, env = divmod(int(entry), ENVS)
        cut = world.truncated[row][env] and not world.terminated[row][env]
        if cut:
            assert np.array_equal(taken.masks[i], finals[row, env] if known else np.ones(4, np.bool_))
        else:
            assert np.array_equal(taken.masks[i], rollout.masks[row + 1, env])


@pytest.mark.parametrize("wrapped", [False, True])
def test_pieces_put_it_back_as_it_was(wrapped: bool) -> None:
    world, replay = World(3), replay_of(30)
    other = replay_of(30)
    pieces = []
    for _ in range(6 if wrapped else 1):
        replay.add(world.rollout(5))
        pieces.append(replay.rows_since(5))
    rows = sum(len(piece["rewards"]) - 1 for piece in pieces)
    other.head = (replay.head - rows) % replay.rows
    for piece in pieces:
        other.put_rows(piece)
    assert (other.head, other.filled) == (replay.head, replay.filled)
    for steps in (1, 3):
        assert_as_defined(other, world, steps)
    entries = replay.uniform_entries(np.random.default_rng(4), 64)
    assert np.array_equal(entries, other.uniform_entries(np.random.default_rng(4), 64))


# ---- memory


def test_one_that_does_not_fit_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(ResourceError, match=r"the replay needs .* GiB for 10,000,000,000,000 steps.*\n.* steps fit"):
        replay_of(10**13)


def test_what_is_taken_beside_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ReplaySpec(SPACE, ((), np.int64), capacity=1_000, n_envs=4)
    monkeypatch.setattr("envfleet.rollout.replay_spec.available_memory", lambda: 2 * spec.bytes)
    spec.refuse_too_large()
    with pytest.raises(ResourceError, match="about 400 steps fit"):
        spec.refuse_too_large(beside=spec.bytes + spec.bytes // 2)


def test_each_observation_is_stored_once_and_in_its_type() -> None:
    """The replay's arrays together have the planned size: one image and 17 bytes per entry."""
    images = spaces.Box(0, 255, (84, 84), np.uint8)
    replay = Replay(ReplaySpec(images, ((), np.int64), capacity=1_000, n_envs=4))
    generator, shape = np.random.default_rng(0), (20, 4)
    seen = generator.integers(0, 255, (21, 4, 84, 84), np.uint8)
    flags = {name: np.zeros(shape, np.bool_) for name in ("terminated", "truncated")}
    kept = rollout_of(
        seen,
        seen[:0],
        np.zeros(shape, np.int64),
        rewards=np.zeros(shape, np.float32),
        valid=~flags["truncated"],
        **flags,
    )
    entries = replay.add(kept)
    assert replay.spec.bytes == 251 * 4 * (84 * 84 + 17)
    assert replay.spec.bytes <= bytes_of(replay) <= 1.02 * replay.spec.bytes  # plus room for eight finals
    taken = transitions_at(replay, entries, steps=1, gamma=GAMMA)
    assert taken.observations[""].dtype == taken.following[""].dtype == np.uint8
    assert np.array_equal(taken.observations[""], seen[:-1].reshape(-1, 84, 84))


@pytest.mark.parametrize("capacity", [1_000, 1_024, 1_020])
def test_priorities_are_planned_as_large_as_they_are(capacity: int) -> None:
    with_tree = ReplaySpec(SPACE, ((), np.int64), capacity=capacity, n_envs=4, prioritised=True)
    without = ReplaySpec(SPACE, ((), np.int64), capacity=capacity, n_envs=4)
    assert with_tree.bytes - without.bytes == bytes_of(SumTree(with_tree.entries))


@pytest.mark.parametrize("steps", [1, 3])
def test_episodes_that_were_cut_do_not_lead_into_those_that_follow(steps: int) -> None:
    before, after, replay = World(1), World(2), replay_of(60)
    after.time = 1000  # makes its observations distinct
    replay.add(before.rollout(6))
    replay.cut()
    replay.add(after.rollout(6))
    again = replay_of(60)
    again.put_rows(replay.rows_since(replay.held))
    newest = 5 * ENVS + np.arange(ENVS)
    goes_on = [env for env in range(ENVS) if before.valid[5][env] and not before.truncated[5][env]]
    assert goes_on
    for each in (replay, again):
        taken = transitions_at(each, newest, steps=steps, gamma=GAMMA)
        for env in goes_on:
            if not before.terminated[5][env]:
                assert taken.following[""][env].tolist() == [env, 6.0]
                assert taken.discounts[env] == pytest.approx(GAMMA)
            assert taken.returns[env] == before.rewards[5][env]


def test_a_cut_episode_keeps_the_mask_of_where_it_led() -> None:
    before, after, replay = World(1, masked=True), World(2, masked=True), replay_of(60, mask_size=4)
    rollout = before.rollout(6)
    assert rollout.masks is not None
    replay.add(rollout)
    replay.cut()
    replay.add(after.rollout(6))  # overwrites the row after the newest steps
    taken = transitions_at(replay, 5 * ENVS + np.arange(ENVS), steps=1, gamma=GAMMA)
    assert taken.masks is not None
    goes_on = [e for e in range(ENVS) if before.valid[5][e] and not before.truncated[5][e] | before.terminated[5][e]]
    assert goes_on
    for env in goes_on:
        assert np.array_equal(taken.masks[env], rollout.masks[6, env])
