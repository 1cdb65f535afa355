"""A group: a fixed number of environments, stepped, seeded and reset together in one loop.

This is the only place that steps environments. Autoreset, seeding, tasks, episode statistics, checks and
the capture of errors live here, so that every backend gives the same bytes.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from envfleet.errors import EnvContext, EnvError, ObservationError
from envfleet.fleet import state as simulator_state
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.control import WorkerWord
from envfleet.fleet.infos import ColumnWriter
from envfleet.fleet.plan import GroupPlan, GroupSettings, OnError
from envfleet.fleet.spaces import BatchWriter, explain_mismatch, pick, read_rows, rebuild
from envfleet.seeding import derive_seed, stream

__all__ = ["Extras", "Group"]

Env = gymnasium.Env[Any, Any]
_RESTARTED, _RECYCLED, _TASK = 1, 2, 3  # keys of the seed streams


@dataclass
class Extras:
    """What a step gives beyond its arrays: infos without a column, and values of object leaves."""

    infos: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # (environment of the group, info)
    objects: dict[Any, list[Any]] = field(default_factory=dict)  # leaf path -> one value per environment


class _Member:
    """One environment of the group and what must outlive its episodes."""

    def __init__(self, index: int, make: Any, seed: int) -> None:
        self.index, self.make, self.seed = index, make, seed
        self.env: Env | None = None
        self.next_seed: int | None = None  # given to the next reset
        self.task: Any = None
        self.episodes = 0  # begun so far, the key of the task sampler's stream
        self.episodes_since_built = 0
        self.rebuilt = 0
        self.restart_times: deque[float] = deque()
        self.began_at = 0.0


class Group:
    """Steps its environments and writes what they return into the fleet's arrays."""

    def __init__(self, plan: GroupPlan, settings: GroupSettings) -> None:
        self.plan, self.settings = plan, settings
        self._members = [_Member(e.index, e.make, settings.seed + e.index) for e in plan.envs]
        count = len(self._members)
        self._ended = [False] * count  # wants a reset before the next step
        self._returns = [0.0] * count
        self._began = [0] * count  # the tick at which the episode began
        self._tick = 0
        self._last_slot = 0
        self._last_objects: dict[Any, list[Any]] = {}
        self._extras: Extras | None = None
        self.episode_ended = False

    # --- building

    def build(self) -> None:
        for member in self._members:
            self._build_env(member)

    def _build_env(self, member: _Member) -> None:
        try:
            member.env = member.make()
        except (Exception, SystemExit) as error:
            raise self._error(member, "make", error) from None
        if not isinstance(member.env, gymnasium.Env):
            raise EnvError(
                f"the factory returned {type(member.env).__name__}, expected a gymnasium.Env",
                EnvContext(member.index, "make", member.seed),
                hint="wrap environments of the old gym API, e.g. with shimmy",
            )
        member.episodes_since_built = 0

    @property
    def envs(self) -> list[Env]:
        return [member.env for member in self._members if member.env is not None]

    def attach(self, arrays: FleetArrays, worker: int) -> None:
        """Takes its rows of the fleet's arrays; from here on it can reset and step."""
        start, stop = self.plan.start, self.plan.stop
        shape = arrays.shape
        rows = slice(start, stop)
        self._observation_space, self._action_space = shape.observation_space, shape.action_space
        self._words = arrays.control.words
        self._current_word = arrays.control.worker(worker, WorkerWord.CURRENT)
        self._reward = arrays.bytes_of("reward", start, stop, "d")
        self._terminated = arrays.bytes_of("terminated", start, stop, "B")
        self._truncated = arrays.bytes_of("truncated", start, stop, "B")
        self._none_ended = bytes(stop - start)
        self._actions = {path: array[rows] for path, array in arrays.actions.items()}
        self._slots = [{p: a[rows] for p, a in slot.items()} for slot in arrays.observations]
        self._final = {p: a[rows] for p, a in arrays.final.items()}
        self._episode = (arrays.episode_return, arrays.episode_length, arrays.episode_seconds, arrays.episode_count)
        validate = self.settings.validate
        self._writers = [
            BatchWriter(leaf, [slot[leaf.path] for slot in self._slots] + [self._final[leaf.path]], validate=validate)
            for leaf in shape.observation_leaves
            if leaf.fixed
        ]
        self._object_leaves = [leaf for leaf in shape.observation_leaves if not leaf.fixed]
        self._only_leaf = len(self._writers) == 1 and self._writers[0].leaf.path == () or not self._writers
        self._columns = ColumnWriter(arrays.columns, shape.n_envs, start, stop)
        self.define_columns = self._columns.define
        self._steps = [member.env.step for member in self._members if member.env is not None]

    @property
    def columns_present(self) -> int:
        return self._columns.present

    # --- stepping

    def step(self, slot: int, actions: list[Any] | None = None) -> Extras | None:
        """Steps every environment once with its action and fills the arrays of `slot`."""
        self._begin()
        if actions is None:
            actions = read_rows(self._action_space, self._actions)
        words, current, first = self._words, self._current_word, self.plan.start
        rewards, returns, ended = self._reward, self._returns, self._ended
        observations: list[Any] = []
        check_rewards = self.settings.validate
        for i, (step, action) in enumerate(zip(self._steps, actions, strict=True)):
            words[current] = first + i
            if ended[i]:  # next-step autoreset: this step only resets
                observations.append(self._autoreset(i))
                rewards[i] = 0.0
                continue
            try:
                observation, reward, terminated, truncated, info = step(action)
                rewards[i] = reward
                if check_rewards and reward != reward:
                    raise self._nan_reward(i, action)
                returns[i] += reward
                if terminated or truncated:
                    observation, info = self._end_episode(i, observation, info, terminated, truncated)
            except (Exception, SystemExit) as error:
                observation, info = self._cut(i, self._error(self._members[i], "step", error, action))
            observations.append(observation)
            if info:
                self._put_info(i, info)
        self._write(observations, slot, actions)
        return self._extras

    def _begin(self) -> None:
        self._tick += 1
        self._extras = None
        self.episode_ended = False
        self._columns.clear()
        self._terminated[:] = self._none_ended
        self._truncated[:] = self._none_ended

    def _end_episode(
        self, i: int, observation: Any, info: dict[str, Any], terminated: bool, truncated: bool
    ) -> tuple[Any, dict[str, Any]]:
        """Books the end of an episode; in same-step mode begins the next one and returns its observation."""
        self._terminated[i], self._truncated[i] = bool(terminated), bool(truncated)
        self._record_episode(i)
        if self.settings.autoreset != AutoresetMode.SAME_STEP:
            self._ended[i] = True
            return observation, info
        self._keep_final(i, observation, info)
        return self._reset_env(i)

    def _record_episode(self, i: int) -> None:
        member, row = self._members[i], self.plan.start + i
        returns, lengths, seconds, counts = self._episode
        returns[row] = self._returns[i]
        lengths[row] = self._tick - self._began[i]
        seconds[row] = time.perf_counter() - member.began_at
        counts[row] += 1
        self.episode_ended = True

    def _keep_final(self, i: int, observation: Any, info: dict[str, Any]) -> None:
        """Stores the last observation of an episode before the reset that follows at once replaces it."""
        if self._object_leaves:
            self._put_info(i, {"final_obs": observation, "final_info": info})
            return
        for writer in self._writers:
            if not writer.write_one(i, pick(observation, writer.leaf.path), slot=len(self._slots)):
                raise self._find_mismatch([observation], writer, i)[1]
        self._put_info(i, {"final_info": info})

    def _put_info(self, i: int, info: dict[str, Any]) -> None:
        left = self._columns.put(i, info)
        if left:
            if self._extras is None:
                self._extras = Extras()
            self._extras.infos.append((i, left))

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
        """Resets the environments that `mask` names (all where it is None); the others keep their place."""
        self._begin()
        observations: list[Any] = []
        for i, member in enumerate(self._members):
            self._words[self._current_word] = member.index
            if mask is not None and not mask[i]:
                observations.append(self._last_observation(i))
                continue
            if tasks is not None:
                member.task = tasks[i]
            if seeds[i] is not None:
                member.seed = member.next_seed = seeds[i]  # type: ignore[assignment]
            observation, info = self._reset_env(i, options)
            self._reward[i] = 0.0
            observations.append(observation)
            if info:
                self._put_info(i, info)
        self._write(observations, slot, None)
        return self._extras

    def _autoreset(self, i: int) -> Any:
        observation, info = self._reset_env(i)
        if info:
            self._put_info(i, info)
        return observation

    def _reset_env(self, i: int, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; an environment that fails is restarted as often as the settings allow."""
        member = self._members[i]
        recycle = self.settings.recycle_every
        if recycle is not None and member.episodes_since_built >= recycle:
            self._rebuild(i, _RECYCLED)
        while True:
            task = self._next_task(member)
            if task is not None:
                options = {**(options or {}), "task": task}
            try:
                assert member.env is not None
                observation, info = member.env.reset(seed=member.next_seed, options=options)
                break
            except (Exception, SystemExit) as error:
                failure = self._error(member, "reset", error)
                self._restart_env(i, failure)
        member.next_seed = None
        member.episodes += 1
        member.episodes_since_built += 1
        member.began_at = time.perf_counter()
        self._began[i], self._returns[i], self._ended[i] = self._tick, 0.0, False
        return observation, info

    def _next_task(self, member: _Member) -> Any:
        if self.settings.task_sampler is not None:
            rng = stream(member.seed, _TASK, member.episodes)
            member.task = self.settings.task_sampler(rng)
        return member.task

    # --- failures

    def _error(self, member: _Member, operation: str, error: BaseException, action: Any = None) -> EnvError:
        if isinstance(error, EnvError):
            return error
        frames = error.__traceback__.tb_next if error.__traceback__ else None  # leave out our own frame
        original = "".join(traceback.format_exception(type(error), error, frames))
        return EnvError(f"{type(error).__name__}: {error}", self._context(member, operation, action), original=original)

    def _context(self, member: _Member, operation: str, action: Any = None) -> EnvContext:
        i = member.index - self.plan.start
        step = None if operation == "make" else max(0, self._tick - self._began[i] - (operation == "step"))
        return EnvContext(member.index, operation, member.seed, member.task, step, action)

    def _cut(self, i: int, failure: EnvError) -> tuple[Any, dict[str, Any]]:
        """Ends an episode that failed: raises, or restarts the environment and truncates the episode."""
        self._restart_env(i, failure)
        return self._truncate_lost(i)

    def _truncate_lost(self, i: int) -> tuple[Any, dict[str, Any]]:
        """The row of an episode whose step was lost: truncated before it, with its last observation."""
        self._reward[i] = 0.0
        self._tick -= 1  # the lost step does not count
        last = self._last_observation(i)
        observation, info = self._end_episode(i, last, {}, False, True)
        self._tick += 1
        return observation, {**info, "restarted": True}

    def _restart_env(self, i: int, failure: EnvError) -> None:
        """Rebuilds a failed environment where the settings allow it; raises `failure` where not."""
        member, restarts = self._members[i], self.settings.restarts
        if self.settings.on_error is OnError.RAISE:
            self._ended[i] = True
            raise failure
        now = time.monotonic()
        while member.restart_times and now - member.restart_times[0] > restarts.within:
            member.restart_times.popleft()
        recent = len(member.restart_times)
        if recent >= restarts.limit:
            raise type(failure)(
                failure.message,
                failure.context,
                original=failure.original,
                hint=f"the environment was restarted {recent} times within {restarts.within:g} s "
                "and fails again; see restarts= to allow more",
            )
        time.sleep(restarts.delay(recent))
        member.restart_times.append(now)
        self._rebuild(i, _RESTARTED)

    def _rebuild(self, i: int, reason: int) -> None:
        """A fresh environment in place of the old one, seeded from a stream of its own."""
        member = self._members[i]
        _close_quietly(member.env)
        self._build_env(member)
        member.rebuilt += 1
        member.next_seed = derive_seed(member.seed, reason, member.rebuilt)
        self._steps[i] = member.env.step  # type: ignore[union-attr]

    def recover(
        self, slot: int, *, last_slot: int, seeds: Sequence[int], tasks: Sequence[Any], ended: Sequence[bool]
    ) -> Extras | None:
        """The step that a dead worker lost: fresh environments, cut episodes truncated, nothing made up."""
        self._begin()
        self._last_slot = last_slot
        observations: list[Any] = []
        for i, member in enumerate(self._members):
            self._words[self._current_word] = member.index
            member.next_seed, member.task = seeds[i], tasks[i]
            if ended[i]:
                observation, info = self._reset_env(i)
                info = {**info, "restarted": True}
            else:
                observation, info = self._truncate_lost(i)
            self._reward[i] = 0.0
            observations.append(observation)
            self._put_info(i, info)
        self._write(observations, slot, None)
        return self._extras

    # --- observations

    def _last_observation(self, i: int) -> Any:
        parts = {path: array[i].copy() for path, array in self._slots[self._last_slot].items()}
        for path, values in self._last_objects.items():
            parts[path] = values[i]
        for leaf in self._object_leaves:
            parts.setdefault(leaf.path, None)
        return rebuild(self._observation_space, parts)

    def _write(self, observations: list[Any], slot: int, actions: list[Any] | None) -> None:
        for _ in range(len(observations) + 1):
            bad = self._write_leaves(observations, slot)
            if bad is None:
                break
            i, failure = bad
            if actions is not None:
                failure = ObservationError(
                    failure.message, self._context(self._members[i], "step", actions[i]), hint=failure.hint
                )
            observations[i], info = self._cut(i, failure)
            self._put_info(i, info)
        if self._object_leaves:
            self._last_objects = {f.path: [pick(o, f.path) for o in observations] for f in self._object_leaves}
            if self._extras is None:
                self._extras = Extras()
            self._extras.objects = self._last_objects
        self._last_slot = slot

    def _write_leaves(self, observations: list[Any], slot: int) -> tuple[int, ObservationError] | None:
        """Writes all leaves; where a value does not fit, the environment and the error that says so."""
        for writer in self._writers:
            path = writer.leaf.path
            try:
                values = observations if self._only_leaf else [pick(o, path) for o in observations]
            except (KeyError, IndexError, TypeError):
                values = None
            if values is None or not writer.write(values, slot):
                return self._find_mismatch(observations, writer)
        return None

    def _find_mismatch(
        self, observations: list[Any], writer: BatchWriter, first: int = 0
    ) -> tuple[int, ObservationError]:
        leaf = writer.leaf
        for i, observation in enumerate(observations, first):
            try:
                reason = explain_mismatch(leaf, pick(observation, leaf.path), bounds=self.settings.validate)
            except (KeyError, IndexError, TypeError):
                reason = f"expected an entry {leaf.name!r} of {leaf.space}, received {_keys(observation)}"
            if reason is not None:
                break
        else:
            i, reason = first, f"expected {leaf.space}, received values that cannot be stored together"
        return i, ObservationError(
            f"bad observation: {reason}",
            self._context(self._members[i], "reset"),
            hint="mend the environment or its observation_space; envfleet.check(env) finds more; "
            "validate=False switches off the checks of bounds and NaN",
        )

    def _nan_reward(self, i: int, action: Any) -> ObservationError:
        return ObservationError(
            "bad reward: expected a number, received NaN",
            self._context(self._members[i], "step", action),
            hint="mend the environment's reward, or switch this check off with validate=False",
        )

    # --- everything else

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The attribute `name` of every environment, called where it can be called."""
        results = []
        for member in self._members:
            self._words[self._current_word] = member.index
            try:
                value = member.env.get_wrapper_attr(name)  # type: ignore[union-attr]
                results.append(value(*args, **kwargs) if callable(value) else value)
            except (Exception, SystemExit) as error:
                raise self._error(member, f"call of {name!r}", error) from None
        return results

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        for member, value in zip(self._members, values, strict=True):
            member.env.set_wrapper_attr(name, value)  # type: ignore[union-attr]

    def state(self) -> list[dict[str, Any]]:
        """The state of every environment and of its episode as plain data."""
        states = []
        for i, member in enumerate(self._members):
            states.append(
                {
                    "simulator": simulator_state.capture(member.env),  # type: ignore[arg-type]
                    "seed": member.seed,
                    "next_seed": member.next_seed,
                    "task": member.task,
                    "episodes": member.episodes,
                    "episodes_since_built": member.episodes_since_built,
                    "rebuilt": member.rebuilt,
                    "return": float(self._returns[i]),
                    "length": self._tick - self._began[i],
                    "ended": self._ended[i],
                }
            )
        return states

    def restore(self, slot: int, states: Sequence[dict[str, Any]], objects: dict[Any, list[Any]]) -> None:
        """Sets freshly built environments to captured states; the arrays of `slot` hold their observations."""
        self._last_slot, self._last_objects = slot, objects
        for i, (member, saved) in enumerate(zip(self._members, states, strict=True)):
            self._words[self._current_word] = member.index
            _close_quietly(member.env)
            self._build_env(member)
            assert member.env is not None
            self._steps[i] = member.env.step
            simulator_state.restore(member.env, saved["simulator"])
            member.seed, member.next_seed, member.task = saved["seed"], saved["next_seed"], saved["task"]
            member.episodes, member.rebuilt = saved["episodes"], saved["rebuilt"]
            member.episodes_since_built = saved["episodes_since_built"]
            member.began_at = time.perf_counter()
            self._returns[i], self._began[i] = saved["return"], self._tick - saved["length"]
            self._ended[i] = saved["ended"]

    def close(self) -> None:
        for member in self._members:
            _close_quietly(member.env)


def _close_quietly(env: Env | None) -> None:
    """Closes an environment that may be broken; what it raises while it goes is of no use to anyone."""
    try:
        if env is not None:
            env.close()
    except (Exception, SystemExit):
        return


def _keys(value: Any) -> str:
    return f"a dict with {sorted(map(str, value))}" if isinstance(value, dict) else type(value).__name__
