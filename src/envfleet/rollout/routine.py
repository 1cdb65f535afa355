"""The worker routine that runs the policy: one command fills a whole rollout, without messages per step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.clock import check_time
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.group import Group
from envfleet.fleet.routine import ExtraArray, GroupRoutine
from envfleet.fleet.spaces import Path
from envfleet.rollout.acting import Actor, ActorMaker, EpisodeStatistics, RolloutRecorder, RolloutRequest
from envfleet.rollout.arrays import RolloutShape

__all__ = ["ActingRoutine"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ActingRoutine:
    """Keeps a copy of the policy in every worker and fills its groups' rows of the rollout arrays."""

    make_actor: ActorMaker
    steps: int
    piece_length: int
    buffers: int
    log_info: tuple[str, ...] = ()  # info keys that are logged per episode
    weight_sets: int = 1  # one per worker if each worker may act with other weights

    @property
    def modules(self) -> tuple[str, ...]:
        return self.make_actor.modules

    def shape(self, actor: Actor, observation_space: spaces.Space[Any], n_envs: int, groups: int) -> RolloutShape:
        return RolloutShape(
            self.steps,
            n_envs,
            groups,
            observation_space,
            actor.columns,
            actor.mask_size,
            actor.memory_size,
            self.piece_length,
            actor.weights_size,
            self.buffers,
            self.log_info,
            self.weight_sets,
        )

    def arrays(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], groups: Sequence[range]
    ) -> tuple[ExtraArray, ...]:
        actor = self.make_actor(observation_space, action_space)
        return self.shape(actor, observation_space, groups[-1].stop, len(groups)).arrays()

    def attach(self, groups: Sequence[Group], arrays: FleetArrays) -> Sequence[GroupRoutine]:
        space = arrays.shape.observation_space
        actor = self.make_actor(space, arrays.shape.action_space)  # one per worker: its groups take turns
        return [
            _GroupRollout(
                group,
                arrays,
                RolloutRecorder(
                    actor,
                    arrays.extra,
                    range(group.spec.start, group.spec.stop),
                    group=group.spec.index,
                    piece_length=self.piece_length,
                    observation_space=space,
                ),
            )
            for group in groups
        ]


class _GroupRollout:
    """Steps one group through a rollout."""

    def __init__(self, group: Group, arrays: FleetArrays, recorder: RolloutRecorder) -> None:
        self._group, self._recorder = group, recorder
        group.info_sink = recorder.see_info
        rows = slice(group.spec.start, group.spec.stop)
        self._observations = [_named(slot, rows) for slot in arrays.observations]
        self._final = _named(arrays.final, rows)
        ((_, actions),) = arrays.actions.items()
        self._actions = actions[rows]
        self._rewards = arrays.reward[rows]
        self._terminated, self._truncated, self._lost = (
            arrays.terminated[rows],
            arrays.truncated[rows],
            arrays.lost[rows],
        )
        self._statistics = EpisodeStatistics.of(arrays, rows)

    def __call__(self, request: RolloutRequest) -> None:
        group, recorder, clock = self._group, self._recorder, time.perf_counter
        stepping = acting = 0.0
        first = recorder.begin(request, fresh=group.fresh)
        slot = group.newest_slot
        if group.fresh:
            group.fresh = False
            if first > request.steps:  # the worker died while stepping another group, after this one was done
                recorder.forget()
                return
            if first < request.steps:  # episodes were cut, and the interrupted step counts as never happened
                recorder.lose(first)
                recorder.observe(first + 1, self._observations[slot])
                recorder.advance(first)
                first += 1
            elif recorder.remembers:  # the memory after the last step is gone, so that step cannot be bootstrapped
                recorder.lose(request.steps - 1)
        else:
            recorder.observe(first, self._observations[slot])
        for t in range(first, request.steps):
            check_time(request.until)
            began = clock()
            self._actions[...] = recorder.decide(t)
            decided = clock()
            slot = 1 - slot
            group.step(slot)
            recorder.store_rewards(t, self._rewards)
            if group.episode_ended:
                recorder.ended(t, self._terminated, self._truncated, self._lost, self._statistics, self._final)
            stepped = clock()
            recorder.observe(t + 1, self._observations[slot])
            recorder.advance(t)
            acting += clock() - began - (stepped - decided)
            stepping += stepped - decided
            if request.each_step is not None:
                request.each_step()
        recorder.finish((stepping, acting))


def _named(leaves: Mapping[Path, Array], rows: slice) -> dict[str, Array]:
    return {"/".join(map(str, path)): array[rows] for path, array in leaves.items()}
