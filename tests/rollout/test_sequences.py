"""Drawn sequences equal the recorded history, and every start is drawn with its weight: by brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import lcm
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from envfleet.algorithms.experience import BatchSpec, ReplayedExperience
from envfleet.errors import ResourceError, SettingsError
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Replay
from envfleet.rollout.replay_spec import ReplaySpec
from envfleet.rollout.sequences import WHOLE, Sequences, SequenceSampler, SequenceSpec, joined_sequences
from tests.rollout.made import rollout_of

Array = np.ndarray[Any, Any]
ENVS, GAMMA, ACTIONS = 2, 0.9, 3
SPACE = spaces.Box(-np.inf, np.inf, (3,), np.float64)


@dataclass
class Step:
    seen: tuple[float, float, float]  # environment, time, how often episodes were cut before
    action: int
    reward: float
    allowed: Array
    terminated: bool
    truncated: bool
    valid: bool
    after: tuple[float, float, float] = (0.0, 0.0, 0.0)  # the observation that the step led to
    allowed_after: Array = field(default_factory=lambda: np.ones(ACTIONS, np.bool_))


class History:
    """Everything that happened, step by step, and the rollouts that tell a replay of it."""

    def __init__(self, seed: int, ends: float = 0.2, lost: float = 0.1) -> None:
        self._generator = np.random.default_rng(seed)
        self._ends, self._lost = ends, lost
        self.steps: list[list[Step]] = [[] for _ in range(ENVS)]
        self.cuts = 0
        self._next_mask: Array | None = None

    def rollout(self, length: int) -> Rollout:
        draw, time = self._generator.random, len(self.steps[0])
        seen = np.zeros((length + 1, ENVS, 3))
        seen[:, :, 0], seen[:, :, 1], seen[:, :, 2] = (
            np.arange(ENVS),
            (time + np.arange(length + 1))[:, None],
            self.cuts,
        )
        terminated, truncated = draw((length, ENVS)) < self._ends / 2, draw((length, ENVS)) < self._ends / 2
        valid = draw((length, ENVS)) >= self._lost
        terminated, truncated = terminated & valid, truncated | ~valid
        rewards = draw((length, ENVS), np.float32)
        actions = (seen[:-1, :, 1] * 10 + seen[:-1, :, 0]).astype(np.int64)
        masks, final_masks = draw((length + 1, ENVS, ACTIONS)) < 0.5, draw((length, ENVS, ACTIONS)) < 0.5
        if self._next_mask is not None:  # a rollout begins where the last one stopped
            masks[0] = self._next_mask
        self._next_mask = masks[-1]
        finals = np.full((length, ENVS, 3), np.nan)
        for env in range(ENVS):
            k = 0
            for t in range(length):
                step = Step(
                    tuple(seen[t, env]), int(actions[t, env]), float(rewards[t, env]), masks[t, env],
                    bool(terminated[t, env]), bool(truncated[t, env]), bool(valid[t, env]),
                    tuple(seen[t + 1, env]), masks[t + 1, env],
                )  # fmt: skip
                if step.valid and step.truncated and not step.terminated:
                    step.after, step.allowed_after = (env, -time - t - 1.0, 0.0), final_masks[k, env]
                    finals[k, env] = step.after
                    k += 1
                self.steps[env].append(step)
        made = rollout_of(
            seen, finals, actions, masks, rewards=rewards, terminated=terminated, truncated=truncated, valid=valid
        )
        return Rollout(**{**vars(made), "final_masks": final_masks})

    def cut(self) -> None:
        """The running episodes end here, at the observation that they had reached."""
        self.cuts, self._next_mask = self.cuts + 1, None
        for steps in self.steps:
            steps[-1].truncated = True

    def episodes(self, env: int) -> list[tuple[int, int]]:
        """First and last time of each episode."""
        found, first = [], None
        for time, step in enumerate(self.steps[env]):
            if not step.valid:
                if first is not None:
                    found.append((first, time - 1))
                first = None
                continue
            first = time if first is None else first
            if step.terminated or step.truncated:
                found.append((first, time))
                first = None
        return found if first is None else [*found, (first, len(self.steps[env]) - 1)]

    def starts(self, stored: int, length: int, burn_in: int) -> dict[tuple[int, int], int]:
        """Every start (environment, time) that is still stored with its burn-in -> starts of its episode."""
        found = {}
        oldest = len(self.steps[0]) - stored
        for env in range(ENVS):
            for first, last in self.episodes(env):
                of_episode = [
                    start
                    for start in range(first, last + 1)
                    if (start == first or start + length - 1 <= last) and start - min(burn_in, start - first) >= oldest
                ]
                found |= {(env, start): len(of_episode) for start in of_episode}
        return found


class Grid:
    """Stands for a generator: its numbers are spread evenly over [0, 1)."""

    def random(self, shape: tuple[int, int]) -> Array:
        size = shape[0] * shape[1]
        return ((np.arange(size) + 0.5) / size).reshape(shape)


def replay_of(rows: int) -> Replay:
    return Replay(ReplaySpec(SPACE, ((), np.int64), capacity=rows * ENVS, n_envs=ENVS, mask_size=ACTIONS))


def assert_history(drawn: Sequences, history: History, length: int, burn_in: int) -> Counter[tuple[int, int]]:
    """Compare each sequence with the history; count the starts (environment, time) of those that enter the loss."""
    counts: Counter[tuple[int, int]] = Counter()
    seen, (steps, _) = drawn.observations[""], drawn.mask.shape
    longest = 0
    assert drawn.allowed is not None
    assert drawn.mask.dtype == drawn.rewards.dtype == drawn.discounts.dtype == np.float32
    assert seen.shape == (steps + 1, drawn.size, 3) and drawn.actions.shape == drawn.mask.shape == (steps, drawn.size)
    for column in range(drawn.size):
        env, begin = int(seen[0, column, 0]), int(seen[0, column, 1])
        episode = next((first, last) for first, last in history.episodes(env) if first <= begin <= last)
        loss = np.flatnonzero(drawn.mask[:, column])
        start = begin + int(loss[0])
        warm = min(burn_in, start - episode[0])
        assert begin == start - warm
        happened = warm + min(length, episode[1] - start + 1)
        longest = max(longest, happened)
        expected = [0.0] * warm + [1.0] * (happened - warm) + [0.0] * (steps - happened)
        assert drawn.mask[:, column].tolist() == expected
        for t in range(happened):
            step = history.steps[env][begin + t]
            assert tuple(seen[t, column]) == step.seen and drawn.actions[t, column] == step.action
            assert drawn.rewards[t, column] == np.float32(step.reward)
            assert drawn.discounts[t, column] == np.float32(0.0 if step.terminated else GAMMA)
            assert drawn.allowed[t, column].tolist() == step.allowed.tolist()
        last = history.steps[env][begin + happened - 1]
        if not last.terminated:  # after a termination, no value is taken
            assert (seen[happened:, column] == last.after).all()
            assert (drawn.allowed[happened:, column] == last.allowed_after).all()
        for padded in (drawn.actions, drawn.rewards, drawn.discounts):
            assert not padded[happened:, column].any()
        counts[env, start] += 1
    assert steps == longest <= burn_in + length
    return counts


def restored(replay: Replay, rows: int) -> Replay:
    """A replay with the rows of another, as from a checkpoint."""
    again = replay_of(rows)
    again.head = (replay.head - replay.held) % replay.rows
    again.put_rows(replay.rows_since(replay.held))
    return again


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rollouts=st.lists(st.integers(0, 7), min_size=1, max_size=7),
    rows=st.integers(6, 24),
    length=st.sampled_from([1, 2, 3, 4, 5, WHOLE]),
    burn_in=st.integers(0, 3),
    episode_weight=st.integers(0, 2),
    looks=st.booleans(),
    ends=st.sampled_from([0.0, 0.1, 0.4]),
)
def test_every_start_is_drawn_with_its_weight_and_equals_the_history(
    seed: int, rollouts: list[int], rows: int, length: int, burn_in: int, episode_weight: int, looks: bool, ends: float
) -> None:
    """Rollouts of length 0 stand for a cut. The sampler may have looked at the buffer before, or not."""
    history, replay = History(seed, ends), replay_of(rows)
    most, burn_in = (10**6, 0) if length == WHOLE else (length, burn_in)
    spec = SequenceSpec(4, length, GAMMA, burn_in, episode_weight)
    sampler = SequenceSampler(replay, spec)
    for steps in rollouts:
        if steps:
            replay.add(history.rollout(steps))
        elif replay.written:
            replay.cut()
            history.cut()
        if looks:
            assert sampler.starts == len(history.starts(replay.filled, most, burn_in))
    starts = history.starts(replay.filled, most, burn_in)
    assert sampler.starts == len(starts)
    if not starts:
        return
    # On this grid the start of an episode with n starts gets common * (n + episode_weight) / n points.
    common = lcm(*starts.values()) if episode_weight else 1
    weights = {start: common * (n + episode_weight) // n for start, n in starts.items()}
    assume(sum(weights.values()) < 500)
    total = sum(weights.values())
    batches = 2 if total % 2 == 0 else 1
    counts: Counter[tuple[int, int]] = Counter()
    for drawn in sampler.batches(Grid(), batches, total // batches):  # type: ignore[arg-type]
        counts += assert_history(drawn, history, most, burn_in)
    assert counts == weights
    of_restored = SequenceSampler(restored(replay, rows), spec).batches(np.random.default_rng(seed), 2)
    for drawn, again in zip(sampler.batches(np.random.default_rng(seed), 2), of_restored, strict=True):
        for name in ("actions", "rewards", "discounts", "mask", "allowed"):
            assert np.array_equal(getattr(drawn, name), getattr(again, name))
        assert np.array_equal(drawn.observations[""], again.observations[""])


def test_an_episode_without_its_first_step_is_no_whole_one_any_more() -> None:
    """Eight rows, episodes of five steps: the ring keeps all of the second and the end of the first."""
    history, replay = History(0, ends=0.0, lost=0.0), replay_of(8)
    for _ in range(2):
        replay.add(history.rollout(5))
        replay.cut()
        history.cut()
    assert [SequenceSampler(replay, SequenceSpec(1, length, GAMMA)).starts for length in (5, 3, 2)] == [
        ENVS,  # the second episode
        ENVS * (3 + 1),  # the last three steps of the first one are one of its starts
        ENVS * (4 + 2),
    ]
    assert SequenceSampler(replay, SequenceSpec(1, 2, GAMMA, burn_in=1)).starts == ENVS * (4 + 1)


def test_an_episode_that_outgrows_the_buffer_is_not_whole() -> None:
    """Its middle would be learned with zero memory, although it fills the buffer."""
    history, replay = History(0, ends=0.0, lost=0.0), replay_of(6)
    sampler = SequenceSampler(replay, SequenceSpec(1, WHOLE, GAMMA))
    found = []
    for steps in (6, 1, 5):
        replay.add(history.rollout(steps))
        found.append((sampler.starts, sampler.episode_too_long))
    replay.cut()
    history.cut()
    found.append((sampler.starts, sampler.episode_too_long))
    replay.add(history.rollout(2))
    found.append((sampler.starts, sampler.episode_too_long))
    assert found == [(ENVS, False), (0, True), (0, True), (0, False), (ENVS, False)]


def test_rows_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    history, replay = History(1), replay_of(64)
    sampler = SequenceSampler(replay, SequenceSpec(4, 3, GAMMA))
    read: list[int] = []
    status_rows = replay.status_rows
    monkeypatch.setattr(replay, "status_rows", lambda rows: read.append(rows) or status_rows(rows))
    for _ in range(20):
        replay.add(history.rollout(8))
        read.clear()  # adding a rollout reads the newest row
        for _ in range(3):
            list(sampler.batches(np.random.default_rng(0), 2))
        assert read == [8]
    assert len(sampler._over.env) <= 64 * ENVS  # nothing of the past is kept


def test_whole_episodes_are_read_several_batches_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many depends on the episodes in the buffer, not on its size."""
    monkeypatch.setattr("envfleet.rollout.sequences._BYTES_AT_ONCE", 2**14)
    history, replay = History(1, ends=0.5), replay_of(4_096)
    replay.add(history.rollout(64))
    sampler = SequenceSampler(replay, SequenceSpec(4, WHOLE, GAMMA))
    read: list[int] = []
    taken = sampler._taken
    monkeypatch.setattr(sampler, "_taken", lambda *given: read.append(len(given[1])) or taken(*given))
    assert len(list(sampler.batches(np.random.default_rng(0), 6))) == 6
    assert read == [6]


