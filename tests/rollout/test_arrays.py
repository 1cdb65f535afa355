"""Every row of a rollout is written and holds what the environment and the policy gave, with both ways of acting."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from envfleet.errors import EnvError, SettingsError
from envfleet.policies.settings import PolicySettings
from envfleet.rollout.arrays import Column, Rollout, RolloutShape
from tests.rollout.collecting import ENVS, PIECE, SEED, STEPS, collecting, is_written, kept
from tests.rollout.envs import (
    Counter,
    GivenMask,
    LateMaskedCounter,
    MaskedCounter,
    NestedCounter,
    Page,
    diary,
    mask_of,
)

Array = np.ndarray[Any, Any]
BOTH_WAYS = pytest.mark.parametrize("acting", ["worker", "central"])
MEMORIES = pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
KINDS = pytest.mark.parametrize("kind", [Counter, NestedCounter, MaskedCounter])
ROLLOUTS = 3


def pages_of(number: int) -> list[list[Page]]:
    """Return pages [env][time] of rollout `number`, plus one step for the last observation."""
    first = number * STEPS
    return [diary(SEED + env, first + STEPS + 1)[first:] for env in range(ENVS)]


def table(pages: list[list[Page]], what: str) -> Array:
    """Return one attribute as [time, env], without the extra step."""
    return np.array([[getattr(page, what) for page in own[:STEPS]] for own in pages]).swapaxes(0, 1)


@BOTH_WAYS
@MEMORIES
@KINDS
def test_every_row_that_must_be_written_is_written(acting: str, memory: str, kind: type[Counter]) -> None:
    with collecting(kind, acting=acting, memory=memory) as rig:
        for number in range(ROLLOUTS):
            rig.poison()
            rollout = rig.collect(number)
            for name in ("rewards", "terminated", "truncated", "valid", "memory", "seconds"):
                assert is_written(getattr(rollout, name)).all(), name
            for name, array in (rollout.observations | rollout.columns).items():
                assert is_written(array).all(), name
            ended = rollout.ended
            assert is_written(rollout.episode_returns[ended]).all()
            assert is_written(rollout.episode_lengths[ended]).all()
            assert rollout.masks is None or is_written(rig.collector.arrays["forbidden"]).all()
            assert (rollout.masks is not None) == (kind is MaskedCounter)
            _, env, k = rollout.final_rows()
            assert len(k)
            for array in (*rollout.finals.values(), rollout.final_memory):
                assert is_written(array[k, env]).all()


@BOTH_WAYS
@pytest.mark.parametrize("buffers", [1, 2])
def test_rows_are_what_the_environments_gave(acting: str, buffers: int) -> None:
    with collecting(Counter, acting=acting, buffers=buffers) as rig:
        for number in range(ROLLOUTS):
            rig.poison()
            rollout, pages = rig.collect(number), pages_of(number)
            seen = np.array([[page.observation for page in own] for own in pages]).swapaxes(0, 1)
            assert np.array_equal(rollout.observations[""], seen)  # including the last observation
            for what in ("terminated", "truncated"):
                assert np.array_equal(getattr(rollout, what), table(pages, what))
            assert np.array_equal(rollout.rewards, table(pages, "reward"))
            assert rollout.valid.all()
            assert rollout.steps == STEPS * ENVS


@BOTH_WAYS
def test_a_truncated_episode_keeps_the_observation_it_ended_with(acting: str) -> None:
    with collecting(Counter, acting=acting) as rig:
        for number in range(ROLLOUTS):
            rig.poison()
            rollout, pages = rig.collect(number), pages_of(number)
            time, env, k = rollout.final_rows()
            assert np.array_equal(np.stack([time, env]), np.nonzero(table(pages, "truncated")))
            assert len(np.unique(np.stack([k, env]), axis=1).T) == len(k)  # no two share a slot
            assert np.array_equal(rollout.finals[""][k, env], table(pages, "final")[time, env])


@BOTH_WAYS
def test_nested_observations_are_stored_leaf_by_leaf(acting: str) -> None:
    with collecting(NestedCounter, acting=acting) as rig:
        rollout, pages = rig.collect(0), pages_of(0)
        seen = np.array([[page.observation for page in own] for own in pages]).swapaxes(0, 1)
        assert rollout.observations.keys() == {"place/0", "place/1", "bits"}
        assert np.array_equal(rollout.observations["place/0"], seen[..., 0])
        assert np.array_equal(rollout.observations["place/1"], seen[..., 1:2])
        assert np.array_equal(rollout.observations["bits"], seen[..., 2:] >> np.arange(4) & 1)
        time, env, k = rollout.final_rows()
        final = table(pages, "final")[time, env]
        assert np.array_equal(rollout.finals["place/1"][k, env], final[:, 1:2])
        assert np.array_equal(rollout.finals["bits"][k, env], final[:, 2:] >> np.arange(4) & 1)


@BOTH_WAYS
def test_returns_and_lengths_are_those_of_whole_episodes(acting: str) -> None:
    with collecting(Counter, acting=acting) as rig:
        found: list[tuple[float, int]] = []
        for number in range(ROLLOUTS):
            rig.poison()
            returns, lengths = rig.collect(number).episodes()
            found += zip(returns.tolist(), lengths.tolist(), strict=True)
    expected = []
    for env in range(ENVS):
        total, length = 0.0, 0
        for page in diary(SEED + env, ROLLOUTS * STEPS):
            total, length = total + page.reward, length + 1
            if page.terminated or page.truncated:
                expected.append((total, length))
                total, length = 0.0, 0
    assert sorted(found) == sorted(expected)


@BOTH_WAYS
def test_masks_are_those_of_each_step(acting: str) -> None:
    with collecting(MaskedCounter, acting=acting) as rig:
        for number in range(ROLLOUTS):
            rig.poison()
            rollout, pages = rig.collect(number), pages_of(number)
            expected = [[mask_of(*page.observation, MaskedCounter.mask_size) for page in own] for own in pages]
            assert rollout.masks is not None
            assert np.array_equal(rollout.masks, np.array(expected).swapaxes(0, 1))
            chosen = rollout.columns["actions"][..., None]
            assert np.take_along_axis(rollout.masks[:-1], chosen, 2).all()
            time, env, k = rollout.final_rows()
            ends = table(pages, "final")[time, env]
            assert rollout.final_masks is not None and len(k)
            assert np.array_equal(rollout.final_masks[k, env], [mask_of(*end, MaskedCounter.mask_size) for end in ends])


@BOTH_WAYS
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("mask", [[1], np.array([1, 0, 1], np.int8)], ids=["one", "three"])
def test_a_mask_of_another_size_is_an_error_of_its_environment(acting: str, at_end: bool, mask: Any) -> None:
    said = rf"info\['action_mask'\] has {len(mask)} entries, expected 2: one per action \(environment 0, during"
    with pytest.raises(EnvError, match=said), collecting(partial(GivenMask, mask, at_end=at_end), acting=acting) as rig:
        rig.collect(0)


@BOTH_WAYS
def test_a_tuple_of_numbers_is_one_mask(acting: str) -> None:
    with collecting(partial(GivenMask, (0, 1)), acting=acting) as rig:
        assert (rig.collect(0).columns["actions"] == 1).all()


@BOTH_WAYS
def test_a_step_that_says_nothing_of_masks_allows_everything(acting: str) -> None:
    with collecting(LateMaskedCounter, acting=acting) as rig:
        for number in range(2):
            rollout, pages = rig.collect(number), pages_of(number)
            assert rollout.masks is not None
            second = np.array([[page.observation[2] == 1 for page in own] for own in pages]).swapaxes(0, 1)
            assert (rollout.masks[second] == [False, False, False, True]).all()
            _, env, k = rollout.final_rows()
            assert rollout.final_masks is not None and rollout.final_masks[k, env].all()
            assert rollout.masks[~second].all()  # also before the first mask
            assert (rollout.columns["actions"][second[:-1]] == 3).all()
            assert len(np.unique(rollout.columns["actions"][~second[:-1]])) > 1


@BOTH_WAYS
@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_memory_is_zero_exactly_where_episodes_begin(acting: str, memory: str) -> None:
    with collecting(Counter, acting=acting, memory=memory) as rig:
        for number in range(ROLLOUTS):
            rollout, pages = rig.collect(number), pages_of(number)
            begins = np.array([[page.observation[2] == 0 for page in own] for own in pages]).swapaxes(0, 1)
            assert np.array_equal((rollout.memory == 0).all(axis=2), begins[::PIECE])
            assert np.array_equal(rollout.starts[1:], begins[1:STEPS])
            assert not rollout.starts[0].any()


@BOTH_WAYS
@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_memory_is_carried_from_step_to_step_and_from_rollout_to_rollout(acting: str, memory: str) -> None:
    """Replayed by hand from zero, one step at a time, with the memory zeroed only where an episode begins."""
    with collecting(Counter, acting=acting, memory=memory) as rig, torch.no_grad():
        held = rig.policy.initial_memory(ENVS)
        for number in range(ROLLOUTS):
            rollout = rig.collect(number)
            finals = iter(zip(*rollout.final_rows(), strict=True))
            following = next(finals, None)
            for t in range(STEPS):
                if t % PIECE == 0:
                    np.testing.assert_allclose(rollout.memory[t // PIECE], held, atol=1e-6)
                observations = {name: torch.from_numpy(array[t]) for name, array in rollout.observations.items()}
                _, held = rig.policy.best_actions(observations, held)
                while following is not None and following[0] == t:
                    _, env, k = following
                    np.testing.assert_allclose(rollout.final_memory[k, env], held[env], atol=1e-6)
                    following = next(finals, None)
                held = held.masked_fill(torch.from_numpy(rollout.ended[t])[:, None], 0.0)
            np.testing.assert_allclose(rollout.memory[-1], held, atol=1e-6)


@BOTH_WAYS
@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("kind", [Counter, NestedCounter, MaskedCounter])
def test_both_ways_of_acting_give_the_same_bytes(acting: str, memory: str, kind: type[Counter]) -> None:
    """The reference is the policy in the only worker of a sequential fleet."""
    other = {"backend": "threads", "workers": 2}
    with (
        collecting(kind, acting="worker", memory=memory) as one,
        collecting(kind, acting=acting, memory=memory, **other) as two,
    ):
        for number in range(2):
            first, second = kept(one.collect(number)), kept(two.collect(number))
            assert first.keys() == second.keys()
            for name, array in first.items():
                assert array.tobytes() == second[name].tobytes(), name


def test_two_buffers_keep_the_rollout_before() -> None:
    with collecting(Counter, acting="worker", buffers=2) as rig:
        first = rig.collect(0)
        before = kept(first)
        rig.collect(1)
        after = kept(first)
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_an_observation_without_a_fixed_size_is_refused() -> None:
    with pytest.raises(SettingsError, match="no fixed size"):
        RolloutShape(8, 4, 1, spaces.Dict({"note": spaces.Text(5)}), {}, 0, 0, 8, 0, 1)


def test_the_memory_that_is_asked_for_leaves_out_what_is_rarely_written() -> None:
    shape = RolloutShape(10, 4, 1, spaces.Box(0, 1, (5,), np.float32), {"actions": Column((), "<i8")}, 0, 0, 10, 7, 2)
    observations, actions = 2 * 11 * 4 * 5 * 4, 2 * 10 * 4 * 8
    rewards, flags, weights, progress, seconds, masked = 2 * 10 * 4 * 4, 3 * 2 * 10 * 4, 7 * 4, 8, 2 * 2 * 8, 8
    assert shape.learned_bytes == observations + actions + rewards + flags + weights + progress + seconds + masked


def test_a_rollout_that_lags_records_no_values() -> None:
    settings = PolicySettings(shared=True)
    with collecting(Counter, acting="worker", settings=settings, record_values=False) as rig:
        assert "values" not in rig.collect(0).columns
    with collecting(Counter, acting="worker", settings=settings) as rig:
        rollout: Rollout = rig.collect(0)
        observations = {"": torch.from_numpy(rollout.observations[""][:-1].reshape(-1, 3))}
        with torch.no_grad():
            values = rig.policy.values(observations).reshape(STEPS, ENVS)
        np.testing.assert_allclose(rollout.columns["values"], values, atol=1e-5)
