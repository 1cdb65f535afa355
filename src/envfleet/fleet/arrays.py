"""The arrays of a fleet in one memory block: observations, actions, rewards, ends, episode statistics, infos.

Observations have two slots that alternate, so the last observation stays intact while the next one is written.
A worker that is killed halfway leaves no half-written observation, and a view that the caller holds stays valid
for one more step.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from envfleet.fleet.control import Control
from envfleet.fleet.infos import ColumnDefinition
from envfleet.fleet.memory import Division, Layout
from envfleet.fleet.routine import ExtraArray
from envfleet.fleet.spaces import Leaf, Path, leaves_of

__all__ = ["FleetArrays", "FleetShape"]

Array = np.ndarray[Any, Any]
SLOTS = 2
EXTRA = "extra/"  # prefix of the arrays of a routine
COLUMN_BYTES_PER_ENV, COLUMN_BYTES = 4096, 65536  # reserved for info columns; uses no memory until written


@dataclass(frozen=True)
class FleetShape:
    """The values from which the caller and every worker compute the same layout."""

    n_envs: int
    workers: int
    groups: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    extra: tuple[ExtraArray, ...] = ()  # arrays of the workers' routine
    numbers: int = 0  # number of info keys that are tracked over each episode

    @property
    def observation_leaves(self) -> list[Leaf]:
        return leaves_of(self.observation_space)

    @property
    def action_leaves(self) -> list[Leaf]:
        return leaves_of(self.action_space)

    def layout(self) -> Layout:
        layout, n = Layout(), self.n_envs
        Control(self.workers, self.groups).add_to(layout)
        for name, dtype, division in _PER_ENV:
            layout.add(name, (n,), dtype, division)
        layout.add("episode_numbers", (n, self.numbers), np.float64, _AT_ENDS)
        for leaf in self.action_leaves:
            if leaf.fixed:
                layout.add(f"action/{leaf.name}", (n, *leaf.shape), leaf.dtype, Division(to_worker="step"))
        layout.add("columns", (COLUMN_BYTES + n * COLUMN_BYTES_PER_ENV,), np.uint8)
        for leaf in self.observation_leaves:
            if leaf.fixed:
                layout.add(f"observation/final/{leaf.name}", (n, *leaf.shape), leaf.dtype, _AT_ENDS)
                for slot in range(SLOTS):
                    division = Division(to_caller="routine", slot=slot)
                    layout.add(f"observation/{slot}/{leaf.name}", (n, *leaf.shape), leaf.dtype, division)
        for array in self.extra:
            layout.add(f"{EXTRA}{array.name}", array.shape, array.dtype, array.division)
        return layout


_RESULT = Division(to_caller="always")
_AT_ENDS = Division(to_caller="always", only_at=("terminated", "truncated"))
_PER_ENV = [
    ("reward", np.float64, _RESULT),
    ("terminated", np.bool_, _RESULT),
    ("truncated", np.bool_, _RESULT),
    ("lost", np.bool_, _RESULT),  # the step never happened: its environment failed or its worker died
    ("episode_return", np.float64, _AT_ENDS),
    ("episode_length", np.int64, _AT_ENDS),
    ("episode_seconds", np.float64, _AT_ENDS),
]


class FleetArrays:
    """The arrays of the mapped block, as attributes, and by name (`views`)."""

    def __init__(self, shape: FleetShape, layout: Layout, buffer: mmap.mmap) -> None:
        self.shape = shape
        self.views = views = layout.views(buffer)
        self.places, self._buffer = layout.places, buffer
        self.rewrites = 0  # how often the caller itself has changed observations
        self.column_definitions: list[ColumnDefinition] = []  # columns of infos that the caller has defined so far
        self.control = Control(shape.workers, shape.groups)
        self.control.map(layout, buffer)
        self.reward, self.terminated, self.truncated = (views[n] for n in ("reward", "terminated", "truncated"))
        self.episode_return, self.episode_length = views["episode_return"], views["episode_length"]
        self.episode_seconds = views["episode_seconds"]
        self.episode_numbers = views["episode_numbers"]  # [env, key of log_info], set when an episode ends
        self.lost = views["lost"]
        self.columns = views["columns"]
        self.extra = {array.name: views[f"{EXTRA}{array.name}"] for array in shape.extra}
        self.actions: dict[Path, Array] = {
            leaf.path: views[f"action/{leaf.name}"] for leaf in shape.action_leaves if leaf.fixed
        }
        fixed = [leaf for leaf in shape.observation_leaves if leaf.fixed]
        self.observations: list[dict[Path, Array]] = [
            {leaf.path: views[f"observation/{slot}/{leaf.name}"] for leaf in fixed} for slot in range(SLOTS)
        ]
        self.final: dict[Path, Array] = {leaf.path: views[f"observation/final/{leaf.name}"] for leaf in fixed}

    def bytes_of(self, name: str, start: int, stop: int, kind: Literal["B", "d"]) -> memoryview[Any]:
        """Part of a one-dimensional array as a memoryview, which is the fastest way to set one number."""
        place = self.places[name]
        size = np.dtype(place.dtype).itemsize
        part = memoryview(self._buffer)[place.offset + start * size : place.offset + stop * size]
        return part.cast("d") if kind == "d" else part.cast("B")
