"""Samples sequences of steps from a replay buffer, for policies with memory.

A sequence is a window of one environment's steps. It never crosses the end of an episode, a lost step or the newest
row. All sequences begin with zero memory. These rules say where they may start:

- An episode of L steps has L - length + 1 starts. If it is shorter than `length`, it has one start, its first step.
  Starts are drawn uniformly. `episode_weight` adds the weight of that many starts to each episode, spread over its
  starts. With the length `WHOLE`, an episode has one start, its first step.
- Of an episode that is still running, the steps stored so far count.
- With a burn-in, up to `burn_in` steps of the same episode come before the start. They warm up the memory and have the
  mask 0.
- If the first steps of an episode have been overwritten, the starts that need them vanish, and no new ones appear. An
  episode with a single start vanishes with its first step, because a sequence from its middle would not begin with zero
  memory. Longer episodes keep their later starts.

The sampler keeps a table of the episodes, not of their steps. It reads the status of new rows only. A table that is
built from a restored buffer has the same order, so the same random numbers draw the same sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from envfleet.errors import SettingsError
from envfleet.fleet.spaces import leaves_of
from envfleet.rollout.replay import BEGINS, ENDED, HAPPENED, TERMINATED, TRUNCATED, Replay
from envfleet.rollout.replay_spec import ReplaySpec
from envfleet.rollout.storage import entry_bytes

__all__ = ["WHOLE", "SequenceSampler", "SequenceSpec", "Sequences", "joined_sequences"]

Array = np.ndarray[Any, Any]
WHOLE = -1
_BYTES_AT_ONCE = 2**22  # of observations that are read at once, for several batches


@dataclass(frozen=True)
class SequenceSpec:
    """Describes a batch of sequences: size, length, and how starts are drawn."""

    size: int  # sequences per batch
    length: int  # maximum steps of a sequence that enter the loss; WHOLE for whole episodes
    gamma: float
    burn_in: int = 0  # steps before them that only warm up the memory
    episode_weight: float = 0.0  # 0: every start is equally likely; large: every episode is

    def __post_init__(self) -> None:
        assert not (self.length == WHOLE and self.burn_in), "no step comes before a whole episode"

    def refuse_unfit(self, replay: ReplaySpec) -> None:
        """Raise an error if the buffer keeps fewer steps per environment than a sequence has, or a batch has no room.

        The size of a batch of whole episodes is not known in advance.
        """
        if self.length == WHOLE:
            return
        steps = self.burn_in + self.length
        if replay.most < steps:
            raise SettingsError(
                f"a sequence has {steps} steps, but {replay.name} keeps only the last {replay.most} of each of "
                f"{replay.n_envs} environments",
                hint=f"keep at least {steps * replay.n_envs} steps, or use shorter sequences",
            )
        replay.refuse_too_large(beside=self.size * (steps + 1) * bytes_of_row(replay))


def bytes_of_row(replay: ReplaySpec) -> int:
    """Bytes of one observation."""
    return sum(entry_bytes(leaf, 1) for leaf in leaves_of(replay.observation_space))


@dataclass(frozen=True)
class Sequences:
    """A batch of sequences, as long as the longest of them. Steps with the mask 0 are warm-up or padding.

    Padding repeats the last observation; its actions, rewards and discounts are 0. The observation after the last step
    of a truncated episode is its true final one.
    """

    observations: dict[str, Array]  # leaf name -> [time + 1, batch, ...]
    actions: Array  # [time, batch, ...]
    rewards: Array  # [time, batch]
    discounts: Array  # [time, batch]: factor of the next value: gamma, or 0 if the step terminated the episode
    mask: Array  # [time, batch] float32: 1 for steps that enter the loss
    allowed: Array | None = None  # [time + 1, batch, action]: action masks, if the environments have any

    @property
    def size(self) -> int:
        return int(self.mask.shape[1])


def joined_sequences(parts: Sequence[Sequences]) -> Sequences:
    """Join batches, in order."""
    first = parts[0]
    if len(parts) == 1:
        return first
    parts = [_padded(part, max(len(part.mask) for part in parts)) for part in parts]
    width = next((part.allowed.shape[2] for part in parts if part.allowed is not None), 0)
    free = [np.ones((*part.mask.shape, width), np.bool_) for part in parts]
    free = [np.concatenate([each[:1], each]) for each in free]  # [time + 1, batch, action]
    allowed = [every if part.allowed is None else part.allowed for part, every in zip(parts, free, strict=True)]

    def along_batch(name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts], axis=1)

    return Sequences(
        {name: np.concatenate([part.observations[name] for part in parts], axis=1) for name in first.observations},
        along_batch("actions"),
        along_batch("rewards"),
        along_batch("discounts"),
        along_batch("mask"),
        np.concatenate(allowed, axis=1) if width else None,
    )


def _padded(part: Sequences, steps: int) -> Sequences:
    """Make a batch as long as others, by padding."""
    more = steps - len(part.mask)
    if not more:
        return part

    def with_zeros(values: Array) -> Array:
        return np.concatenate([values, np.zeros((more, *values.shape[1:]), values.dtype)])

    def with_last(values: Array) -> Array:
        return np.concatenate([values, np.broadcast_to(values[-1:], (more, *values.shape[1:]))])

    return Sequences(
        {name: with_last(values) for name, values in part.observations.items()},
        with_zeros(part.actions),
        with_zeros(part.rewards),
        with_zeros(part.discounts),
        with_zeros(part.mask),
        None if part.allowed is None else with_last(part.allowed),
    )


class _Episodes(NamedTuple):
    """A table of episodes. Rows are counted as in `Replay.written`, so they never wrap."""

    env: Array  # [episode]
    first: Array  # row of the first step; below the oldest stored row if that one is overwritten
    last: Array  # row of the newest stored step

    def chosen(self, which: Array) -> _Episodes:
        return _Episodes(*(column[which] for column in self))


_NONE = _Episodes(*(np.empty(0, np.int64) for _ in range(3)))


class _Starts(NamedTuple):
    """Episodes with their possible starts. For drawing, each start is a segment of a line as long as its weight."""

    episodes: _Episodes
    first: Array  # [episode]: row of its first start; the others follow row by row
    counts: Array  # [episode]: number of its starts
    weights: Array  # [episode]
    edges: Array  # [episode]: where its segments of the line end

    def at(self, points: Array) -> tuple[Array, Array]:
        """Episodes and rows of the starts at these points of the line."""
        which = np.minimum(np.searchsorted(self.edges, points, side="right"), len(self.edges) - 1)
        counts, weights = self.counts[which], self.weights[which]
        into = ((points - (self.edges[which] - weights)) * (counts / weights)).astype(np.int64)
        return which, self.first[which] + np.clip(into, 0, counts - 1)


def _joined(*tables: _Episodes) -> _Episodes:
    return _Episodes(*(np.concatenate(columns) for columns in zip(*tables, strict=True)))


class SequenceSampler:
    """Draws batches of sequences from a replay buffer."""

    def __init__(self, replay: Replay, spec: SequenceSpec) -> None:
        self._replay, self._spec = replay, spec
        most = replay.spec.most
        self._length = most if spec.length == WHOLE else spec.length
        self._times = np.arange(spec.burn_in + self._length + 1)[:, None]
        self._row_bytes = bytes_of_row(replay.spec)
        self._forget()

    def _forget(self) -> None:
        """Forget all episodes; `_look` then finds them again in the buffer."""
        n_envs, self._cuts = self._replay.n_envs, self._replay.cuts
        self._known: _Starts | None = None
        self._read = self._replay.written - self._replay.filled  # rows before this one have been looked at
        self._over = _NONE  # episodes that ended, in the order of their ends, then of their environments
        self._running = np.zeros(n_envs, np.bool_)  # [env]
        self._first = np.full(n_envs, self._read - 1)  # [env]: first row of the episode of the newest row

    # --- the table of episodes

    def _look(self) -> None:
        """Read the rows that are new since the last call."""
        replay = self._replay
        if self._cuts != replay.cuts or replay.written - self._read > replay.filled:
            self._forget()
        rows = replay.written - self._read
        if not rows:
            return
        status, before = replay.status_rows(rows), self._read  # [row, env]
        happened, begins = status & HAPPENED != 0, status & (HAPPENED | BEGINS) == HAPPENED | BEGINS
        ends = happened & (status & ENDED != 0)
        row = before + np.arange(rows)[:, None]
        firsts = np.maximum.accumulate(np.concatenate([self._first[None], np.where(begins, row, -1)]))
        running = np.concatenate([self._running[None], happened & ~ends])
        lost = running[:-1] & (begins | ~happened)  # the episode stopped before this row
        found = []
        for at, stopped in ((1, ends), (0, lost)):
            time, env = np.nonzero(stopped)
            found.append((time, env, firsts[time + at, env], before + time + at - 1))
        time, env, first, last = (np.concatenate(columns) for columns in zip(*found, strict=True))
        order = np.lexsort((env, time))
        self._over = _joined(self._over, _Episodes(env[order], first[order], last[order]))
        self._running, self._first, self._read = running[-1], firsts[-1], replay.written

    def _starts(self) -> _Starts:
        """The table of all episodes with starts."""
        if self._known is None or self._read != self._replay.written or self._cuts != self._replay.cuts:
            self._look()
            self._known = self._count()
        return self._known

    def _count(self) -> _Starts:
        envs = np.flatnonzero(self._running)
        newest = np.full(len(envs), self._replay.written - 1)
        episodes = _joined(self._over, _Episodes(envs, self._first[envs], newest))
        oldest = self._replay.written - self._replay.filled
        whole = episodes.first >= oldest
        first = np.where(whole, episodes.first, oldest + self._spec.burn_in)
        count = np.where(whole, 1, 0)
        if self._spec.length != WHOLE:  # whole episodes have no other start, even if one fills the buffer
            count = np.maximum(episodes.last - first - self._length + 2, count)
        there = count > 0
        self._over = self._over.chosen(there[: len(self._over.env)])
        weights = count[there] + self._spec.episode_weight
        return _Starts(episodes.chosen(there), first[there], count[there], weights, np.cumsum(weights))

    @property
    def episode_too_long(self) -> bool:
        """Whether there is no sequence, because the running episodes have outgrown the buffer."""
        return not self.starts and bool(self._running.any())

    @property
    def starts(self) -> int:
        """Number of different sequences in the buffer."""
        return int(self._starts().counts.sum())

    # --- drawing

    def batches(self, generator: np.random.Generator, count: int, size: int | None = None) -> Iterator[Sequences]:
        """Yield `count` random batches of `size` sequences (default: the spec's). Several are read at once."""
        known = self._starts()
        assert len(known.counts), "there is no sequence to draw; `starts` is 0"
        points = generator.random((count, self._spec.size if size is None else size)) * known.edges[-1]
        episode = int((known.episodes.last - known.episodes.first).max()) + 1
        longest = min(episode, self._spec.burn_in + self._length)  # steps of a sequence
        at_once = max(1, _BYTES_AT_ONCE // (points.shape[1] * (longest + 1) * self._row_bytes))
        for first in range(0, count, at_once):
            which, start = known.at(points[first : first + at_once])
            yield from self._taken(known.episodes.chosen(which), start)

    def _taken(self, episodes: _Episodes, start: Array) -> list[Sequences]:
        """The sequences that start at these rows of these episodes, [batch, sequence] each."""
        replay, spec = self._replay, self._spec
        warm = np.minimum(spec.burn_in, start - episodes.first)
        steps = warm + np.minimum(self._length, episodes.last - start + 1)  # without padding
        longest = steps.max(axis=1)  # [batch]
        all_times = self._times[: longest.max() + 1]
        size, n_envs = replay.rows * replay.n_envs, replay.n_envs
        begin = (replay.head - replay.written + start - warm) % replay.rows * n_envs + episodes.env
        padded = bool(steps.min() < longest.max())
        times = np.minimum(all_times, steps[:, None]) if padded else all_times
        entries = times * n_envs + begin[:, None]  # [batch, time + 1, sequence]
        if begin.max() + len(all_times) * n_envs >= size:
            entries -= size * (entries >= size)  # a tenth of the time of a modulo
        allowed, seen = replay.allowed(entries), replay.seen_at(entries.reshape(-1))
        seen = {name: values.reshape(*entries.shape, *values.shape[1:]) for name, values in seen.items()}
        actions, rewards = (each[:, :-1] for each in replay.steps_at(entries))  # indexing is faster without a slice
        mask = np.ones(rewards.shape, np.float32)
        if padded:
            padding = all_times[:-1] >= steps[:, None]
            np.subtract(1.0, padding, out=mask)
            rewards *= mask
            actions[padding] = 0
        discounts = mask * np.float32(spec.gamma)
        if spec.burn_in:
            mask[all_times[:-1] < warm[:, None]] = 0.0
        # Only the last step of a sequence can be the end of an episode.
        of_batch, column = np.indices(steps.shape)
        last = entries[of_batch, steps - 1, column]
        status = replay.status_of(last)
        discounts[of_batch, steps - 1, column] *= status & TERMINATED == 0
        cut = (status & ENDED) == TRUNCATED
        if cut.any():
            self._put_finals(seen, allowed, last, cut, steps)
        return [
            Sequences(
                {name: values[i, : time + 1] for name, values in seen.items()},
                actions[i, :time],
                rewards[i, :time],
                discounts[i, :time],
                mask[i, :time],
                None if allowed is None else allowed[i, : time + 1],
            )
            for i, time in enumerate(longest.tolist())
        ]

    def _put_finals(self, seen: dict[str, Array], allowed: Array | None, last: Array, cut: Array, steps: Array) -> None:
        """Put in the final observations of truncated episodes; the buffer has the next episode's first one there."""
        finals, final_allowed = self._replay.finals_at(last[cut])
        batch, column = np.nonzero(cut)
        after, which = steps[cut], np.arange(len(batch))
        padding = next(iter(seen.values())).shape[1] - after
        if padding.max() > 1:  # the padding repeats the final observation
            which = np.repeat(which, padding)
            first = np.cumsum(padding) - padding
            after = after[which] + np.arange(len(which)) - first[which]
            batch, column = batch[which], column[which]
        for name, values in seen.items():
            values[batch, after, column] = finals[name][which]
        if allowed is not None:
            allowed[batch, after, column] = final_allowed[which]
