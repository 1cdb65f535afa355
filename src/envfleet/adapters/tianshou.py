"""The fleet as a Tianshou `BaseVectorEnv`.

    fleet = envfleet.make("CartPole-v1", 8, group_size=1)
    collector = Collector(algorithm, as_tianshou(fleet), VectorReplayBuffer(20_000, 8))

Tianshou resets ended environments itself and steps any subset of them. So the fleet needs groups of one environment,
stepped with `send` and `recv`. With `wait_num`, `step` returns the first ones that are ready; the others keep stepping.

Tianshou cannot represent a lost step. If a fault cuts an episode short, its row ends the episode as a time limit
would, with reward 0 and `info["restarted"]` set.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import create_empty_array

from envfleet.adapters.infos import info_rows
from envfleet.errors import MissingExtraError, ProtocolError, SettingsError
from envfleet.fleet.fleet import Fleet

try:
    from tianshou.env import BaseVectorEnv
except ModuleNotFoundError as error:
    if str(error.name).split(".")[0] != "tianshou":  # it is installed, but one of its dependencies is not
        raise
    raise MissingExtraError("tianshou is not installed", hint="pip install tianshou") from error

__all__ = ["FleetVectorEnv", "as_tianshou"]

Array = np.ndarray[Any, Any]
EnvIds = int | Sequence[int] | Array | None


def as_tianshou(fleet: Fleet, wait_num: int | None = None) -> FleetVectorEnv:
    """Wrap the fleet as a Tianshou `BaseVectorEnv`; closing it closes the fleet."""
    return FleetVectorEnv(fleet, wait_num)


class _Row(NamedTuple):
    """The step result of one environment."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[str, Any]


