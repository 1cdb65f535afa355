"""Replay buffer: the newest steps of all environments. Each observation is stored once.

The buffer is a ring of rows, `[row, env, ...]`. Row r + 1 of an environment holds the observation that its step in row
r led to. Only the final observation of a truncated episode is stored separately. The row after the newest step holds
the observation that the next step starts from.

n-step returns are computed when a batch is sampled, so n may differ from batch to batch. A chain of steps ends with its
episode, before a step that never happened, or at the newest row, and bootstraps from there.

`rollout/sequences.py` samples whole sequences of steps from the same buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envfleet.fleet.spaces import leaves_of
from envfleet.rollout.arrays import Rollout
from envfleet.rollout.replay_spec import ReplaySpec
from envfleet.rollout.storage import Aside, Stacks, Store, Whole, equal

__all__ = ["BEGINS", "ENDED", "HAPPENED", "TERMINATED", "TRUNCATED", "Experience", "Replay", "joined"]

Array = np.ndarray[Any, Any]
HAPPENED, TERMINATED, TRUNCATED, BEGINS = 1, 2, 4, 8  # status bits of a step; BEGINS: the first step of an episode
ENDED = TERMINATED | TRUNCATED
_SEEN, _MASK = "seen/", "mask"  # keys of a truncated episode's final observation (per leaf) and action mask


@dataclass(frozen=True)
class Experience:
    """A sampled batch of n-step transitions."""

    entries: Array  # [batch]: positions in the buffer, for updating priorities
    seen: dict[str, Array]  # [2 batch, ...]: the observations, then those to bootstrap from
    actions: Array  # [batch, ...]
    returns: Array  # [batch]: discounted rewards of the n steps
    discounts: Array  # [batch]: factor of the bootstrap value; 0 if the episode terminated
    masks: Array | None  # [batch, action]: actions allowed in the observations to bootstrap from
    demonstrated: int = 0  # the first `demonstrated` transitions are demonstrations
    allowed: Array | None = None  # [batch, action]: actions allowed in the observations, if the learner wants them

    @property
    def observations(self) -> dict[str, Array]:
        return {name: array[: len(self.entries)] for name, array in self.seen.items()}

    @property
    def following(self) -> dict[str, Array]:
        return {name: array[len(self.entries) :] for name, array in self.seen.items()}


def joined(parts: Sequence[Experience]) -> Experience:
    """Concatenate batches, in order."""
    first = parts[0]
    if len(parts) == 1:
        return first
    halves = [part.observations for part in parts] + [part.following for part in parts]
    return Experience(
        np.concatenate([part.entries for part in parts]),
        {name: np.concatenate([half[name] for half in halves]) for name in first.seen},
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.returns for part in parts]),
        np.concatenate([part.discounts for part in parts]),
        _joined_masks([(part.masks, len(part.entries)) for part in parts]),
        first.demonstrated,
        _joined_masks([(part.allowed, len(part.entries)) for part in parts]),
    )


def _joined_masks(parts: Sequence[tuple[Array | None, int]]) -> Array | None:
    """Concatenate masks, each with its number of rows. Rows without masks allow everything; None if none has any."""
    width = next((mask.shape[1] for mask, _ in parts if mask is not None), None)
    if width is None:
        return None
    return np.concatenate([np.ones((rows, width), np.bool_) if mask is None else mask for mask, rows in parts])


class Replay:
    """The newest `capacity` steps of all environments."""

    def __init__(self, spec: ReplaySpec) -> None:
        spec.refuse_too_large()
        self.spec, self.n_envs, self.most, self.rows = spec, spec.n_envs, spec.most, spec.rows
        leaves, stacked, entries = leaves_of(spec.observation_space), spec.stacked, spec.entries
        self._stores: dict[str, Store] = {
            leaf.name: Stacks(leaf, entries, spec.n_envs, spec.frame_stack) if leaf in stacked else Whole(leaf, entries)
            for leaf in leaves
        }
        self._actions = np.zeros((entries, *spec.action[0]), spec.action[1])
        self._rewards = np.zeros(entries, np.float32)
        self._status = np.zeros(entries, np.uint8)
        self._masks = np.zeros((entries, spec.mask_size), np.bool_)
        finals: dict[str, tuple[tuple[int, ...], Any]] = {
            _SEEN + leaf.name: (leaf.shape, leaf.dtype) for leaf in leaves
        }
        self._finals = Aside({**finals, _MASK: ((spec.mask_size,), np.bool_)}, entries)
        self._aheads: dict[tuple[int, float], tuple[Array, Array]] = {}
        self.masked = False  # whether environments provide action masks
        self.head = 0  # the row of the next step
        self.filled = 0  # rows with steps that can be sampled
        self.held = 0  # rows that were written: `filled`, plus rows kept only for the frames of stacks
        self.written = 0  # rows ever written to this object; never wraps
        self.cuts = 0  # calls of `cut`, which changes stored rows; `add` may call it

    def __len__(self) -> int:
        """Number of stored steps, including those that never happened."""
        return self.filled * self.n_envs

    @property
    def nothing_happened(self) -> bool:
        """Whether there is no step to sample: the buffer is empty, or all of its steps were lost."""
        newest = self.status_rows(1) & HAPPENED  # usually enough
        return not newest.any() and not (self._status & HAPPENED).any()

    # --- writing

    def add(self, rollout: Rollout) -> Array:
        """Store a rollout and return the entries it filled."""
        self._cut_discontinued(rollout)
        steps = len(rollout.rewards)
        first = max(0, steps - self.most)  # only the end of a rollout that is longer than the ring
        entries = self._entries(steps - first + 1)  # [row, env], including the row after the newest step
        at = entries[:-1]
        self._finals.drop(entries.reshape(-1))
        begins = np.empty(entries.shape, np.bool_)
        begins[1:] = (rollout.ended | ~rollout.valid)[first:]
        begins[0] = (rollout.ended | ~rollout.valid)[first - 1] if first else self._begin_next()
        for name, array in rollout.observations.items():
            self._stores[name].write(entries, array[first:], begins)
        self._actions[at] = rollout.columns["actions"][first:]
        self._rewards[at] = rollout.rewards[first:]
        self._status[at] = (
            rollout.valid[first:] * HAPPENED
            + rollout.terminated[first:] * TERMINATED
            + rollout.truncated[first:] * TRUNCATED
            + (begins[:-1] & rollout.valid[first:]) * BEGINS
        )
        if rollout.masks is not None:
            self.masked = True
            self._masks[entries] = rollout.masks[first:]
        time, env, k = rollout.final_rows()
        late = time >= first
        time, env, k = time[late], env[late], k[late]
        finals = {_SEEN + name: array[k, env] for name, array in rollout.finals.items()}
        allowed = np.True_ if rollout.final_masks is None else rollout.final_masks[k, env]
        self._finals.put(at[time - first, env], {**finals, _MASK: np.asarray(allowed)})
        self._advance(len(at))
        return at.reshape(-1)

    def _entries(self, rows: int) -> Array:
        """Entries [row, env] of the next `rows` rows, starting at the head."""
        return ((self.head + np.arange(rows)) % self.rows)[:, None] * self.n_envs + np.arange(self.n_envs)

    def _begin_next(self) -> Array:
        """[env]: whether the next step begins an episode: the newest step ended one or was lost, or there is none."""
        newest = self.status_rows(1)[0]
        begins: Array = (newest & HAPPENED == 0) | (newest & ENDED != 0)
        return begins

    def _advance(self, rows: int) -> None:
        self.head = (self.head + rows) % self.rows
        self.filled = min(self.filled + rows, self.most)
        self.held = min(self.held + rows, self.rows - 1)
        self.written += rows
        self._status[self.retired()] = 0

    def _cut_discontinued(self, rollout: Rollout) -> None:
        """Cut the running episodes that a rollout does not continue, because their worker died after the last one."""
        running = np.flatnonzero(~self._begin_next())
        continued = np.ones((1, len(running)), np.bool_)
        for name, stored in self.seen_at(self.head * self.n_envs + running).items():
            continued &= equal(stored[None], rollout.observations[name][:1, running])
        if not continued.all():
            self.cut(running[~continued[0]])

    def cut(self, envs: Array | None = None) -> None:
        """End the running episodes of `envs` (default: all), because the next rollout begins new ones.

        The row after the newest steps will be overwritten. Its observations are stored aside, as for a truncation.
        """
        newest = (self.head - 1) % self.rows * self.n_envs + (np.arange(self.n_envs) if envs is None else envs)
        status = self._status[newest]
        goes_on = newest[(status & HAPPENED != 0) & (status & ENDED == 0)]
        if not len(goes_on):
            return
        self.cuts += 1
        led_to = (goes_on + self.n_envs) % (self.rows * self.n_envs)
        finals = {_SEEN + name: values for name, values in self.seen_at(led_to).items()}
        allowed = self._masks[led_to] if self.masked else np.True_
        self._finals.put(goes_on, {**finals, _MASK: np.asarray(allowed)})
        self._status[goes_on] |= TRUNCATED

    def retired(self) -> Array:
        """Entries that must not be sampled: after the newest steps, and those kept only for the frames of stacks."""
        return self._entries(self.rows - self.most).reshape(-1)

    # --- sampling

    def uniform_entries(self, generator: np.random.Generator, count: int) -> Array:
        """Sample `count` entries uniformly from the steps that happened."""
        oldest, size = (self.head - self.filled) * self.n_envs, self.rows * self.n_envs
        found = np.empty(0, np.int64)
        while len(found) < count:
            drawn: Array = (oldest + generator.integers(len(self), size=count)) % size
            happened = self.happened(drawn)
            if not len(found) and happened.all():
                return drawn
            found = np.concatenate([found, drawn[happened]])
        return found[:count]

    def happened(self, entries: Array) -> Array:
        """Whether the steps of these entries happened and are still stored."""
        return (self._status.take(entries) & HAPPENED).view(np.bool_)  # the lowest bit: 0 or 1

    def status_rows(self, rows_ago: int) -> Array:
        """Status bits [row, env] of the newest `rows_ago` rows, oldest first."""
        rows = (self.head - np.arange(rows_ago, 0, -1)) % self.rows
        return self._status.reshape(self.rows, self.n_envs)[rows]

    def status_of(self, entries: Array) -> Array:
        """Status bits of these entries, in the shape of `entries`."""
        return self._status.take(entries)

    def steps_at(self, entries: Array) -> tuple[Array, Array]:
        """Actions and rewards of these entries, in the shape of `entries`."""
        return self._actions.take(entries, axis=0, mode="clip"), self._rewards.take(entries, mode="clip")

    def seen_at(self, entries: Array) -> dict[str, Array]:
        """Observations [entry, ...] that the steps of these entries start from, per leaf."""
        return {name: store.read(entries) for name, store in self._stores.items()}

    def finals_at(self, entries: Array) -> tuple[dict[str, Array], Array]:
        """Final observations and action masks after the steps of these entries, which truncated their episodes."""
        finals = self._finals.read(entries)
        return {name: finals[_SEEN + name] for name in self._stores}, finals[_MASK]

    def allowed(self, entries: Array) -> Array | None:
        """Action masks [entry, action] of these steps; None if the environments have no masks."""
        return self._masks.take(entries, axis=0) if self.masked else None

    def take_batches(self, entries: Array, *, steps: int, gamma: float) -> list[Experience]:
        """Return a batch of n-step transitions for each row of entries [batch, step]; n is `steps`.

        Reading many batches at once is much faster.
        """
        flat, size = entries.reshape(-1), self.rows * self.n_envs
        returns, discounts, last, last_status = self._chains(flat, steps, gamma)
        after = (last + self.n_envs) % size
        # The observations of a batch and those to bootstrap from are adjacent, so a network can take both in one pass.
        both = np.empty((len(entries), 2, entries.shape[1]), np.int64)
        both[:, 0], both[:, 1] = entries, after.reshape(entries.shape)
        seen = self.seen_at(both.reshape(-1))
        masks = self._masks.take(after, axis=0) if self.masked else None
        cut = np.flatnonzero((last_status & ENDED) == TRUNCATED)
        if len(cut):
            count = entries.shape[1]
            at = cut + (cut // count + 1) * count  # positions of their bootstrap observations
            finals, final_masks = self.finals_at(last[cut])
            for name, values in seen.items():
                values[at] = finals[name]
            if masks is not None:
                masks[cut] = final_masks
        actions = self._actions.take(flat, axis=0)
        return [
            Experience(
                each,
                {name: array[2 * part.start : 2 * part.stop] for name, array in seen.items()},
                actions[part],
                returns[part],
                discounts[part],
                None if masks is None else masks[part],
            )
            for each, part in zip(entries, _parts(entries), strict=True)
        ]

    def _chains(self, entries: Array, steps: int, gamma: float) -> tuple[Array, Array, Array, Array]:
        """Return n-step returns, bootstrap discounts, last entries and their status of the chains from `entries`."""
        if steps == 1:
            last_status = self._status.take(entries)
            discounts = np.where(last_status & TERMINATED, np.float32(0.0), np.float32(gamma))
            return self._rewards.take(entries), discounts, entries, last_status
        ahead, factors = self._ahead(steps, gamma)
        chain = (entries + ahead) % len(self._status)  # [step, entry]
        status, rewards = self._status.take(chain), self._rewards.take(chain)
        # A chain continues if the step did not end its episode and the next one happened and is still stored.
        goes_on = ((status[:-1] & ENDED) == 0) & ((status[1:] & HAPPENED) != 0)
        goes_on = np.logical_and.accumulate(goes_on, axis=0)
        returns = rewards[0] + (goes_on * rewards[1:] * factors[1:-1, None]).sum(axis=0)
        more = goes_on.sum(axis=0)
        columns = np.arange(len(entries))
        last_status = status[more, columns]
        discounts = factors.take(more + 1)
        discounts[(last_status & TERMINATED) != 0] = 0.0
        return returns, discounts, chain[more, columns], last_status

    def _ahead(self, steps: int, gamma: float) -> tuple[Array, Array]:
        """Entry offsets of the steps of a chain, and the powers of gamma."""
        if (steps, gamma) not in self._aheads:
            factors = np.power(gamma, np.arange(steps + 1)).astype(np.float32)
            self._aheads[steps, gamma] = (np.arange(steps)[:, None] * self.n_envs, factors)
        return self._aheads[steps, gamma]

    # --- state: a checkpoint writes only the rows added since the last one

    def rows_since(self, rows_ago: int) -> dict[str, Array]:
        """Return the newest `rows_ago` rows, and the row after them, as plain arrays, oldest first."""
        rows = (self.head - np.arange(rows_ago, -1, -1)) % self.rows
        entries = rows[:, None] * self.n_envs + np.arange(self.n_envs)
        finals_at, finals = self._finals.held(entries.reshape(-1))
        parts = {
            "actions": self._actions[entries],
            "rewards": self._rewards[entries],
            "became": self._status[entries],  # the key in files of earlier versions
            "masks": self._masks[entries],
            "finals_at": finals_at,
            "final_masks": finals[_MASK],
            **{f"finals/{name}": finals[_SEEN + name] for name in self._stores},
        }
        for name, store in self._stores.items():
            parts |= {f"observations/{name}/{part}": array for part, array in store.rows(entries).items()}
        return parts

    def put_rows(self, piece: Mapping[str, Array]) -> None:
        """Append rows returned by `rows_since`."""
        entries = self._entries(len(piece["rewards"]))
        self._finals.drop(entries.reshape(-1))
        for name, store in self._stores.items():
            prefix = f"observations/{name}/"
            parts = {key.removeprefix(prefix): array for key, array in piece.items() if key.startswith(prefix)}
            store.put_rows(entries, parts)
        self._actions[entries], self._rewards[entries] = piece["actions"], piece["rewards"]
        self._status[entries], self._masks[entries] = piece["became"], piece["masks"]
        self.masked = self.masked or bool(piece["masks"].any())  # all False if the environments have no masks
        finals = {_SEEN + name: piece[f"finals/{name}"] for name in self._stores}
        allowed = piece.get("final_masks", np.asarray(True))  # older files have none
        self._finals.put(entries.reshape(-1)[piece["finals_at"]], {**finals, _MASK: allowed})
        self._advance(len(entries) - 1)


def _parts(entries: Array) -> list[slice]:
    """Slice of each row of entries [batch, step] in the flattened array."""
    count = entries.shape[1]
    return [slice(i * count, (i + 1) * count) for i in range(len(entries))]
