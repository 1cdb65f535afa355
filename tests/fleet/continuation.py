"""Comparing an environment with the one whose state it was given."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envfleet.fleet.state import capture, restore


def is_plain(value: object) -> bool:
    """Whether strict JSON and a file of arrays can hold `value`."""
    if value is None or type(value) in {bool, int, str}:
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is list:
        return all(is_plain(item) for item in value)
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    return type(value) is np.ndarray and value.dtype.kind in "biuf" and value.dtype.isnative and value.itemsize <= 8


def through_files(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state as read back from strict JSON text and a separate list of arrays."""
    assert is_plain(state)
    arrays: list[np.ndarray] = []

    def put_aside(array: np.ndarray) -> dict[str, int]:
        arrays.append(array.copy())
        return {"array number": len(arrays) - 1}

    text = json.dumps(state, default=put_aside, allow_nan=False)

    def put_back(mapping: dict[str, Any]) -> Any:
        return arrays[mapping["array number"]] if mapping.keys() == {"array number"} else mapping

    return json.loads(text, object_hook=put_back)


def as_bytes(value: Any) -> bytes:
    """Return a value with its types as bytes, without the duration of an episode."""
    kind = type(value).__name__.encode()
    if isinstance(value, dict):
        items = [as_bytes(key) + as_bytes(item) for key, item in value.items() if key != "t"]
        return kind + b"{" + b",".join(items) + b"}"
    if isinstance(value, list | tuple | deque):
        return kind + b"[" + b",".join(map(as_bytes, value)) + b"]"
    if isinstance(value, set | frozenset):
        return kind + b"(" + b",".join(sorted(map(as_bytes, value))) + b")"
    if isinstance(value, np.ndarray | np.generic) and value.dtype != np.longdouble:  # it has padding bytes
        return kind + str(value.dtype).encode() + str(value.shape).encode() + value.tobytes()
    return kind + repr(value).encode()


def play(env: gymnasium.Env, steps: int) -> list[bytes]:
    """Play `steps` random steps; return actions, results and resets as bytes."""
    history = []
    for _ in range(steps):
        action = env.action_space.sample()
        result = env.step(action)
        history.append(as_bytes((action, *result)))
        if result[2] or result[3]:
            history.append(as_bytes(env.reset()))
    return history


def started(env: gymnasium.Env, steps: int) -> gymnasium.Env:
    env.action_space.seed(5)
    env.observation_space.seed(6)
    env.reset(seed=7)
    play(env, steps)
    return env


def assert_continues_exactly(make: Callable[[], gymnasium.Env], before: int, after: int) -> None:
    original, fresh = started(make(), before), make()
    restore(fresh, through_files(capture(original)))
    assert play(original, after) == play(fresh, after)
    assert as_bytes(original.observation_space.sample()) == as_bytes(fresh.observation_space.sample())
    assert original.unwrapped.np_random.integers(2**62) == fresh.unwrapped.np_random.integers(2**62)


class Holder(gymnasium.Env):
    """An environment with the given attributes."""

    observation_space: spaces.Space = spaces.Discrete(2)
    action_space: spaces.Space = spaces.Discrete(2)

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)
