"""The code that both kinds of group share: their rows of the fleet's arrays, and the state that a worker reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.control import Progress
from envfleet.fleet.episode_numbers import EpisodeNumbers
from envfleet.fleet.group import InfoSink
from envfleet.fleet.infos import ColumnDefinition, ColumnWriter
from envfleet.fleet.observations import ObservationStore
from envfleet.fleet.routine import GroupRoutine
from envfleet.fleet.spec import GroupSettings, GroupSpec

__all__ = ["GroupBase"]


class GroupBase:
    """The common part of a loop and a pool. It steps nothing."""

    def __init__(self, spec: GroupSpec, settings: GroupSettings) -> None:
        self.spec, self._settings = spec, settings
        self._same_step = settings.autoreset is AutoresetMode.SAME_STEP
        self._numbers = EpisodeNumbers(settings.log_info, len(spec))
        self.episode_ended = self.fresh = False
        self.routine: GroupRoutine | None = None
        self.info_sink: InfoSink | None = None

    def _attach(self, arrays: FleetArrays, worker: int, own: Sequence[spaces.Space[Any]]) -> None:
        """Find the rows of this group; `own` has the observation space of each environment."""
        start, stop = self.spec.start, self.spec.stop
        rows = slice(start, stop)
        self._progress = Progress(arrays.control, worker)
        self._some_flags = True  # so that the first step clears flags that a dead worker may have left
        self._episode_return, self._episode_length = arrays.episode_return[rows], arrays.episode_length[rows]
        self._episode_seconds, self._episode_numbers = arrays.episode_seconds[rows], arrays.episode_numbers[rows]
        self._action_space = arrays.shape.action_space
        self._actions = {path: array[rows] for path, array in arrays.actions.items()}
        own_spaces = list(own) if self._settings.own_spaces else None
        self._observations = ObservationStore(arrays, rows, validation=self._settings.validation, own_spaces=own_spaces)
        self._columns = ColumnWriter(arrays.columns, arrays.shape.n_envs, start, stop)

    def starting(self) -> AbstractContextManager[None]:
        return self._progress.starting()

    def define_columns(self, definitions: list[ColumnDefinition]) -> None:
        self._columns.define(definitions)

    @property
    def newest_slot(self) -> int:
        return self._observations.last_slot

    @property
    def columns_present(self) -> int:
        return self._columns.present
