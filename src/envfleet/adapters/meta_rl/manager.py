"""Environments that are stepped and reset one by one, each at its own pace."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet.adapters.infos import info_rows
from envfleet.adapters.meta_rl.envs import worker_env
from envfleet.errors import ProtocolError, SettingsError
from envfleet.fleet.fleet import Fleet
from envfleet.fleet.make import make

__all__ = ["ParallelEnvManager", "Remote", "Streams", "make_parallel_env"]

Array = np.ndarray[Any, Any]


def make_parallel_env(
    env_id: str,
    episodes_per_task: int,
    num_workers: int,
    seed: int | None = None,
    oracle: bool = False,
    *,
    backend: str = "processes",
    **kwargs: Any,
) -> ParallelEnvManager:
    """Make `num_workers` environments of `make_env`. They share the worker processes that the cores can run at once."""
    make_one = functools.partial(worker_env, env_id, episodes_per_task, oracle, kwargs)
    return ParallelEnvManager(make(make_one, num_workers, backend=backend, group_size=1, seed=seed))


class ParallelEnvManager:
    """Environments in worker processes, each with its own task and at its own pace.

    `remotes[i].send(("reset", {"task": task}))` and `remotes[i].send(("step", action))` return at once;
    `remotes[i].recv()` waits for the answer: `observation, info`, or the five values of Gymnasium's `step`.
    `close()`, or deleting the object, ends the worker processes.
    """

    def __init__(self, fleet: Fleet) -> None:
        if any(len(group) > 1 for group in fleet.groups) or fleet.autoreset_mode is not AutoresetMode.NEXT_STEP:
            raise SettingsError(
                "the fleet has groups of several environments or another autoreset, expected group_size=1 and "
                'autoreset="next_step"',
                hint="use make_parallel_env",
            )
        self.fleet = fleet
        self.num_workers = fleet.num_envs
        self.observation_space, self.action_space = fleet.single_observation_space, fleet.single_action_space
        self.seed, self.rollouts_begun = fleet.seed, 0
        # Nothing refers back to this object, so that deleting it frees the fleet at once.
        self.streams = Streams(fleet)
        self.remotes = [Remote(self.streams, env) for env in range(fleet.num_envs)]

    def reset(self, tasks: Sequence[Any] | None = None) -> tuple[Array, list[dict[str, Any]]]:
        """Reset all environments, with one task each if given; return the observations and an info for each."""
        if tasks is not None and len(tasks) != self.num_workers:
            raise SettingsError(f"received {len(tasks)} tasks, expected one per environment: {self.num_workers}")
        for env, remote in enumerate(self.remotes):
            remote.send(("reset", {} if tasks is None else {"task": tasks[env]}))
        answers = [remote.recv() for remote in self.remotes]
        return np.stack([observation for observation, _ in answers]), [info for _, info in answers]

    def close(self) -> None:
        """End the worker processes."""
        self.fleet.close()


class Remote:
    """One environment: `send` a command, then `recv` its answer."""

    def __init__(self, streams: Streams, env: int) -> None:
        self._streams, self._env = streams, env

    def send(self, message: tuple[str, Any]) -> None:
        """Send ("reset", {"task": task}) or ("step", action); the task may be left out."""
        command, data = message
        if command == "step":
            self._streams.step(self._env, data)
        elif command == "reset":
            self._streams.reset(self._env, (data or {}).get("task"))
        else:
            raise SettingsError(f"received the command {command!r}, expected 'reset' or 'step'")

    def recv(self) -> Any:
        """Wait for the answer to the last command: `observation, info` of a reset, the five values of a step."""
        return self._streams.receive(self._env)


class Streams:
    """The commands under way in a fleet, and the answers that nobody has asked for yet.

    A fleet resets while no environment steps. So resets wait until an answer is asked for; then the steps under way
    are received, and all waiting resets are done together.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stepping: set[int] = set()
        self._resets: dict[int, Any] = {}  # tasks, by environment
        self._arrived: dict[int, Any] = {}
        self._tasks: list[Any] = [None] * fleet.num_envs
        self._ended = [True] * fleet.num_envs
        self._is_new = True

    def step(self, env: int, action: Any) -> None:
        """Begin a step of one environment."""
        self._refuse_busy(env)
        if self._ended[env]:
            raise ProtocolError(f"environment {env} has ended, or was never reset", hint='send ("reset", {}) first')
        self.go_on(env, action)

    def go_on(self, env: int, action: Any) -> None:
        """Begin a step of one environment; one that has ended is reset, whatever the action."""
        if self._resets:
            self._reset_waiting()
        self._fleet.send(np.asarray(action)[None], [env])
        self._stepping.add(env)

    def reset(self, env: int, task: Any) -> None:
        """Begin a reset of one environment, with its next task if `task` is None."""
        self._refuse_busy(env)
        self._resets[env] = task

    def begin(self, rollouts: dict[int, Sequence[tuple[int, Any]]]) -> None:
        """Assign rollouts to environments and begin the first of each; an environment must not be stepping."""
        self._receive_all()
        for env, assigned in rollouts.items():
            self._fleet.call_at([env], "assign", list(assigned))
            self._resets[env] = None
        self._reset_waiting()

    def receive(self, env: int) -> Any:
        """Wait for the answer of one environment."""
        if env in self._resets:
            self._reset_waiting()
        while env not in self._arrived:
            if env not in self._stepping:
                raise ProtocolError(f"environment {env} was sent nothing", hint="call send() before recv()")
            self._receive(1)
        return self._arrived.pop(env)

    def receive_first(self) -> dict[int, Any]:
        """Take the answers that have arrived; wait for one if there is none."""
        if not self._arrived:
            self._receive(1)
        arrived, self._arrived = self._arrived, {}
        return arrived

    def _refuse_busy(self, env: int) -> None:
        if env in self._stepping or env in self._resets or env in self._arrived:
            raise ProtocolError(f"environment {env} has an answer that was not received", hint="call recv() first")

    def _receive_all(self) -> None:
        while self._stepping:
            self._receive(len(self._stepping))

    def _receive(self, at_least: int) -> None:
        observations, rewards, terminated, truncated, infos = self._fleet.recv(at_least)
        envs = infos.pop("env_id").tolist()
        each = zip(envs, observations, rewards, terminated, truncated, info_rows(infos, len(envs)), strict=True)
        for env, observation, reward, is_terminated, is_truncated, info in each:
            self._arrived[env] = (observation, float(reward), bool(is_terminated), bool(is_truncated), info)
            self._ended[env] = bool(is_terminated or is_truncated)
            self._stepping.discard(env)

    def _reset_waiting(self) -> None:
        self._receive_all()
        waiting, self._resets = self._resets, {}
        for env, task in waiting.items():
            self._tasks[env] = task
        mask = np.zeros(self._fleet.num_envs, np.bool_)
        mask[list(waiting)] = True
        # A new fleet resets all of its environments.
        options = None if self._is_new or mask.all() else {"reset_mask": mask}
        observations, infos = self._fleet.reset(options=options, tasks=self._tasks)
        self._is_new = False
        each = info_rows(infos, self._fleet.num_envs)
        for env in waiting:
            self._arrived[env] = (observations[env], each[env])
            self._ended[env] = False
