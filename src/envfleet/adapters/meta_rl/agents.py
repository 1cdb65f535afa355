"""Agents as pomdp-baselines has them, and how each acts in one environment."""

from __future__ import annotations

import copy
from enum import StrEnum
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.errors import SettingsError
from envfleet.fleet.random_actions import RandomAgent

__all__ = ["AGENT_ARCHS", "acting"]

_CUT = 160  # characters of an action in a message


class AGENT_ARCHS(StrEnum):  # noqa: N801  # the name in pomdp-baselines
    """Which parts of an agent have memory. A member equals its text, as in pomdp-baselines."""

    Markov = "markov"
    Memory_Markov = "memory-markov"  # the critic alone: the agent acts on the observation, as a Markov one
    Memory = "memory"


class _Markov:
    """Calls `agent.act(observation)`."""

    def __init__(self, agent: Any, space: spaces.Space[Any], deterministic: bool) -> None:
        self._agent, self._space, self._deterministic = agent, space, deterministic

    def reset(self) -> None:
        """Has no memory."""

    def __call__(self, observation: Any, info: dict[str, Any]) -> Any:
        acted = self._agent.act(_row(observation), deterministic=self._deterministic)
        return _action(acted[0] if isinstance(acted, tuple) else acted, self._space)


class _Memory:
    """Calls `agent.act` with the internal state, the previous action and the previous reward."""

    def __init__(self, agent: Any, space: spaces.Space[Any], deterministic: bool) -> None:
        self._agent, self._space, self._deterministic = agent, space, deterministic

    def reset(self) -> None:
        self._previous, self._reward, self._state = self._agent.get_initial_info()
        self._first = True

    def __call__(self, observation: Any, info: dict[str, Any]) -> Any:
        reward = self._reward if self._first else _row([info["reward"]])
        self._first = False
        (self._previous, *_), self._state = self._agent.act(
            prev_internal_state=self._state,
            prev_action=self._previous,
            reward=reward,
            obs=_row(observation),
            deterministic=self._deterministic,
        )
        return _action(self._previous, self._space)


class _OwnMemory:
    """A copy of a trained policy of Envfleet, which keeps its memory itself."""

    def __init__(self, agent: Any, deterministic: bool) -> None:
        self._agent, self._deterministic = copy.copy(agent), deterministic

    def reset(self) -> None:
        self._agent.reset()

    def __call__(self, observation: Any, info: dict[str, Any]) -> Any:
        return self._agent.act(observation, deterministic=self._deterministic)


def acting(
    agent: Any, arch: AGENT_ARCHS | str, space: spaces.Space[Any], *, random: bool, deterministic: bool, seed: int
) -> Any:
    """Return the agent for one rollout: call `reset()`, then `agent(observation, info)` for each action.

    `info["reward"]` is the previous reward.
    """
    if random:
        return RandomAgent(space, seed)
    try:
        arch = AGENT_ARCHS(arch)
    except ValueError:
        raise SettingsError(
            f"agent_arch is {arch!r}, expected one of {', '.join(each.value for each in AGENT_ARCHS)}"
        ) from None
    needed = ["act"]
    if arch is AGENT_ARCHS.Memory:
        needed += ["reset"] if hasattr(agent, "reset") else ["get_initial_info"]
    for name in needed:
        if not callable(getattr(agent, name, None)):
            raise SettingsError(
                f"agent is {type(agent).__name__}, expected an agent with a method {name}()",
                hint="use random_actions=True to collect without an agent",
            )
    if arch is not AGENT_ARCHS.Memory:
        return _Markov(agent, space, deterministic)
    return _OwnMemory(agent, deterministic) if "reset" in needed else _Memory(agent, space, deterministic)


def _row(values: Any) -> Any:
    """A batch of one, as a tensor: what these agents take."""
    import torch

    return torch.as_tensor(np.asarray(values, np.float32)[None])


def _action(given: Any, space: spaces.Space[Any]) -> Any:
    """The action for the environment, from a batch of one; Discrete actions may be one-hot, as there."""
    values = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    if isinstance(space, spaces.Discrete):
        if values.size == 1:
            return int(values.reshape(()))
        if values.size == space.n:
            return int(values.argmax() + space.start)
    elif values.size == np.prod(space.shape or ()):
        return np.asarray(values.reshape(space.shape or ()), space.dtype)
    raise SettingsError(f"the agent chose {str(values.tolist())[:_CUT]}, expected an action of {space}")
