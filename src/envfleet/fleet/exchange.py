"""The exchange: the data between the caller and the fleet's arrays. Actions go in, step results come out.

It keeps the data that is needed between steps: the slot of each group's newest observations, which episodes have
ended, the columns of infos, and the statistics. It sends no commands; that is the supervisor's job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envfleet.errors import StateError
from envfleet.fleet.actions import ActionWriter
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.control import Outcome
from envfleet.fleet.infos import ColumnTable, add_info
from envfleet.fleet.lifecycle import WorkerLoad
from envfleet.fleet.requests import DefineColumns, Request
from envfleet.fleet.rows import Rows
from envfleet.fleet.spaces import Path, rebuild, row_of
from envfleet.fleet.statistics import FleetStatistics, StatisticsKeeper
from envfleet.fleet.worker import Answers

__all__ = ["Exchange", "StepResult"]

Array = np.ndarray[Any, Any]
StepResult = tuple[Any, Array, Array, Array, dict[str, Any]]
MOST_KNOWN = 256  # combinations of groups whose rows are remembered


class Exchange:
    """Writes actions, and turns the arrays and the groups' answers into batches."""

    def __init__(
        self,
        arrays: FleetArrays,
        groups: list[range],
        *,
        copy: bool,
        same_step: bool,
        announce: Callable[[Request], None],
    ) -> None:
        """`announce` lets every group carry out a request before its next step."""
        self.arrays, self._groups, self._copy, self._same_step = arrays, groups, copy, same_step
        self._space, self._leaves = arrays.shape.observation_space, arrays.shape.observation_leaves
        self._fixed = all(leaf.fixed for leaf in self._leaves)
        self._plain = self._fixed and [leaf.path for leaf in self._leaves] == [()]  # one array, no Dict or Tuple
        self.all = Rows.of(range(len(groups)), groups)
        self._slots = [0] * len(groups)  # slot of each group's newest observations
        self._ended = np.zeros(self.all.count, np.bool_)  # environments whose last step ended an episode
        self._none_ended = np.zeros(self.all.count, np.bool_)
        self._some_ended = True  # some of `_ended` may be set
        self._actions = ActionWriter(arrays)
        self.write_actions, self.last_action = self._actions.write, self._actions.last
        self._columns, self._announce = ColumnTable(arrays.columns, self.all.count), announce
        self._statistics = StatisticsKeeper(arrays)
        self._rows_by_ids: dict[bytes, Rows] = {}
        self._rows_by_groups: dict[tuple[int, ...], Rows] = {}

    # --- rows and slots

    def rows_of(self, env_ids: Sequence[int] | Array) -> Rows:
        """Rows of the given environments, which must form whole groups."""
        ids = np.asarray(env_ids)
        key = ids.tobytes()
        if key not in self._rows_by_ids:
            if len(self._rows_by_ids) == MOST_KNOWN:
                self._rows_by_ids.clear()
            self._rows_by_ids[key] = Rows.of_env_ids(ids, self._groups)
        return self._rows_by_ids[key]

    def rows_of_groups(self, groups: list[int]) -> Rows:
        """Rows of these groups, in the order of the fleet."""
        key = tuple(sorted(groups))
        if key not in self._rows_by_groups:
            if len(self._rows_by_groups) == MOST_KNOWN:
                self._rows_by_groups.clear()
            self._rows_by_groups[key] = Rows.of(key, self._groups)
        return self._rows_by_groups[key]

    def next_slot(self) -> int:
        """The slot that all groups fill next."""
        slot = 1 - self._slots[0]
        if slot in self._slots:
            self.newest_slot()
        self._slots = [slot] * len(self._groups)
        return slot

    def set_slot(self, slot: int) -> None:
        """Note that all groups fill this slot now."""
        self._slots = [slot] * len(self._groups)

    def slots_of(self, groups: Sequence[int]) -> list[int]:
        """The slots with the newest observations of these groups."""
        return [self._slots[group] for group in groups]

    def next_slots(self, groups: Sequence[int]) -> list[int]:
        """The slots that these groups fill next: for each, its other one."""
        slots = [1 - self._slots[group] for group in groups]
        for group, slot in zip(groups, slots, strict=True):
            self._slots[group] = slot
        return slots

    def newest_slot(self) -> int:
        """The slot with the newest observations of all groups; after send() and recv(), first copies some of them."""
        slot = self._slots[0]
        for group, other in enumerate(self._slots):
            if other != slot:
                rows = slice(self._groups[group].start, self._groups[group].stop)
                for path, array in self.arrays.observations[other].items():
                    self.arrays.observations[slot][path][rows] = array[rows]
                self.arrays.rewrites += 1
                self._slots[group] = slot
        return slot

    # --- results

    def results(self, answers: Answers, rows: Rows) -> StepResult:
        """Step result of these rows, in the form of Gymnasium's vector API."""
        arrays = self.arrays
        if rows is self.all:
            rewards, terminated, truncated = arrays.reward.copy(), arrays.terminated.copy(), arrays.truncated.copy()
        else:
            rewards, terminated, truncated = map(rows.copy, (arrays.reward, arrays.terminated, arrays.truncated))
        observations = self._observations(answers, rows)
        infos = self._infos(answers, rows) if answers.columns or answers.messages else {}
        if answers.outcome & Outcome.ENDED:
            ended = terminated | truncated
            self._statistics.episodes(rows.env_ids[ended].tolist())
            if self._same_step and self._fixed:  # final observations that are objects are in the infos already
                self._add_final_observations(infos, rows, ended)
            rows.put(self._ended, ended)
            self._some_ended = True
        elif self._some_ended:
            rows.put(self._ended, self._none_ended[: rows.count])
            self._some_ended = bool(self._ended.any())
        self._statistics.steps += rows.count
        return observations, rewards, terminated, truncated, infos

    def reset_results(self, answers: Answers, mask: Array | None) -> tuple[Any, dict[str, Any]]:
        """Results of a reset of the environments in `mask` (all if it is None)."""
        self._ended[...] = False if mask is None else self._ended & ~mask
        return self._observations(answers, self.all), self._infos(answers, self.all)

    def routine_done(self, slots: dict[int, int], steps: int) -> None:
        """Note where some groups' routines left the newest observations, after `steps` steps of each environment."""
        for group, slot in slots.items():
            self._slots[group] = slot
            self._statistics.steps += steps * len(self._groups[group])

    def _observations(self, answers: Answers, rows: Rows) -> Any:
        if self._plain and rows is self.all:  # the usual case, without further calls
            batch = self.arrays.observations[self._slots[0]][()]
            return batch.copy() if self._copy else batch
        parts: dict[Any, Any] = {}
        for leaf in self._leaves:
            if leaf.fixed:
                parts[leaf.path] = self._leaf(rows, leaf.path)
            else:
                objects = [answers.messages[group].objects[leaf.path] for group in rows.groups]
                parts[leaf.path] = tuple(value for part in objects for value in part)
        return rebuild(self._space, parts)

    def _leaf(self, rows: Rows, path: Path) -> Array:
        """Newest observations of these rows at one leaf: a copy, or with copy=False a view if possible."""
        slots, observations = self._slots, self.arrays.observations
        slot = slots[rows.groups[0]]
        if 1 - slot not in slots or all(slots[group] == slot for group in rows.groups):
            return rows.copy(observations[slot][path]) if self._copy else rows.take(observations[slot][path])
        ranges = [(group, self._groups[group]) for group in rows.groups]
        return np.concatenate([observations[slots[group]][path][envs.start : envs.stop] for group, envs in ranges])

    def _infos(self, answers: Answers, rows: Rows) -> dict[str, Any]:
        """Batched infos of these rows; new keys get a column for the next step."""
        infos: dict[str, Any] = {}
        if answers.columns:
            self._columns.read(answers.columns, rows.slices, infos)
        known = self._columns.count
        for group, extras in answers.messages.items():
            first = rows.parts[rows.groups.index(group)].start
            for i, info in extras.infos:
                add_info(infos, info, first + i, rows.count)
                self._columns.learn(info)
        if self._columns.count > known:
            self.arrays.column_definitions = self._columns.definitions
            self._announce(DefineColumns(self._columns.definitions))
        return infos

    def _add_final_observations(self, infos: dict[str, Any], rows: Rows, ended: Array) -> None:
        """For same-step autoreset, add the last observations of ended episodes to the infos, as Gymnasium does."""
        final = np.full(rows.count, None, dtype=object)
        for row in np.flatnonzero(ended):
            env = rows.env_ids[row]
            final[row] = rebuild(self._space, {path: row_of(array, env) for path, array in self.arrays.final.items()})
        infos["final_obs"], infos["_final_obs"] = final, ended.copy()

    # --- ended episodes

    def ended_envs(self, rows: Rows) -> list[int]:
        """The environments of these rows whose last step ended an episode."""
        return [int(env) for env in rows.env_ids[rows.take(self._ended)]]

    def awaits_reset(self, group: int) -> list[bool]:
        """For each environment of a group, whether its next step only resets it."""
        envs = self._groups[group]
        return [False] * len(envs) if self._same_step else self._ended[envs.start : envs.stop].tolist()

    # --- state and statistics

    def state(self) -> dict[str, Any]:
        """Ended episodes and newest observations by leaf name, as a part of the fleet's state."""
        if not self._fixed:
            raise StateError("observations of Text, Graph or Sequence spaces cannot be saved as plain data")
        newest = self.arrays.observations[self.newest_slot()]
        return {
            "ended": self._ended.copy(),
            "observations": {leaf.name: newest[leaf.path].copy() for leaf in self._leaves},
        }

    def load(self, state: dict[str, Any]) -> Any:
        """Write saved data back, into slot 0."""
        self._ended[...] = state["ended"]
        self._some_ended = True
        saved = state["observations"]
        for leaf in self._leaves:
            array = self.arrays.observations[0][leaf.path]
            if leaf.name not in saved or saved[leaf.name].shape != array.shape:
                raise StateError(f"the state has no observations for {leaf.name!r} of shape {array.shape}")
            array[...] = saved[leaf.name]
        self.arrays.rewrites += 1
        self._slots = [0] * len(self._groups)

    def observations(self) -> Any:
        """Newest observations of all environments."""
        self.newest_slot()
        return self._observations(Answers(), self.all)

    def statistics(self, workers: list[WorkerLoad]) -> FleetStatistics:
        return self._statistics.summary(workers)
