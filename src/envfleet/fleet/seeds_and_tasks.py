"""The seed and the task of every environment, and the requests that pass them to groups: resets and recoveries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envfleet.errors import EnvContext, EnvHungError, SettingsError, StateError
from envfleet.fleet.group import Capability, unsupported
from envfleet.fleet.protocol import ResetMaskError
from envfleet.fleet.requests import Recover, Request, Reset
from envfleet.seeding import derive_seed

__all__ = ["SeedsAndTasks"]

Array = np.ndarray[Any, Any]
STATE_VERSION = 1


class SeedsAndTasks:
    """Keeps each environment's seed, task and number of restarts. Environment i begins with seed + i."""

    def __init__(self, seed: int, groups: Sequence[range], *, take_tasks: bool) -> None:
        self.seed, self._groups, self._take_tasks = seed, groups, take_tasks
        count = groups[-1].stop
        self._seeds = [seed + i for i in range(count)]
        self._tasks: list[Any] = [None] * count
        self._new_tasks = False  # tasks were set that the groups do not have yet
        self._restarts = [0] * count

    def set_tasks(self, tasks: Sequence[Any]) -> None:
        if not self._take_tasks:
            raise unsupported(Capability.TASKS)
        if len(tasks) != len(self._tasks):
            raise SettingsError(f"tasks has {len(tasks)} entries, expected one per environment: {len(self._tasks)}")
        self._tasks, self._new_tasks = list(tasks), True

    def resets(
        self,
        seed: int | Sequence[int | None] | None,
        options: dict[str, Any] | None,
        tasks: Sequence[Any] | None,
        *,
        first: bool,
    ) -> tuple[list[Request], Array | None]:
        """The reset request of each group, from the user's arguments of `reset`, and the mask of a partial reset.

        Without a seed, the `first` reset uses the fleet's.
        """
        seeds, mask = self._seeds_for(seed, first=first), _checked_mask(options, len(self._seeds))
        if options is not None:
            options = {key: value for key, value in options.items() if key != "reset_mask"} or None
        if tasks is not None:
            self.set_tasks(tasks)
        requests: list[Request] = []
        for group in self._groups:
            part = slice(group.start, group.stop)
            new_tasks = self._tasks[part] if self._new_tasks else None
            requests.append(Reset(seeds[part], options, new_tasks, None if mask is None else mask[part].tolist()))
        return requests, mask

    def _seeds_for(self, seed: int | Sequence[int | None] | None, *, first: bool) -> list[int | None]:
        count = len(self._seeds)
        if seed is None:
            return list(self._seeds) if first else [None] * count
        if isinstance(seed, int | np.integer):
            self.seed = int(seed)
            seeds: list[int | None] = [self.seed + i for i in range(count)]
        else:
            seeds = [None if s is None else int(s) for s in seed]
        if len(seeds) != count:
            raise SettingsError(f"seed has {len(seeds)} entries, expected one per environment: {count}")
        self._seeds = [old if new is None else new for old, new in zip(self._seeds, seeds, strict=True)]
        return seeds

    def reset_done(self) -> None:
        """Note that all groups have been reset, so that they have their tasks."""
        self._new_tasks = False

    def recovery(self, group: int, ended: Sequence[bool]) -> Recover:
        """The request that lets a group of a restarted worker recover; `ended` marks episodes that had just ended."""
        envs = self._groups[group]
        for i in envs:
            self._restarts[i] += 1
        seeds = [derive_seed(self._seeds[i], 0, self._restarts[i]) for i in envs]
        return Recover(seeds, self._tasks[envs.start : envs.stop], ended)

    def with_context(self, error: EnvHungError, action_of: Callable[[int], Any]) -> EnvHungError:
        """The error of a hung environment, with its seed, its task and, if it was stepping, its action.

        If it was a pool, with the actions of all its environments.
        """
        env, operation, together = error.context.env_index, error.context.operation, error.context.together
        action: Any = None
        if operation == "step":
            action = action_of(env) if together == 1 else [action_of(each) for each in range(env, env + together)]
        context = EnvContext(env, operation, self._seeds[env], self._tasks[env], None, action, together)
        return EnvHungError(error.message, context, original=error.original, hint=error.hint)

    def state(self) -> dict[str, Any]:
        """Seeds, tasks and restarts, as the first part of the fleet's state."""
        return {
            "version": STATE_VERSION,
            "n_envs": len(self._seeds),
            "seed": self.seed,
            "seeds": list(self._seeds),
            "tasks": list(self._tasks),
            "restarts": list(self._restarts),
        }

    def load(self, state: dict[str, Any]) -> None:
        version, count = state.get("version"), state.get("n_envs")
        if version != STATE_VERSION or count != len(self._seeds):
            raise StateError(
                f"the state is of version {version} and {count} environments, expected version {STATE_VERSION} "
                f"and {len(self._seeds)}",
                hint="make the fleet with the same environment and n_envs as the one that was saved",
            )
        self.seed, self._seeds, self._tasks = state["seed"], list(state["seeds"]), list(state["tasks"])
        self._restarts = list(state["restarts"])


def _checked_mask(options: dict[str, Any] | None, n_envs: int) -> Array | None:
    if options is None or "reset_mask" not in options:
        return None
    mask, name = options["reset_mask"], "`options['reset_mask']`"  # same messages as Gymnasium's
    if not isinstance(mask, np.ndarray):
        raise ResetMaskError(f"{name} must be a numpy array, got {type(mask)}")
    if mask.shape != (n_envs,):
        raise ResetMaskError(f"{name} must have shape `({n_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise ResetMaskError(f"{name} must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ResetMaskError(f"{name} must contain a boolean array with at least one True value, got reset_mask={mask}")
    return mask
