"""Collectors: rollouts from a fleet, with the policy in the workers or in the caller.

`begin` starts a rollout with the weights published last, `finish` waits for it. In between the caller can do other
work, e.g. learn from the previous rollout.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

import numpy as np

from envfleet.clock import GRACE_SECONDS, check_time, deadline_of_workers
from envfleet.errors import OutOfTimeError
from envfleet.fleet.fleet import Fleet
from envfleet.rollout.acting import EpisodeStatistics, RolloutRecorder, RolloutRequest
from envfleet.rollout.arrays import Rollout, private_arrays
from envfleet.rollout.routine import ActingRoutine

__all__ = ["CentralCollector", "Collector", "WorkerCollector"]

Array = np.ndarray[Any, Any]
_WAIT_SECONDS = 0.25  # interval for polling a rollout that another thread collects


class Collector(Protocol):
    """Fills the buffers of rollouts in turn."""

    arrays: Mapping[str, Array]
    while_waiting: Callable[[], None] | None  # called regularly while `finish` waits, in the waiting thread

    @property
    def steps_so_far(self) -> int:
        """Steps of all environments in the current rollout."""

    def publish(self, weights: Array) -> None:
        """Set the weights for future rollouts. Must not be called during a rollout."""

    def begin(self, number: int, until: float = math.inf) -> None:
        """Start rollout `number`. It is abandoned at the time `until` (`time.monotonic`)."""

    def finish(self) -> Rollout:
        """Wait for the current rollout and return it.

        Raises OutOfTimeError if it was abandoned; then nothing more can be collected.
        """

    def collected(self, number: int) -> Rollout:
        """Return the buffer of rollout `number` as it is, after its arrays were restored from a checkpoint."""

    def close(self) -> None: ...


class WorkerCollector:
    """Collects with the policy in the workers; the fleet was made with an `ActingRoutine`."""

    def __init__(self, fleet: Fleet, routine: ActingRoutine, seed: int) -> None:
        self._fleet, self._routine, self._seed = fleet, routine, seed
        self.arrays: Mapping[str, Array] = fleet.routine_arrays
        self.while_waiting: Callable[[], None] | None = None
        self._request: RolloutRequest | None = None
        self._until = math.inf

    def publish(self, weights: Array) -> None:
        self.arrays["weights"][0] = weights

    def begin(self, number: int, until: float = math.inf) -> None:
        self.arrays["progress"][...] = 0
        each_step = self.while_waiting if self._fleet.backend == "sequential" else None
        self._until, theirs = until, deadline_of_workers(until, self._fleet.hosts)
        self._request = RolloutRequest(
            number, number % self._routine.buffers, self._routine.steps, self._seed, theirs, each_step
        )
        self._fleet.run_async(self._request, self._request.buffer)

    def finish(self) -> Rollout:
        assert self._request is not None, "begun before it is finished"
        self._fleet.run_wait(self._request.steps, self.while_waiting, self._until)
        return Rollout.of(self.arrays, self._request.buffer, self._request.number)

    @property
    def steps_so_far(self) -> int:
        done = np.minimum(self.arrays["progress"], self._routine.steps).tolist()
        return sum(steps * len(group) for steps, group in zip(done, self._fleet.groups, strict=True))

    def collected(self, number: int) -> Rollout:
        return Rollout.of(self.arrays, number % self._routine.buffers, number)

    def close(self) -> None:
        """Nothing to close: the fleet is closed by its owner."""


class CentralCollector:
    """Collects with the policy in the caller: one group at a time, with the same batch shape as in a worker.

    `groups` are the policy's batches (default: the groups of the fleet). The fleet may step its environments in other
    groups; that does not change results.

    One long-lived thread collects, so that the caller can learn at the same time.
    """

    def __init__(self, fleet: Fleet, routine: ActingRoutine, seed: int, groups: Sequence[range] | None = None) -> None:
        self._fleet, self._routine, self._seed = fleet, routine, seed
        self._groups = fleet.groups if groups is None else list(groups)
        space = fleet.single_observation_space
        actor = routine.make_actor(space, fleet.single_action_space)
        self.arrays: Mapping[str, Array] = private_arrays(
            routine.shape(actor, space, fleet.num_envs, len(self._groups)).arrays()
        )
        self._recorders = [
            RolloutRecorder(
                actor,
                self.arrays,
                rows,
                group=index,
                piece_length=routine.piece_length,
                observation_space=space,
            )
            for index, rows in enumerate(self._groups)
        ]
        self._actions = np.zeros(fleet.action_space.shape or (), fleet.action_space.dtype)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="envfleet-collector")
        self._under_way: Future[Rollout] | None = None
        self._until = math.inf
        self.while_waiting: Callable[[], None] | None = None
        self.steps_so_far = 0

    def publish(self, weights: Array) -> None:
        self.arrays["weights"][0] = weights

    def see_infos(self, infos: dict[str, Any]) -> None:
        """Record the action masks of a reset or step, and those of episodes that ended in it."""
        final = infos.get("final_info", {})
        given, given_at_end = infos.get("_action_mask"), final.get("_action_mask")
        if given is None and given_at_end is None:
            return
        for recorder, rows in zip(self._recorders, self._groups, strict=True):
            for row in rows:
                if given_at_end is not None and given_at_end[row]:
                    recorder.see_info(row - rows.start, {"final_info": {"action_mask": final["action_mask"][row]}})
                if given is not None and given[row]:
                    recorder.see_info(row - rows.start, {"action_mask": infos["action_mask"][row]})

    def begin(self, number: int, until: float = math.inf) -> None:
        request = RolloutRequest(number, number % self._routine.buffers, self._routine.steps, self._seed, until)
        self.steps_so_far = 0
        self._until, self._under_way = until, self._thread.submit(self._collect, request)

    def finish(self) -> Rollout:
        assert self._under_way is not None, "begun before it is finished"
        looks = self.while_waiting is not None or self._until < math.inf
        while not wait([self._under_way], _WAIT_SECONDS if looks else None).done:
            if self.while_waiting is not None:
                self.while_waiting()
            if time.monotonic() >= self._until + GRACE_SECONDS:
                raise OutOfTimeError
        return self._under_way.result()

    def _collect(self, request: RolloutRequest) -> Rollout:
        fleet, arrays, clock = self._fleet, self._fleet.last_step, time.perf_counter
        fleet.relocation.move_idle(range(len(fleet.groups)))
        recorders = list(zip(self._recorders, self._groups, strict=True))
        self.arrays["progress"][...] = 0
        for recorder, _ in recorders:
            recorder.begin(request, fresh=False)
        self._observe(0)
        acting = stepping = 0.0
        for t in range(request.steps):
            check_time(request.until)
            began = clock()
            for recorder, rows in recorders:
                self._actions[rows.start : rows.stop] = recorder.decide(t)
            decided = clock()
            _, rewards, terminated, truncated, infos = fleet.step(self._actions)
            stepping += clock() - decided
            self.see_infos(infos)
            ended = bool((terminated | truncated).any())
            for recorder, rows in recorders:
                part = slice(rows.start, rows.stop)
                recorder.store_rewards(t, rewards[part])
                if ended:
                    statistics = EpisodeStatistics.of(arrays, part)
                    final = {"/".join(map(str, path)): array[part] for path, array in arrays.final.items()}
                    recorder.ended(t, terminated[part], truncated[part], arrays.lost[part], statistics, final)
            self._observe(t + 1)
            self.steps_so_far += fleet.num_envs
            acting += clock() - began
        for recorder, _ in recorders:
            recorder.finish((stepping / len(recorders), (acting - stepping) / len(recorders)))
        return Rollout.of(self.arrays, request.buffer, request.number)

    def _observe(self, t: int) -> None:
        newest = self._fleet.newest_observations()
        for recorder, rows in zip(self._recorders, self._groups, strict=True):
            part = slice(rows.start, rows.stop)
            recorder.observe(t, {"/".join(map(str, path)): array[part] for path, array in newest.items()})

    def collected(self, number: int) -> Rollout:
        return Rollout.of(self.arrays, number % self._routine.buffers, number)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
