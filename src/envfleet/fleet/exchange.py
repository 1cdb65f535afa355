"""The exchange: takes actions and returns step results, for all groups in lockstep or for some of them.

It keeps the data that is needed between steps: the slot of each group's newest observations, the info columns that
each group knows, and which episodes have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.control import Outcome
from envfleet.fleet.infos import ColumnTable, add_info
from envfleet.fleet.requests import DefineColumns, StepObjects
from envfleet.fleet.rows import BatchReader, Rows
from envfleet.fleet.statistics import StatisticsKeeper
from envfleet.fleet.supervisor import Supervisor
from envfleet.fleet.worker import Answers

__all__ = ["Exchange", "StepResult"]

Array = np.ndarray[Any, Any]
StepResult = tuple[Any, Array, Array, Array, dict[str, Any]]


class Exchange:
    """Posts steps to groups and turns their answers into batches."""

    def __init__(
        self, supervisor: Supervisor, arrays: FleetArrays, groups: list[range], *, copy: bool, same_step: bool
    ) -> None:
        self._supervisor, self._groups, self._same_step = supervisor, groups, same_step
        self.reader = BatchReader(arrays, copy=copy)
        self.keeper = StatisticsKeeper(arrays)
        self.all = Rows.of(range(len(groups)), groups)
        self.sizes = [len(group) for group in groups]
        self.slots = [0] * len(groups)  # slot of each group's newest observations
        self.ended = np.zeros(groups[-1].stop, np.bool_)  # environments whose last step ended an episode
        self._none_ended = np.zeros(groups[-1].stop, np.bool_)
        self._some_ended = True  # some of `ended` may be set
        self.object_actions = not all(leaf.fixed for leaf in arrays.shape.action_leaves)
        self._columns = ColumnTable(arrays.columns, groups[-1].stop)
        self._columns_known = [0] * len(groups)  # how many columns each group knows
        self._known_by_all = 0  # how many columns every group knows
        self._rows_by_ids: dict[bytes, Rows] = {}
        self._rows_by_groups: dict[tuple[int, ...], Rows] = {}

    def post(self, actions: Any, rows: Rows, slot: int | None) -> None:
        """Post a step to the groups of `rows`: all into `slot`, or, if None, each into its other slot."""
        self._tell_new_columns(rows)
        if self.object_actions:
            listed = self.reader.list_actions(actions, rows)
            for group, part in zip(rows.groups, rows.parts, strict=True):
                self.slots[group] = 1 - self.slots[group] if slot is None else slot
                self._supervisor.post(group, self.slots[group], StepObjects(listed[part]))
            return
        self.reader.store_actions(actions, rows)
        if slot is not None and self._supervisor.can_lockstep:
            self.slots = [slot] * len(self._groups)
            self._supervisor.post_lockstep(slot)
            return
        for group in rows.groups:
            self.slots[group] = 1 - self.slots[group]
            self._supervisor.post(group, self.slots[group])

    def step_inline(self, actions: Any, step: Callable[[int], Answers]) -> StepResult:
        """Step all groups within this call with `step`: the fast path for a caller that hosts all of them."""
        self._tell_new_columns(self.all)
        self.reader.store_actions(actions, self.all)
        slot = self.next_slot()
        self.slots = [slot] * len(self._groups)
        return self.results(self.all, step(slot))

    def _tell_new_columns(self, rows: Rows) -> None:
        if self._columns.count != self._known_by_all or self._supervisor.forgetful:
            for group in rows.groups:
                if self._columns_known[group] != self._columns.count or group in self._supervisor.forgetful:
                    self.tell_columns(group)
            self._known_by_all = min(self._columns_known)

    def next_slot(self) -> int:
        """The slot that all groups fill next; after send() and recv(), first copies them to a common slot."""
        slot = 1 - self.slots[0]
        if slot in self.slots:
            for group, at in enumerate(self.slots):
                if at == slot:
                    self.reader.copy_slot(slot, 1 - slot, self._groups[group])
            self.slots = [1 - slot] * len(self.slots)
        return slot

    def results(self, rows: Rows, answers: Answers) -> StepResult:
        """Step result of these rows, in the form of Gymnasium's vector API."""
        slot = self.slots[rows.groups[0]]
        if 1 - slot not in self.slots or all(self.slots[group] == slot for group in rows.groups):
            observations = self.reader.observations(slot, rows, answers)
        else:
            observations = self.reader.mixed_observations(self.slots, rows, answers)
        rewards, terminated, truncated = self.reader.outcomes(rows)
        infos = self.infos(rows, answers) if answers.columns or answers.messages else {}
        if answers.outcome & Outcome.ENDED:
            ended = terminated | truncated
            self.keeper.episodes(rows.env_ids[ended].tolist())
            if self._same_step:
                self.reader.add_final_observations(infos, rows, ended)
            rows.put(self.ended, ended)
            self._some_ended = True
        elif self._some_ended:
            rows.put(self.ended, self._none_ended[: rows.count])
            self._some_ended = bool(self.ended.any())
        self.keeper.steps += rows.count
        return observations, rewards, terminated, truncated, infos

    def infos(self, rows: Rows, answers: Answers) -> dict[str, Any]:
        """Batched infos of these rows; new keys get a column for the next step."""
        infos: dict[str, Any] = {}
        if answers.columns:
            self._columns.read(answers.columns, rows.slices, infos)
        for group, extras in answers.messages.items():
            first = rows.parts[rows.groups.index(group)].start
            for i, info in extras.infos:
                add_info(infos, info, first + i, rows.count)
                self._columns.learn(info)
        return infos

    def tell_columns(self, group: int) -> None:
        """Send a group the definitions of all info columns."""
        self._supervisor.forgetful.discard(group)
        if self._columns.count:
            self._supervisor.ask({group: DefineColumns(self._columns.definitions)}, self.slots[group])
        self._columns_known[group] = self._columns.count

    def rows_of(self, env_ids: Sequence[int] | Array) -> Rows:
        """Rows of the given environments, which must form whole groups."""
        ids = np.asarray(env_ids)
        key = ids.tobytes()
        if key not in self._rows_by_ids:
            self._rows_by_ids[key] = Rows.of_env_ids(ids, self._groups)
        return self._rows_by_ids[key]

    def rows_of_groups(self, groups: list[int]) -> Rows:
        key = tuple(groups)
        if key not in self._rows_by_groups:
            self._rows_by_groups[key] = Rows.of(sorted(groups), self._groups)
        return self._rows_by_groups[key]
