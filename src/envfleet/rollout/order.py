"""The order of an asynchronous run: which worker's rollout entered which update. It allows an exact replay.

Timing affects an asynchronous run only through this order: a rollout is determined by its groups, its number and the
version of its weights. So a replay collects the same rollouts with the same weights, one after the other, on any
backend.

The file has one JSON object per line. The first gives the groups of each worker; then there is a line per update:

    {"order": 1, "groups": [[0, 2], [1, 3]]}
    {"update": 0, "rollouts": [[1, 0, 0], [0, 0, 0]], "lost": 0}

A rollout is [worker, number, version]; `lost` counts steps lost with a worker that died.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.errors import SettingsError
from envfleet.rollout.worker_rollouts import OnDemand, WorkerRequests, WorkerRollout

__all__ = ["Order", "OrderWriter", "ReplayedRollouts"]

Array = np.ndarray[Any, Any]
FORMAT = 1


class OrderWriter:
    """Writes the order of a run, a line per update."""

    def __init__(self, path: Path, groups: Sequence[Sequence[int]], update: int) -> None:
        """Begin a new file, or continue that of a resumed run before `update`."""
        kept = path.read_text().splitlines() if update and path.exists() else []
        lines = [line for line in kept if _update_in(line) < update]
        if update:
            lines.append(json.dumps({"resumed": update}))
        else:
            lines.append(json.dumps({"order": FORMAT, "groups": [list(part) for part in groups]}))
        aside = path.with_name(f".{path.name}")
        aside.write_text("".join(f"{line}\n" for line in lines))
        aside.replace(path)
        self._path = path

    def write(self, update: int, rollouts: Sequence[WorkerRollout], lost: int) -> None:
        taken = [[rollout.worker, rollout.number, rollout.version] for rollout in rollouts]
        with self._path.open("a") as file:
            file.write(json.dumps({"update": update, "rollouts": taken, "lost": lost}) + "\n")


def _update_in(line: str) -> float:
    """The update of a line, -1 for a line of another kind; infinite for the cut last line of a killed run."""
    content = _parsed(line)
    return math.inf if content is None else float(content.get("update", -1))


def _parsed(line: str) -> Any:
    """The content of a line; None for the cut last line of a killed run."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _refuse_changed(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Raise SettingsError if something happened in the run that a replay cannot repeat."""
    for line in lines:
        if "resumed" in line:
            happened = f"the run was resumed before update {line['resumed']}, with fresh episodes"
            hint = "only a run that was never resumed can be replayed: record another one"
        elif line["lost"]:
            happened = f"a worker died and lost steps in update {line['update']}"
            hint = "only a run in which no worker died can be replayed: record another one"
        else:
            continue
        raise SettingsError(f"the order {path} cannot be replayed: {happened}", hint=hint)


@dataclass(frozen=True)
class Order:
    """A recorded order: the groups of each worker, and (worker, number, version) of each rollout in turn."""

    path: Path
    groups: list[list[int]]
    rollouts: list[tuple[int, int, int]]
    updates: int

    @classmethod
    def read(cls, path: Path) -> Order:
        """Read a file of `OrderWriter`; raise SettingsError if it cannot be replayed."""
        try:
            written = path.read_text().splitlines()
            if len(written) > 1 and _parsed(written[-1]) is None:
                del written[-1]
            first, *lines = map(json.loads, written)
            if first["order"] != FORMAT:
                raise ValueError(f"it has format {first['order']}, expected {FORMAT}")
            _refuse_changed(path, lines)
            rollouts = [(int(w), int(n), int(v)) for line in lines for w, n, v in line["rollouts"]]
            return cls(path, first["groups"], rollouts, len(lines))
        except SettingsError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SettingsError(
                f"the order {path} cannot be replayed: {error}",
                hint="replay_order needs the order.jsonl of an async run that was recorded with record_order",
            ) from None

    def refuse_other(self, groups: int) -> None:
        """Raise SettingsError if the order belongs to a fleet with another number of groups."""
        recorded = sum(map(len, self.groups))
        if recorded != groups:
            raise SettingsError(
                f"the order {self.path} is one of {recorded} groups of environments, but this run has {groups}",
                hint="replay it with all settings of the recorded run: --config RUN/config.yaml",
            )


class ReplayedRollouts(OnDemand):
    """Collects the rollouts of a recorded order, one after the other, each with the weights of its version."""

    def __init__(self, requests: WorkerRequests, order: Order) -> None:
        self._requests, self._order = requests, order
        self.arrays, self.groups = requests.arrays, requests.groups
        self.while_waiting: Callable[[], None] | None = None
        self._last_use = {version: at for at, (_, _, version) in enumerate(order.rollouts)}
        self._weights: dict[int, Array] = {}  # by version, as long as a later rollout needs them
        self._taken = 0

    def publish(self, weights: Array, version: int) -> None:
        if self._last_use.get(version, -1) >= self._taken:
            self._weights[version] = weights.copy()

    def next(self, until: float = math.inf) -> WorkerRollout:
        if self._taken == len(self._order.rollouts):
            raise SettingsError(
                f"the order {self._order.path} ends after {self._order.updates} updates",
                hint="the recorded run was stopped there: train for as many --steps as it has",
            )
        worker, number, version = self._order.rollouts[self._taken]
        if version not in self._weights:
            raise SettingsError(
                f"the order {self._order.path} has a rollout of version {version} before that version exists",
                hint="the file is damaged",
            )
        buffer = self._requests.collect(worker, number, self._weights[version], until, self.while_waiting)
        if self._last_use[version] == self._taken:
            del self._weights[version]
        self._taken += 1
        return WorkerRollout(worker, number, version, buffer)

    @property
    def next_number(self) -> int:
        return 1 + max((number for _, number, _ in self._order.rollouts[: self._taken]), default=-1)

    def resume(self, number: int) -> None:
        raise SettingsError(
            "a replay cannot be resumed: it would begin fresh episodes",
            hint="start it again, or continue from its weights with --init-from",
        )