# ---- experience of a learner


def experience_of(seed: int, demonstrations: float = 0.0) -> ReplayedExperience:
    spec = ReplaySpec(SPACE, ((), np.int64), capacity=40, n_envs=ENVS, mask_size=ACTIONS)
    return ReplayedExperience(spec, BatchSpec(4, 1, GAMMA, demonstrations), seed, sequences=SequenceSpec(4, 3, GAMMA))


def test_batches_follow_from_the_seed_and_the_number_of_the_update() -> None:
    history, (one, other) = History(3), (experience_of(5), experience_of(5))
    rollout = history.rollout(12)
    for experience in (one, other):
        assert not list(experience.sequence_batches(1, 0))  # nothing to draw yet
        experience.add(rollout)
    batches = list(one.sequence_batches(3, 7))
    assert len(batches) == 3
    for drawn, again in zip(batches, other.sequence_batches(3, 7), strict=True):
        assert np.array_equal(drawn.observations[""], again.observations[""])
    (later,) = one.sequence_batches(1, 8)
    assert not np.array_equal(batches[0].observations[""], later.observations[""])


def test_a_share_of_the_sequences_is_demonstrated() -> None:
    history, shown, experience = History(3, lost=0.0), History(4, lost=0.0), experience_of(5, demonstrations=0.5)
    shown.cuts = 9  # marks the observations of demonstrations
    one = shown.rollout(9)
    plain = {name: getattr(one, name)[:, :1] for name in ("rewards", "terminated", "truncated", "valid")}
    experience.show(
        rollout_of(one.observations[""][:, :1], one.finals[""][:, :1], one.columns["actions"][:, :1], **plain)
    )
    experience.add(history.rollout(12))
    for drawn in experience.sequence_batches(2, 0):
        assert drawn.observations[""][0, :, 2].tolist() == [9, 9, 0, 0]
        assert drawn.allowed is not None and drawn.allowed[:, :2].all() and not drawn.allowed[:, 2:].all()


