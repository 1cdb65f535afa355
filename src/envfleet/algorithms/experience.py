"""Experience of an off-policy learner: a replay buffer, priorities, demonstrations, and batches from all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from envfleet.fleet.spaces import leaves_of
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay import Experience, Replay, joined
from envfleet.rollout.replay_pieces import ReplayPieces
from envfleet.rollout.replay_spec import ReplaySpec
from envfleet.rollout.sequences import Sequences, SequenceSampler, SequenceSpec, joined_sequences
from envfleet.rollout.storage import entry_bytes
from envfleet.seeding import stream

if TYPE_CHECKING:
    from envfleet.algorithms.dqn_settings import DQN
    from envfleet.algorithms.sac_settings import SAC
    from envfleet.policies.protocol import ActingPolicy

__all__ = ["BatchSpec", "ReplayedExperience", "build_experience", "in_chunks"]

Array = np.ndarray[Any, Any]
_DRAW = 14  # key of the random streams for batches
_BYTES_AT_ONCE = 2**22  # of observations that are read at once, for several batches
_UPDATES_AT_ONCE = 1_000  # whose entries are drawn at once when pretraining; results depend on it
_NO_ENV = -1
_SHOWN = "demonstrations"  # the name of their piece in a checkpoint


def in_chunks(updates: int) -> Iterator[int]:
    """Yield numbers of updates that add up to `updates`, each small enough to draw its entries at once."""
    for first in range(0, updates, _UPDATES_AT_ONCE):
        yield min(_UPDATES_AT_ONCE, updates - first)


@dataclass(frozen=True)
class BatchSpec:
    """Describes a batch: its size, the length of its returns, and how its steps are sampled."""

    size: int
    n_step: int
    gamma: float
    demonstrations: float = 0.0  # share of a batch
    allowed: bool = False  # include the masks of allowed actions
    priority_exponent: float = 0.6
    priority_correction: float = 0.4


def build_experience(
    settings: DQN | SAC,
    policy: ActingPolicy,
    observation_space: Any,
    *,
    n_envs: int,
    seed: int,
    allowed: bool,
    sequences: SequenceSpec | None = None,
) -> ReplayedExperience:
    """Return the experience that the settings describe; for `allowed` and `sequences` see the specs."""
    replay = ReplaySpec(
        observation_space,
        (policy.action_shape, policy.action_dtype),
        capacity=settings.replay_size,
        n_envs=n_envs,
        mask_size=policy.mask_size,
        frame_stack=settings.frames,
        prioritised=settings.prioritised,
        batch_rows=settings.rollout_length if settings.schedule == "async" else None,
    )
    batch = BatchSpec(
        settings.minibatch_size,
        settings.n_step,
        settings.gamma,
        demonstrations=settings.demonstration_share,
        allowed=allowed,
        priority_exponent=settings.priority_exponent,
        priority_correction=settings.priority_correction,
    )
    return ReplayedExperience(replay, batch, seed, sequences=sequences)


class ReplayedExperience:
    """Stores rollouts and demonstrations, and yields batches of transitions or, with a `SequenceSpec`, sequences."""

    def __init__(self, spec: ReplaySpec, batch: BatchSpec, seed: int, *, sequences: SequenceSpec | None = None) -> None:
        spec.refuse_too_large()
        if sequences is not None:
            sequences.refuse_unfit(spec)
        self._spec, self._batch, self._seed, self._sequences = spec, batch, seed, sequences
        self._observed_bytes = max(1, sum(entry_bytes(leaf, 1) for leaf in leaves_of(spec.observation_space)))
        self._tree: Any = None
        if spec.prioritised:
            from envfleet.rollout.sum_tree import SumTree  # compiled by Numba, so imported only if needed

            self._tree = SumTree
        self._highest_priority = 1.0
        self._shown: Replay | None = None  # demonstrations
        self._shown_saved = False
        self._samplers: dict[Replay, SequenceSampler] = {}
        self._pieces = ReplayPieces()
        self._env_ids = np.full(spec.n_envs, _NO_ENV)  # [column] of the newest asynchronous batch

    @cached_property
    def replay(self) -> Replay:
        """The replay buffer, allocated at the first rollout, after the console has announced its size."""
        return Replay(self._spec)

    @cached_property
    def priorities(self) -> Any:
        """The sum tree of priorities; None without prioritised replay."""
        return None if self._tree is None else self._tree(self._spec.entries)

    @property
    def text(self) -> str:
        """The size of the replay buffer in words."""
        return self._spec.text

    # --- storing

    def add(self, rollout: Rollout) -> None:
        """Store a rollout."""
        cuts = self.replay.cuts
        if rollout.env_ids is not None:
            self._cut_columns_of_others(rollout.env_ids)
        entries = self.replay.add(rollout)
        if self.replay.cuts != cuts:
            self._pieces.forget_newest()  # it lacks these ends
        self._pieces.count(len(entries) // self.replay.n_envs)
        if self.priorities is not None:
            # New steps get the highest priority, so that they are sampled soon; steps that never happened get none.
            fresh = np.where(self.replay.happened(entries), self._highest_priority, 0.0)
            self.priorities.set(entries, fresh)
            retired = self.replay.retired()
            self.priorities.set(retired, np.zeros(len(retired)))

    def _cut_columns_of_others(self, env_ids: Array) -> None:
        """End the running episodes in columns of the replay where an asynchronous batch does not continue them.

        A batch that holds two rollouts of an environment does not tell which of them came first.
        """
        ids, index, counts = np.unique(env_ids, return_inverse=True, return_counts=True)
        env_ids = np.where(counts == 1, ids, _NO_ENV)[index]
        self.replay.cut(np.flatnonzero((env_ids != self._env_ids) | (env_ids == _NO_ENV)))
        self._env_ids = env_ids

    def show(self, rollout: Rollout) -> None:
        """Store demonstrations, in a replay buffer of their own."""
        self._shown = self._room_to_show(len(rollout.rewards))
        self._shown.add(rollout)

    def _room_to_show(self, steps: int) -> Replay:
        spec = replace(
            self._spec, capacity=steps, n_envs=1, prioritised=False, batch_rows=None, name="the demonstration replay"
        )
        spec.refuse_too_large(beside=self._spec.bytes)  # leave room for the replay buffer, which comes later
        return Replay(spec)

    def set_priorities(self, batch: Experience, errors: Array) -> None:
        """Set the priorities of a batch by its TD errors [step]."""
        if self.priorities is None:
            return
        collected = slice(batch.demonstrated, None)
        highest = self.priorities.set_by_error(
            batch.entries[collected], errors[collected], self._batch.priority_exponent
        )
        self._highest_priority = max(self._highest_priority, highest)

    # --- sampling

    def batches(
        self, count: int, update: int, *, shown: float | None = None
    ) -> Iterator[tuple[Experience, Array | None]]:
        """Yield `count` batches, demonstrations first, with importance weights if replay is prioritised.

        `update` is the number of the first one and keys its random numbers. `shown` replaces the share of
        demonstrations.
        """
        size, generator = self._batch.size, stream(self._seed, _DRAW, update)
        share = self._batch.demonstrations if shown is None else shown
        demonstrated = 0 if self._shown is None else round(size * share)
        if self._shown is None or not demonstrated:
            yield from self._drawn(generator, count, size)
            return
        entries = self._shown.uniform_entries(generator, count * demonstrated).reshape(count, demonstrated)
        ours: Iterator[tuple[Experience, Array | None]] = iter(())
        if demonstrated < size:
            ours = self._drawn(generator, count, size - demonstrated)
        for theirs in self._taken(self._shown, entries):
            parts, importance_weights = [replace(theirs, demonstrated=demonstrated)], None
            if demonstrated < size:
                collected, weights = next(ours)
                parts.append(collected)
                importance_weights = (
                    None if weights is None else np.concatenate([np.ones(demonstrated, np.float32), weights])
                )
            yield joined(parts), importance_weights

    def sequence_batches(self, count: int, update: int, *, shown: float | None = None) -> Iterator[Sequences]:
        """Yield `count` batches of sequences, demonstrations first; the arguments are those of `batches`.

        Yields nothing if the buffer has no sequence yet, or only the ends of overwritten episodes.
        """
        spec = self._sequences
        assert spec is not None, "built without the spec of sequences"
        generator = stream(self._seed, _DRAW, update)
        share = self._batch.demonstrations if shown is None else shown
        demonstrated = 0 if self._shown is None else round(spec.size * share)
        parts = [(self._sampler(self._shown, spec), demonstrated)] if self._shown is not None and demonstrated else []
        if demonstrated < spec.size:
            parts.append((self._sampler(self.replay, spec), spec.size - demonstrated))
        if not all(sampler.starts for sampler, _ in parts):
            return
        drawn = [sampler.batches(generator, count, size) for sampler, size in parts]
        yield from map(joined_sequences, zip(*drawn, strict=True))

    @property
    def episode_too_long(self) -> bool:
        """Whether there are no sequences to learn from, because episodes are longer than the replay buffer."""
        return self._sequences is not None and self._sampler(self.replay, self._sequences).episode_too_long

    def _sampler(self, replay: Replay, spec: SequenceSpec) -> SequenceSampler:
        """The sampler of a replay buffer; it keeps its table of episodes."""
        if replay not in self._samplers:
            self._samplers[replay] = SequenceSampler(replay, spec)
        return self._samplers[replay]

    def _drawn(
        self, generator: np.random.Generator, count: int, size: int
    ) -> Iterator[tuple[Experience, Array | None]]:
        """Yield batches of collected transitions, with importance weights if replay is prioritised."""
        if self.priorities is None:
            entries = self.replay.uniform_entries(generator, count * size).reshape(count, size)
            for batch in self._taken(self.replay, entries):
                yield batch, None
            return
        for uniform in generator.random((count, size)):
            entries, importance_weights = self.priorities.draw_batch(
                uniform, among=len(self.replay), correction=self._batch.priority_correction
            )
            for batch in self._taken(self.replay, entries[None]):
                yield batch, importance_weights

    def _taken(self, replay: Replay, entries: Array) -> Iterator[Experience]:
        """Yield the batches of entries [batch, step], reading several at a time."""
        at_once = max(1, _BYTES_AT_ONCE // (2 * entries.shape[1] * self._observed_bytes))
        for first in range(0, len(entries), at_once):
            part = entries[first : first + at_once]
            batches = replay.take_batches(part, steps=self._batch.n_step, gamma=self._batch.gamma)
            if self._batch.allowed and replay.masked:
                yield from (replace(batch, allowed=replay.allowed(batch.entries)) for batch in batches)
            else:
                yield from batches

    # --- state

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, without the stored steps."""
        return {
            "highest_priority": self._highest_priority,
            "priorities": None if self.priorities is None else self.priorities.state(),
            "replay": self._pieces.state(self.replay),
        }

    def pieces(self) -> dict[str, dict[str, Array] | None]:
        """Return the stored steps in pieces; only those new since the last call have content."""
        parts = self._pieces.take(self.replay)
        if self._shown is None:
            return parts
        first, self._shown_saved = not self._shown_saved, True
        return {_SHOWN: self._shown.rows_since(self._shown.held) if first else None, **parts}

    def restore(self, state: Mapping[str, Any], pieces: Mapping[str, Mapping[str, Array]]) -> None:
        """Restore the results of `state` and `pieces`."""
        pieces = dict(pieces)
        shown = pieces.pop(_SHOWN, None)
        if shown is not None:
            self._shown = self._room_to_show(len(shown["rewards"]) - 1)
            self._shown.put_rows(shown)
            self._shown_saved = True
        self._pieces.restore(self.replay, state["replay"], pieces)
        self._highest_priority = state["highest_priority"]
        if self.priorities is not None:
            self.priorities.restore(state["priorities"])

    def begin_fresh_episodes(self) -> None:
        """End all episodes in the replay buffer: the environments of the restored run begin new ones."""
        self.replay.cut()
        self._pieces.forget()  # saved pieces lack these ends
