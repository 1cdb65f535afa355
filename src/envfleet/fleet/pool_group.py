"""A group over a pool: one call steps all of its environments.

The pool itself never resets; the group decides which environments begin new episodes, so all autoreset modes work.
A pool is one simulator: if it fails, all of its episodes are lost, and it is rebuilt as a whole.

Results are recorded only after everything that can fail: the step, the checks, the resets. So a failed step leaves no
half-recorded episode. It counts as a lost step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np

from envfleet.errors import EnvContext, EnvError, EnvfleetError, ObservationError
from envfleet.fleet.arrays import FleetArrays
from envfleet.fleet.failures import RestartBudget, bad_observation, bad_reward, failure_of
from envfleet.fleet.group import Capability, Extras, GroupDescription, unsupported
from envfleet.fleet.group_base import GroupBase
from envfleet.fleet.pool import BadResult, Pool, PoolMaker, checked, infos_by_env
from envfleet.fleet.spaces import Array, read_rows, rebuild
from envfleet.fleet.spec import GroupSettings, GroupSpec
from envfleet.seeding import derive_seed

__all__ = ["PoolGroup"]

Infos = list[dict[str, Any]]  # one per environment
_RESTARTED = 1  # key of the seed stream


class PoolGroup(GroupBase):
    """Steps the environments of a pool and writes their results into the fleet's arrays."""

    def __init__(self, maker: PoolMaker, spec: GroupSpec, settings: GroupSettings) -> None:
        super().__init__(spec, settings)
        self._maker = maker
        self._count = count = len(spec)
        self._seeds = [settings.seed + i for i in range(spec.start, spec.stop)]
        self._all = np.ones(count, np.bool_)
        self._ended = np.zeros(count, np.bool_)  # needs a reset before the next step
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)
        self._began_at = np.zeros(count)
        self._restarts, self._rebuilt = RestartBudget(settings), 0
        self.pool: Pool  # set by `build`

    def build(self) -> GroupDescription:
        try:
            self.pool = pool = self._maker.pool(self._count)
            return GroupDescription(
                [pool.single_observation_space] * self._count,
                [pool.single_action_space] * self._count,
                dict(pool.metadata),
                getattr(pool, "render_mode", None),
                getattr(pool, "spec", None),
                frozenset(),
            )
        except EnvfleetError:
            raise
        except (Exception, SystemExit) as error:
            raise failure_of(error, self._context("make")) from None

    def attach(self, arrays: FleetArrays, worker: int) -> None:
        rows = slice(self.spec.start, self.spec.stop)
        self._attach(arrays, worker, [self.pool.single_observation_space] * self._count)
        self._reward, self._lost = arrays.reward[rows], arrays.lost[rows]
        self._terminated, self._truncated = arrays.terminated[rows], arrays.truncated[rows]

    # --- stepping

    def step(self, slot: int, actions: list[Any] | None = None) -> Extras | None:
        assert actions is None, "a pool has no actions that are objects"
        self._begin()
        # A copy: the pool may keep its actions, and the next step overwrites the arrays.
        batch = rebuild(self._action_space, {path: array.copy() for path, array in self._actions.items()})
        waiting = self._ended.copy()  # next-step autoreset: for these, this step only resets
        try:
            rewards, terminated, truncated, infos = self._advance(batch, slot, waiting)
            ended = terminated | truncated
            fresh, reset_infos = ended if self._same_step else waiting, None
            if fresh.any():
                self._observations.copy_rows(ended, slot, self._observations.final_slot)
                reset_infos = self._reset_rows(fresh, slot)
        except (Exception, SystemExit) as error:
            self._restart(failure_of(error, self._context("step", action=batch)))
            return self._lose_step(slot, self._restart_seeds(), waiting)
        self._reward[...] = rewards
        self._returns += rewards
        self._lengths += 1
        if infos is not None and self._numbers.needs_every_step:
            for i in np.flatnonzero(~waiting).tolist():
                self._numbers.add(i, infos[i])
        if ended.any():
            self._terminated[...], self._truncated[...] = terminated, truncated
            self._end_episodes(ended, infos)
        if reset_infos is not None:
            self._begin_episodes(fresh)
        return self._finish(slot, infos, reset_infos, fresh, ended)

    def _begin(self) -> None:
        self._progress.at(self.spec.start)
        self._progress.tick()
        if self._some_flags:
            self._lost[...] = self._terminated[...] = self._truncated[...] = False
            self._some_flags = False
        self.episode_ended = False

    def _advance(self, actions: Any, slot: int, waiting: Array) -> tuple[Array, Array, Array, Infos | None]:
        """Step the pool and store its observations; return rewards, terminated, truncated and infos."""
        some_wait = waiting.any()
        if some_wait:  # their rows hold valid observations while the others are written and checked
            self._observations.copy_rows(waiting, self._observations.last_slot, slot)
            if waiting.all():
                no = np.zeros(self._count, np.bool_)
                return np.zeros(self._count), no, no, None
        try:
            result = self.pool.step(actions)
        except (Exception, SystemExit) as error:
            raise failure_of(error, self._context("step", action=actions)) from None
        try:
            observations, rewards, terminated, truncated, infos = checked(result, self._count)
        except BadResult as bad_result:
            raise ObservationError(str(bad_result), self._context("step", action=actions)) from None
        if some_wait:
            rewards[waiting] = 0.0
            terminated[waiting] = truncated[waiting] = False
        if self._settings.validation.checks_values and np.isnan(rewards).any():
            i = int(np.argmax(np.isnan(rewards)))
            raise bad_reward("NaN", self._context("step", i, action=self._action(i)))
        bad = self._observations.write_batch(observations, slot, ~waiting if some_wait else None)
        if bad is not None:
            raise bad_observation(bad[1], self._context("step", bad[0], action=self._action(bad[0])))
        return rewards, terminated, truncated, infos_by_env(infos, self._count) if infos else None

    def _end_episodes(self, ended: Array, infos: Infos | None) -> None:
        self._episode_return[ended] = self._returns[ended]
        self._episode_length[ended] = self._lengths[ended]
        self._episode_seconds[ended] = time.perf_counter() - self._began_at[ended]
        if self._numbers.keys:
            for i in np.flatnonzero(ended).tolist():
                self._episode_numbers[i] = self._numbers.end(i, infos[i] if infos else {})
        self._ended |= ended
        self.episode_ended = self._some_flags = True

    def _finish(
        self, slot: int, infos: Infos | None, reset_infos: Infos | None, fresh: Array, ended: Array
    ) -> Extras | None:
        """Hand out the infos of the step and of the episodes that began in it."""
        self._observations.last_slot = slot
        if infos is None and reset_infos is None and not self._columns.present:
            return None
        given: list[tuple[int, dict[str, Any]]] = []
        for i in range(self._count) if infos else np.flatnonzero(fresh).tolist():
            info = infos[i] if infos else {}
            if reset_infos is not None and fresh[i]:
                if ended[i]:  # same-step autoreset
                    given.append((i, {"final_info": info}))
                info = reset_infos[i]
            if info:
                given.append((i, info))
        if self.info_sink is not None:
            for i, info in given:
                self.info_sink(i, info)
            return None
        left = self._columns.write(given) if given or self._columns.present else []
        return Extras(left) if left else None

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
        rows = self._all if mask is None else np.array(mask, np.bool_)
        self._seeds = [self._seeds[i] if seed is None or not rows[i] else seed for i, seed in enumerate(seeds)]
        self._observations.copy_rows(~rows, self._observations.last_slot, slot)
        try:
            infos = self._reset_rows(rows, slot, seeds, options)
        except EnvError as failure:
            if not rows.all():
                raise  # rebuilding the pool would silently cut the other episodes
            self._restart(failure)
            infos = self._reset_fresh(slot, self._restart_seeds(), options)
        self._reward[rows] = 0.0
        self._begin_episodes(rows)
        return self._finish(slot, None, infos, rows, ~self._all)

    def _reset_rows(
        self,
        rows: Array,
        slot: int,
        seeds: Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Infos:
        """Begin episodes in these environments and store their observations; return the infos of all."""
        given = None if seeds is None or all(seed is None for seed in seeds) else list(seeds)
        options = {**(options or {}), "reset_mask": rows.copy()}
        try:
            with self._progress.starting():
                observations, infos = self.pool.reset(seed=given, options=options)
            split = infos_by_env(infos, self._count)
        except (Exception, SystemExit) as error:
            raise failure_of(error, self._context("reset")) from None
        bad = self._observations.write_batch(observations, slot, None if rows.all() else rows)
        if bad is not None:
            raise bad_observation(bad[1], self._context("reset", bad[0]))
        return split

    def _begin_episodes(self, rows: Array) -> None:
        self._returns[rows] = 0.0
        self._lengths[rows] = 0
        self._ended[rows] = False
        self._began_at[rows] = time.perf_counter()
        for i in np.flatnonzero(rows).tolist() if self._numbers.needs_every_step else ():
            self._numbers.begin(i)

    # --- failures

    def _restart(self, failure: EnvError) -> None:
        """Rebuild the pool; raise `failure` if the settings do not allow it."""
        self._ended[...] = True  # whatever follows, these episodes are over
        with self._progress.starting():
            self._restarts.spend(failure)
            self.rebuild()
        self._rebuilt += 1

    def _restart_seeds(self) -> list[int]:
        return [derive_seed(seed, _RESTARTED, self._rebuilt) for seed in self._seeds]

    def _reset_fresh(self, slot: int, seeds: Sequence[int], options: dict[str, Any] | None = None) -> Infos:
        """Begin episodes in a rebuilt pool; rebuild it again if it fails, as often as the settings allow."""
        while True:
            try:
                return self._reset_rows(self._all, slot, seeds, options)
            except EnvError as failure:
                self._restart(failure)
                seeds = self._restart_seeds()

    def _lose_step(self, slot: int, seeds: Sequence[int], waiting: Array) -> Extras | None:
        """Replace a step that never happened: the pool is new, and the cut episodes end as truncated.

        Environments in `waiting` would only have been reset. In next-step mode the next step resets the others again,
        although their episodes are already fresh: a pool always steps all of its environments.
        """
        infos = self._reset_fresh(slot, seeds)
        cut, observations = ~waiting, self._observations
        if self._same_step:
            observations.copy_rows(cut, observations.last_slot, observations.final_slot)
        else:
            observations.copy_rows(cut, observations.last_slot, slot)
        self._reward[...] = 0.0
        self._lost[...] = self._some_flags = True
        self._truncated[...] = cut
        if cut.any():
            self._end_episodes(cut, None)
        fresh = self._all if self._same_step else waiting
        self._begin_episodes(fresh)
        reset_infos = [{**(info if fresh[i] else {}), "restarted": True} for i, info in enumerate(infos)]
        return self._finish(slot, None, reset_infos, self._all, cut if self._same_step else ~self._all)

    def recover(self, slot: int, *, seeds: Sequence[int], tasks: Sequence[Any], ended: Sequence[bool]) -> Extras | None:
        self._begin()
        self._observations.last_slot = 1 - slot  # the two slots alternate
        return self._lose_step(slot, seeds, np.array(ended, np.bool_))

    def begin_fresh(self, slot: int, *, seeds: Sequence[int], tasks: Sequence[Any]) -> None:
        self.reset(slot, seeds=seeds, options=None, tasks=tasks, mask=None)
        self.fresh = True

    def _context(self, operation: str, i: int | None = None, *, action: Any = None) -> EnvContext:
        """Where a failure happened: in environment i of the pool, or in the pool as a whole."""
        first = i or 0
        step = int(self._lengths[first]) if operation == "step" and i is not None else None
        together = 1 if i is not None else self._count
        return EnvContext(self.spec.start + first, operation, self._seeds[first], None, step, action, together)

    def _action(self, i: int) -> Any:
        return read_rows(self._action_space, self._actions)[i]

    # --- everything else

    def rebuild(self) -> None:
        self.close()
        self.build()

    def close(self) -> None:
        """Close a pool that may be broken, and ignore its exceptions."""
        try:
            self.pool.close()
        except (Exception, SystemExit):  # includes the AttributeError of a pool that could not be built
            return

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], only: set[int] | None) -> NoReturn:
        raise unsupported(Capability.CALLS)

    def apply(self, function: Callable[[Any], Any]) -> NoReturn:
        raise unsupported(Capability.CALLS)

    def set_attr(self, name: str, values: Sequence[Any]) -> NoReturn:
        raise unsupported(Capability.CALLS)

    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        raise unsupported(Capability.CALLS)

    def state(self) -> NoReturn:
        raise unsupported(Capability.STATE)

    def restore(self, slot: int, states: Sequence[dict[str, Any]]) -> NoReturn:
        raise unsupported(Capability.STATE)
