"""The usual kind of group: a loop over Gymnasium environments."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from envfleet.errors import EnvError, ObservationError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.env_calls import apply_to, call_on
from envfleet.fleet.env_handle import EnvHandle
from envfleet.fleet.failures import bad_observation, bad_reward
from envfleet.fleet.group import Extras, GroupDescription
from envfleet.fleet.group_base import GroupBase
from envfleet.fleet.spaces import read_rows
from envfleet.fleet.spec import EnvMaker, GroupSettings, GroupSpec
from envfleet.fleet.validation import NUMBERS, BadReward

__all__ = ["LoopGroup"]


class LoopGroup(GroupBase):
    """Steps its environments one after the other. `makers` has a function for each of them."""

    def __init__(self, makers: Sequence[EnvMaker], spec: GroupSpec, settings: GroupSettings) -> None:
        super().__init__(spec, settings)
        self._handles = [EnvHandle(spec.start + i, make, settings) for i, make in enumerate(makers)]
        count = len(self._handles)
        self._ended = [False] * count  # needs a reset before the next step
        self._returns = [0.0] * count
        self._began = [0] * count  # the tick at which the episode began
        self._due = [math.inf] * count  # the tick at which a time limit ends it
        self._tick = 0  # steps of the group so far
        self._infos: list[tuple[int, dict[str, Any]]] = []  # of this step, as (environment of the group, info)

    def build(self) -> GroupDescription:
        for handle in self._handles:
            handle.build()
        return GroupDescription.of([handle.env for handle in self._handles])

    def attach(self, arrays: FleetArrays, worker: int) -> None:
        start, stop = self.spec.start, self.spec.stop
        self._attach(arrays, worker, [handle.env.observation_space for handle in self._handles])
        self._reward = arrays.bytes_of("reward", start, stop, "d")
        self._terminated = arrays.bytes_of("terminated", start, stop, "B")
        self._truncated = arrays.bytes_of("truncated", start, stop, "B")
        self._lost = arrays.bytes_of("lost", start, stop, "B")
        self._some_lost = True  # as `_some_flags`
        self._none_ended = bytes(stop - start)
        self._steps = [handle.step for handle in self._handles]

    # --- stepping

    def step(self, slot: int, actions: list[Any] | None = None) -> Extras | None:
        self._begin()
        if actions is None:
            actions = read_rows(self._action_space, self._actions)
        words, current, first, tick = self._progress.words, self._progress.current, self.spec.start, self._tick
        rewards, returns, ended, due = self._reward, self._returns, self._ended, self._due
        check_rewards = self._settings.validation.checks_values
        numbers = self._numbers if self._numbers.needs_every_step else None
        observations: list[Any] = []
        for i, (step, action) in enumerate(zip(self._steps, actions, strict=True)):
            words[current] = first + i
            if ended[i]:  # next-step autoreset: this step only resets
                rewards[i] = 0.0
                observations.append(self._begin_episode(i))
                continue
            try:
                observation, reward, terminated, truncated, info = step(action)
                if type(reward) not in NUMBERS:
                    reward = self._number(i, reward, action)
                rewards[i] = reward
                if check_rewards and reward != reward:
                    raise self._bad_reward(i, "NaN", action)
                returns[i] += reward
                if numbers is not None and info:
                    numbers.add(i, info)
                if terminated or truncated or tick >= due[i]:
                    observation, info = self._end_episode(i, observation, info, terminated, truncated or tick >= due[i])
            except (Exception, SystemExit) as error:
                failure = self._handles[i].failure("step", error, step=self._steps_taken(i), action=action)
                observation, info = self._cut(i, failure)
            observations.append(observation)
            if info:
                self._put_info(i, info)
        return self._write(observations, slot, actions)

    def _begin(self) -> None:
        self._tick += 1
        self._progress.tick()
        if self._some_lost:
            self._lost[:] = self._none_ended
            self._some_lost = False
        self._infos.clear()
        if self._some_flags:
            self._terminated[:] = self._none_ended
            self._truncated[:] = self._none_ended
            self._some_flags = False
        self.episode_ended = False

    def _end_episode(
        self, i: int, observation: Any, info: dict[str, Any], terminated: bool, truncated: bool
    ) -> tuple[Any, dict[str, Any]]:
        """Record the end of an episode; in same-step mode begin the next one and return its observation."""
        self._terminated[i], self._truncated[i] = bool(terminated), bool(truncated)
        self._episode_return[i] = self._returns[i]
        self._episode_length[i] = self._tick - self._began[i]
        self._episode_seconds[i] = time.perf_counter() - self._handles[i].began_at
        if self._numbers.keys:
            self._episode_numbers[i] = self._numbers.end(i, info or {})
        self.episode_ended = self._some_flags = True
        if not self._same_step:
            self._ended[i] = True
            return observation, info
        if self._observations.object_leaves:
            self._put_info(i, {"final_obs": observation})
        else:
            reason = self._observations.write_final(i, observation)
            if reason is not None:
                raise self._bad_observation(i, reason, "step")
        self._put_info(i, {"final_info": info})
        return self._reset(i)

    def _put_info(self, i: int, info: dict[str, Any]) -> None:
        if self.info_sink is not None:
            self.info_sink(i, info)
            return
        self._infos.append((i, info))

    def _write(self, observations: list[Any], slot: int, actions: list[Any] | None) -> Extras | None:
        """Store observations and infos; return what does not fit into arrays.

        An environment whose observation does not fit its space has failed.
        """
        while bad := self._observations.write(observations, slot):
            i, reason = bad
            action = None if actions is None else actions[i]
            failure = self._bad_observation(i, reason, "reset" if actions is None else "step", action)
            observations[i], info = self._cut(i, failure)
            self._put_info(i, info)
        left = self._columns.write(self._infos) if self._infos or self._columns.present else []
        return Extras(left, self._observations.objects) if left or self._observations.object_leaves else None

    # --- resetting

    def reset(
        self,
        slot: int,
        *,
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        tasks: Sequence[Any] | None,
        mask: Sequence[bool] | None,
    ) -> Extras | None:
        self._begin()
        if mask is not None:
            self._observations.last_slot = 1 - slot  # a restarted worker does not know it; the two slots alternate
        observations: list[Any] = []
        for i, handle in enumerate(self._handles):
            if tasks is not None:
                handle.task = tasks[i]
            if mask is not None and not mask[i]:
                observations.append(self._observations.last(i))
                self._began[i], self._due[i] = self._began[i] + 1, self._due[i] + 1  # this tick is not one of its steps
                continue
            seed = seeds[i]
            if seed is not None:
                handle.seed = handle.next_seed = seed
            self._reward[i] = 0.0
            observations.append(self._begin_episode(i, options))
        return self._write(observations, slot, None)

    def _begin_episode(self, i: int, options: dict[str, Any] | None = None) -> Any:
        observation, info = self._reset(i, options)
        if info:
            self._put_info(i, info)
        return observation

    def _reset(self, i: int, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; restart an environment that fails, as often as the settings allow."""
        handle = self._handles[i]
        self._progress.at(handle.index)
        with self._progress.starting():
            while True:
                try:
                    observation, info = handle.reset(options)
                    break
                except EnvError as failure:
                    self._restart(i, failure)
        self._steps[i] = handle.step  # it may have been rebuilt
        self._began[i], self._returns[i], self._ended[i] = self._tick, 0.0, False
        self._numbers.begin(i)
        self._due[i] = self._tick + handle.most_steps
        return observation, info

    # --- failures

    def _cut(self, i: int, failure: EnvError) -> tuple[Any, dict[str, Any]]:
        """End a failed episode: raise, or restart the environment and truncate the episode."""
        self._restart(i, failure)
        return self._truncate_lost(i)

    def _restart(self, i: int, failure: EnvError) -> None:
        self._ended[i] = True  # whatever follows, this episode is over
        with self._progress.starting():
            self._handles[i].restart(failure)
        self._steps[i] = self._handles[i].step

    def _truncate_lost(self, i: int) -> tuple[Any, dict[str, Any]]:
        """Truncate an episode whose step was lost, at its last observation; return the row's observation and info."""
        self._reward[i] = 0.0
        self._lost[i] = self._some_lost = True
        self._began[i] += 1  # the lost step does not count
        observation, info = self._end_episode(i, self._observations.last(i), {}, False, True)
        return observation, {**info, "restarted": True}

    def recover(self, slot: int, *, seeds: Sequence[int], tasks: Sequence[Any], ended: Sequence[bool]) -> Extras | None:
        self._begin()
        self._observations.last_slot = 1 - slot  # the two slots alternate
        observations: list[Any] = []
        for i, handle in enumerate(self._handles):
            handle.next_seed, handle.task = seeds[i], tasks[i]
            self._reward[i] = 0.0
            if ended[i]:  # the lost step would have reset it anyway
                self._lost[i] = self._some_lost = True
                observation, info = self._reset(i)
                info = {**info, "restarted": True}
            else:
                observation, info = self._truncate_lost(i)
            observations.append(observation)
            self._put_info(i, info)
        return self._write(observations, slot, None)

    def begin_fresh(self, slot: int, *, seeds: Sequence[int], tasks: Sequence[Any]) -> None:
        self.reset(slot, seeds=seeds, options=None, tasks=tasks, mask=None)
        self.fresh = True

    def _steps_taken(self, i: int) -> int:
        return self._tick - self._began[i] - 1

    def _bad_observation(self, i: int, reason: str, operation: str, action: Any = None) -> ObservationError:
        step = self._steps_taken(i) if operation == "step" else None
        return bad_observation(reason, self._handles[i].context(operation, step=step, action=action))

    def _number(self, i: int, reward: Any, action: Any) -> float:
        try:
            return self._settings.validation.number(self.spec.start + i, reward)
        except BadReward as bad:
            raise self._bad_reward(i, str(bad), action) from None

    def _bad_reward(self, i: int, received: str, action: Any) -> ObservationError:
        return bad_reward(received, self._handles[i].context("step", step=self._steps_taken(i), action=action))

    # --- everything else

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], only: set[int] | None) -> list[Any]:
        self._tell_limits()
        handles = [handle for handle in self._handles if only is None or handle.index in only]
        return call_on(handles, self._progress, name, args, kwargs)

    def apply(self, function: Callable[[Any], Any]) -> list[Any]:
        self._tell_limits()
        return apply_to(self._handles, self._progress, function)

    def rebuild(self) -> None:
        for i, handle in enumerate(self._handles):
            self._progress.at(handle.index)
            handle.close()
            handle.build()
            self._steps[i] = handle.step

    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        self._tell_limits()
        return [handle.env for handle in self._handles]

    def _tell_limits(self) -> None:
        for handle, began in zip(self._handles, self._began, strict=True):
            handle.tell_limits(self._tick - began)

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        for handle, value in zip(self._handles, values, strict=True):
            self._progress.at(handle.index)
            try:
                handle.env.set_wrapper_attr(name, value)
            except (Exception, SystemExit) as error:
                raise handle.failure(f"set_attr of {name!r}", error) from None

    def state(self) -> list[dict[str, Any]]:
        self._tell_limits()
        states = []
        for i, handle in enumerate(self._handles):
            self._progress.at(handle.index)
            states.append(
                {
                    **handle.state(),
                    "return": float(self._returns[i]),
                    "length": self._tick - self._began[i],
                    "ended": self._ended[i],
                    **({"numbers": self._numbers.state(i)} if self._numbers.needs_every_step else {}),
                }
            )
        return states

    def restore(self, slot: int, states: Sequence[dict[str, Any]]) -> None:
        self._observations.last_slot = slot
        for i, (handle, saved) in enumerate(zip(self._handles, states, strict=True)):
            self._progress.at(handle.index)
            handle.restore(saved)
            self._steps[i] = handle.step
            self._returns[i], self._began[i] = saved["return"], self._tick - saved["length"]
            self._due[i] = self._began[i] + handle.most_steps
            self._ended[i] = saved["ended"]
            self._numbers.restore(i, saved.get("numbers", {}))

    def close(self) -> None:
        for handle in self._handles:
            handle.close()
