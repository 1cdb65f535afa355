"""Frame stacks are stored as single frames and drawn exactly as they were written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from envfleet.errors import SettingsError
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Replay
from envfleet.rollout.replay_spec import ReplaySpec
from tests.rollout.made import rollout_of, transitions_at
from tests.rollout.test_replay import bytes_of

Array = np.ndarray[Any, Any]
ENVS, GAMMA = 3, 0.9
FRAME = (7, 6)  # differs from any number of frames, so that the stack axis is clear


class StackedWorld:
    """Rollouts of stacks of random frames, as a wrapper makes them; episodes end and steps are lost at random."""

    def __init__(self, seed: int, frames: int, *, last: bool, padding: str) -> None:
        self._generator = np.random.default_rng(seed)
        self._frames, self._last, self._padding = frames, last, padding
        self._stacks = [self._reset() for _ in range(ENVS)]
        shape = (*FRAME, frames) if last else (frames, *FRAME)
        self.space = spaces.Box(0, 255, shape, np.uint8)

    def _frame(self) -> Array:
        return self._generator.integers(0, 2, dtype=np.uint8) * np.ones(FRAME, np.uint8)  # often equal by chance

    def _reset(self) -> list[Array]:
        first = self._frame()
        older = {"reset": first, "zero": np.zeros_like(first), "noise": self._frame()}[self._padding]
        return [older] * (self._frames - 1) + [first]

    def _seen(self) -> Array:
        return np.stack([np.stack(stack, axis=-1 if self._last else 0) for stack in self._stacks])

    def rollout(self, steps: int) -> Rollout:
        draw = self._generator.random
        terminated, truncated = draw((steps, ENVS)) < 0.1, draw((steps, ENVS)) < 0.1
        valid = draw((steps, ENVS)) > 0.05
        truncated |= ~valid
        terminated &= valid
        observations, finals = [self._seen()], np.zeros((steps, ENVS, *self.space.shape), np.uint8)
        counts = [0] * ENVS
        for t in range(steps):
            self._stacks = [[*stack[1:], self._frame()] for stack in self._stacks]
            ended_with = self._seen()
            for env in np.flatnonzero(terminated[t] | truncated[t]).tolist():
                if valid[t, env] and not terminated[t, env]:
                    finals[counts[env], env] = ended_with[env]
                    counts[env] += 1
                self._stacks[env] = self._reset()
            observations.append(self._seen())
        actions = self._generator.integers(4, size=(steps, ENVS))
        flags = {"terminated": terminated, "truncated": truncated, "valid": valid}
        return rollout_of(np.stack(observations), finals, actions, rewards=draw((steps, ENVS), np.float32), **flags)


def replay_of(space: spaces.Space[Any], capacity: int, frames: int = 1) -> Replay:
    return Replay(ReplaySpec(space, ((), np.int64), capacity=capacity, n_envs=ENVS, frame_stack=frames))


def all_entries(replay: Replay) -> Array:
    """Return every stored step, oldest first."""
    first = (replay.head - replay.filled) * ENVS
    entries = (first + np.arange(len(replay))) % (replay.rows * ENVS)
    return entries[replay.happened(entries)]


def assert_same(single: Replay, whole: Replay) -> None:
    """Everything that can be drawn is bit-identical."""
    ours, theirs = all_entries(single), all_entries(whole)
    assert len(ours) == len(theirs) and (single.filled, len(single)) == (whole.filled, len(whole))
    assert np.count_nonzero(single.happened(np.arange(single.rows * ENVS))) == len(ours)  # nothing else can be drawn
    for steps in (1, 3):
        if not len(ours):
            continue
        one, other = (
            transitions_at(replay, at, steps=steps, gamma=GAMMA) for replay, at in ((single, ours), (whole, theirs))
        )
        for name in ("actions", "returns", "discounts"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        assert np.array_equal(one.observations[""], other.observations[""])
        follows = other.discounts > 0.0
        assert np.array_equal(one.following[""][follows], other.following[""][follows])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    frames=st.integers(2, 5),
    last=st.booleans(),
    padding=st.sampled_from(["reset", "zero", "noise"]),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=7),
    capacity=st.integers(6, 60),
)
def test_what_is_drawn_is_what_plain_storage_gives(
    seed: int, frames: int, last: bool, padding: str, lengths: list[int], capacity: int
) -> None:
    world = StackedWorld(seed, frames, last=last, padding=padding)
    single, whole = replay_of(world.space, capacity, frames), replay_of(world.space, capacity)
    for length in lengths:
        rollout = world.rollout(length)
        single.add(rollout)
        whole.add(rollout)
        assert_same(single, whole)


@pytest.mark.parametrize("rollouts", [1, 3, 9])
def test_pieces_put_it_back_as_it_was(rollouts: int) -> None:
    """A checkpoint keeps the rows to draw and the earlier rows whose frames they need."""
    world = StackedWorld(4, 4, last=True, padding="reset")
    single, whole = replay_of(world.space, 45, 4), replay_of(world.space, 45)
    pieces = []
    for _ in range(rollouts):
        rollout = world.rollout(5)
        single.add(rollout)
        whole.add(rollout)
        pieces.append(single.rows_since(5))
    pieces = pieces[-(single.held // 5 + 1) :]
    other = replay_of(world.space, 45, 4)
    other.head = (single.head - 5 * len(pieces)) % single.rows
    for piece in pieces:
        other.put_rows(piece)
    assert (other.head, other.filled) == (single.head, single.filled)
    assert_same(other, whole)
    rollout = world.rollout(7)
    other.add(rollout)
    whole.add(rollout)
    assert_same(other, whole)


def test_a_frame_is_stored_once_and_in_its_type() -> None:
    """The replay's arrays together have the planned size, a quarter of the size of whole stacks."""
    stacks = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    single = Replay(ReplaySpec(stacks, ((), np.int64), capacity=1_000, n_envs=4, frame_stack=4))
    whole = Replay(ReplaySpec(stacks, ((), np.int64), capacity=1_000, n_envs=4))
    for replay in (single, whole):  # plus room for eight stacks in each `Aside`
        assert replay.spec.bytes <= bytes_of(replay) <= replay.spec.bytes + 2 * 8 * 4 * 84 * 84
    assert bytes_of(single) < 0.29 * bytes_of(whole) and single.spec.bytes < 0.27 * whole.spec.bytes
    assert "stacks of 4 as single frames" in single.spec.text
    world = StackedWorld(1, 4, last=False, padding="reset")
    small = replay_of(world.space, 60, 4)
    small.add(world.rollout(20))
    taken = transitions_at(small, all_entries(small), steps=1, gamma=GAMMA)
    assert taken.observations[""].dtype == taken.following[""].dtype == np.uint8


def test_what_is_no_stack_is_refused() -> None:
    world = StackedWorld(0, 4, last=False, padding="reset")
    rollout = world.rollout(20)
    rollout.observations[""][:] = np.random.default_rng(0).integers(0, 255, rollout.observations[""].shape)
    with pytest.raises(SettingsError, match="no stack of the last 4 frames"):
        replay_of(world.space, 60, 4).add(rollout)


def test_a_shape_that_can_be_no_stack_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"no part of the observation can be a stack of 4 frames: \(7,\)"):
        replay_of(spaces.Box(-1.0, 1.0, (7,), np.float32), 60, 4)


def test_of_several_parts_those_as_deep_as_the_stack_are_frames() -> None:
    space = spaces.Dict(
        {
            "tiles": spaces.Box(0, 255, (18, 20), np.uint8),
            "pixels": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "features": spaces.Box(-1.0, 1.0, (6,), np.float32),
        }
    )
    whole, single = (ReplaySpec(space, ((), np.int64), capacity=1_000, n_envs=1, frame_stack=k) for k in (1, 3))
    assert whole.bytes - single.bytes == pytest.approx(1_000 * 8 * 8 * 2, rel=0.1)