class FleetVectorEnv(BaseVectorEnv):  # type: ignore[misc]  # untyped if tianshou is not installed
    """A `BaseVectorEnv` over the environments of `fleet`."""

    def __init__(self, fleet: Fleet, wait_num: int | None = None) -> None:
        # No super().__init__(): the base class would start its own workers.
        if any(len(group) > 1 for group in fleet.groups):
            raise SettingsError(
                f"the fleet steps groups of {len(fleet.groups[0])} environments, expected one each: Tianshou steps "
                "and resets any of them",
                hint="make the fleet with group_size=1",
            )
        if fleet.autoreset_mode is not AutoresetMode.NEXT_STEP:
            raise SettingsError(
                f"the fleet resets its environments as {fleet.autoreset_mode}, expected {AutoresetMode.NEXT_STEP}",
                hint='make the fleet with autoreset="next_step", the default',
            )
        if isinstance(fleet.single_observation_space, spaces.Tuple):
            raise SettingsError("Tianshou takes no Tuple observations", hint="wrap the environments: use a Dict")
        if wait_num is not None and not 1 <= wait_num <= fleet.num_envs:
            raise SettingsError(f"wait_num is {wait_num}, expected 1 to {fleet.num_envs}")
        self.fleet, self.env_num = fleet, fleet.num_envs
        self.wait_num, self.timeout = wait_num or fleet.num_envs, None
        self.is_async, self.is_closed = self.wait_num != fleet.num_envs, False
        self._action_spaces = [copy.deepcopy(fleet.single_action_space) for _ in range(fleet.num_envs)]
        self._stepping: list[int] = []  # environments that were sent an action and have not answered
        self._arrived: dict[int, _Row] = {}  # results that have not been returned to the caller yet
        self._ended = np.ones(fleet.num_envs, np.bool_)

    @property
    def waiting_id(self) -> list[int]:
        """The environments whose results have not been returned yet."""
        return [*self._stepping, *self._arrived]

    @property
    def ready_id(self) -> list[int]:
        """The environments that can be stepped and reset."""
        waiting = set(self.waiting_id)
        return [env for env in range(self.env_num) if env not in waiting]

    # --- stepping

    def step(self, action: Any, id: EnvIds = None) -> tuple[Array, Array, Array, Array, Array]:  # noqa: A002 (its name)
        """Step environments; with `wait_num`, return the first that are ready, and with `action=None` only wait."""
        if action is None and not self.is_async:
            raise SettingsError("step got no actions", hint="only as_tianshou(fleet, wait_num=...) can be waited for")
        ids = self._ids(id)
        if action is not None:
            self._refuse_waiting(ids)
            self._send(np.asarray(action), ids)
        wanted = min(self.wait_num, len(self.waiting_id)) if self.is_async else len(ids)
        while len(self._arrived) < wanted:
            self._receive(wanted - len(self._arrived))
        order = list(self._arrived) if self.is_async else ids
        rows = [self._arrived.pop(env) for env in order]
        for env, row in zip(order, rows, strict=True):
            row.info["env_id"] = env
        return (
            _together([row.observation for row in rows]),
            np.array([row.reward for row in rows]),
            np.array([row.terminated for row in rows], np.bool_),
            np.array([row.truncated for row in rows], np.bool_),
            np.array([row.info for row in rows], dtype=object),
        )

    def _send(self, actions: Any, ids: list[int]) -> None:
        self.fleet.send(actions, ids)
        self._stepping += ids

    def _receive(self, at_least: int) -> None:
        observations, rewards, terminated, truncated, infos = self.fleet.recv(at_least)
        ids = infos.pop("env_id").tolist()
        parts = (_rows(observations, len(ids)), rewards, terminated, truncated, info_rows(infos, len(ids)))
        for env, *row in zip(ids, *parts, strict=True):
            self._arrived[env] = _Row(*row)
            self._stepping.remove(env)
        self._ended[ids] = terminated | truncated

    def reset(self, env_id: EnvIds = None, **kwargs: Any) -> tuple[Array, Array]:
        """Reset the given environments; all get the same `seed` and `options`, as in Gymnasium's `Env.reset`."""
        ids = self._ids(env_id)
        self._refuse_waiting(ids)
        if self._stepping and not kwargs and self._ended[ids].all():
            # Do not wait for the others: stepping an ended environment resets it, whatever the action.
            self._send(create_empty_array(self.fleet.single_action_space, n=len(ids), fn=np.zeros), ids)
            while not self._arrived.keys() >= set(ids):
                self._receive(1)
            rows = [self._arrived.pop(env) for env in ids]
            return _together([row.observation for row in rows]), np.array([row.info for row in rows], dtype=object)
        while self._stepping:
            self._receive(len(self._stepping))
        return self._reset(ids, **kwargs)

    def _reset(self, ids: list[int], *, seed: int | None = None, options: Any = None) -> tuple[Array, Array]:
        mask = np.zeros(self.env_num, np.bool_)
        mask[ids] = True
        seeds = None if seed is None else [seed if own else None for own in mask]
        if not mask.all():
            options = {**(options or {}), "reset_mask": mask}
        observations, infos = self.fleet.reset(seed=seeds, options=options)
        self._ended[ids] = False
        each, rows = _rows(observations, self.env_num), info_rows(infos, self.env_num)
        return _together([each[env] for env in ids]), np.array([rows[env] for env in ids], dtype=object)

    def seed(self, seed: int | list[int] | None = None) -> list[list[int] | None]:
        """Reset every environment with its seed, and seed the action spaces, as Tianshou's own classes do."""
        seeds = [seed + i for i in range(self.env_num)] if isinstance(seed, int) else seed
        if seeds is None:
            return [None] * self.env_num
        self.fleet.reset(seed=seeds)
        for space, own in zip(self._action_spaces, seeds, strict=True):
            space.seed(own)
        return [[own] for own in seeds]

    # --- the environments themselves

    def get_env_attr(self, key: str, id: EnvIds = None) -> list[Any]:  # noqa: A002 (its name)
        """Attribute `key` of the given environments."""
        ids = self._ids(id)
        if key == "action_space":
            return [self._action_spaces[env] for env in ids]
        if key == "observation_space":
            return [self.fleet.single_observation_space for _ in ids]
        values = self.fleet.get_attr(key)
        return [values[env] for env in ids]

    def set_env_attr(self, key: str, value: Any, id: EnvIds = None) -> None:  # noqa: A002 (its name)
        """Set attribute `key` of the given environments."""
        self.fleet.call_at(self._ids(id), "set_wrapper_attr", key, value)

    def render(self, **kwargs: Any) -> list[Any]:
        """The frame of every environment."""
        return list(self.fleet.call("render", **kwargs))

    def close(self) -> None:
        """Close the fleet."""
        self.fleet.close()
        self.is_closed = True

    def _ids(self, given: EnvIds) -> list[int]:
        if given is None:
            return list(range(self.env_num))
        return [int(env) for env in np.atleast_1d(np.asarray(given))]

    def _refuse_waiting(self, ids: list[int]) -> None:
        waiting = sorted(set(ids) & set(self.waiting_id))
        if waiting:
            raise ProtocolError(f"environments {waiting} are still stepping", hint="take their results with step(None)")


def _rows(observations: Any, count: int) -> list[Any]:
    """Split batched observations into one per environment."""
    if isinstance(observations, dict):
        parts = {key: _rows(value, count) for key, value in observations.items()}
        return [{key: part[row] for key, part in parts.items()} for row in range(count)]
    return list(observations)


def _together(observations: list[Any]) -> Array:
    """Batch observations in Tianshou's form: one array, or an array of dictionaries."""
    if isinstance(observations[0], dict):
        return np.array(observations, dtype=object)
    return np.stack(observations)