def test_batches_of_different_lengths_are_joined() -> None:
    """The shorter one is padded as if it had been drawn with the other."""
    history, replay = History(3, ends=0.0, lost=0.0), replay_of(20)
    replay.add(history.rollout(12))
    short, long = (SequenceSampler(replay, SequenceSpec(2, length, GAMMA)) for length in (3, 5))
    (one,), (other,) = (sampler.batches(np.random.default_rng(0), 1) for sampler in (short, long))
    assert joined_sequences([one]) is one
    both = joined_sequences([one, other])
    assert both.mask.shape == (5, 4) and both.observations[""].shape == (6, 4, 3)
    assert np.array_equal(both.observations[""][:4, :2], one.observations[""])
    assert (both.observations[""][4:, :2] == one.observations[""][3]).all()
    for name in ("actions", "rewards", "discounts", "mask"):
        assert np.array_equal(getattr(both, name)[:3, :2], getattr(one, name)) and not getattr(both, name)[3:, :2].any()
        assert np.array_equal(getattr(both, name)[:, 2:], getattr(other, name))
    assert both.allowed is not None and one.allowed is not None
    assert (both.allowed[4:, :2] == one.allowed[3]).all()


def test_a_ring_that_is_shorter_than_a_sequence_is_refused() -> None:
    spec = ReplaySpec(SPACE, ((), np.int64), capacity=10, n_envs=ENVS)
    with pytest.raises(
        SettingsError, match=r"a sequence has 6 steps, but the replay keeps only the last 5(?s:.*)at least 12"
    ):
        SequenceSpec(4, 4, GAMMA, burn_in=2).refuse_unfit(spec)


def test_a_batch_has_to_fit_beside_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ReplaySpec(SPACE, ((), np.int64), capacity=1_000, n_envs=ENVS)
    monkeypatch.setattr("envfleet.rollout.replay_spec.available_memory", lambda: 2 * spec.bytes)
    SequenceSpec(4, 4, GAMMA).refuse_unfit(spec)
    with pytest.raises(ResourceError, match="the replay needs"):
        SequenceSpec(500, 100, GAMMA).refuse_unfit(spec)
