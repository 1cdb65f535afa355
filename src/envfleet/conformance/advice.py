"""Suggests wrappers that let an algorithm train on an environment whose spaces it does not support.

Every suggestion is tried first: a stand-in with the environment's spaces is wrapped, and the algorithm is asked
whether it supports the resulting spaces.
"""

from __future__ import annotations

import importlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envfleet.fleet.spaces import leaves_of

__all__ = ["Refusals", "helpful_wrappers", "smaller_pictures"]

Refusals = Callable[[Any, Any], dict[str, str]]  # (observation space, action space) -> reason, per refusing algorithm
Env = gymnasium.Env[Any, Any]

_SHOWN = 2  # suggestions per algorithm
_MOST_ACTIONS = 1000  # largest Discrete action space that is suggested
_BINS = (5, 3)  # bins per continuous action: the first that keeps the number of actions below the maximum


@dataclass(frozen=True)
class _Wrapping:
    """A wrapper: its code as text, its effect in words, and the function that applies it."""

    code: str
    effect: str
    wrap: Callable[[Env], Env]


def helpful_wrappers(observation_space: Any, action_space: Any, refusals: Refusals) -> dict[str, tuple[str, ...]]:
    """For each algorithm that refuses the spaces, the wrappers that make it accept them; fewest wrappers first."""
    refusing = refusals(observation_space, action_space).keys()
    found: dict[str, list[str]] = {algorithm: [] for algorithm in refusing}
    of_observations = [None, *_of_observations(observation_space)]
    of_actions = [None, *_of_actions(action_space)]
    combinations = sorted(itertools.product(of_observations, of_actions), key=lambda pair: len(_given(pair)))
    fewest: dict[str, int] = {}
    for pair in combinations[1:]:
        wrappings = _given(pair)
        still = [name for name in refusing if fewest.get(name, 2) >= len(wrappings) and len(found[name]) < _SHOWN]
        wrapped = _wrapped(observation_space, action_space, wrappings) if still else None
        if wrapped is None:
            continue
        refused = refusals(wrapped.observation_space, wrapped.action_space)
        for name in set(still) - refused.keys():
            found[name].append(", then ".join(f"{each.code} ({each.effect})" for each in wrappings))
            fewest[name] = len(wrappings)
    return {name: tuple(suggestions) for name, suggestions in found.items()}


def smaller_pictures(space: Any) -> str | None:
    """Suggest a wrapper for float64 images, which waste memory; None if there is nothing to suggest."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3 or space.dtype != np.float64:
        return None
    if (space.low >= 0).all() and (space.high == 255).all():
        return "gymnasium.wrappers.DtypeObservation(env, np.uint8) takes an eighth of the memory, for whole numbers"
    return "gymnasium.wrappers.DtypeObservation(env, np.float32) takes half of the memory"


def _given(pair: tuple[_Wrapping | None, ...]) -> list[_Wrapping]:
    return [wrapping for wrapping in pair if wrapping is not None]


def _wrapped(observation_space: Any, action_space: Any, wrappings: list[_Wrapping]) -> Env | None:
    env: Env = _StandIn(observation_space, action_space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this is only a trial
        try:
            for wrapping in wrappings:
                env = wrapping.wrap(env)
        except Exception:  # noqa: BLE001 - a wrapper that does not support these spaces may raise anything
            return None
    return env


class _StandIn(gymnasium.Env[Any, Any]):
    """An environment with only spaces, which is all that wrappers look at when they are constructed."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def _of_observations(space: Any) -> Iterator[_Wrapping]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = _parts(space)
        if any(type(part).__module__.startswith("minigrid.") for part in parts.values()):
            yield from _of_minigrid()
        kept = [key for key, part in parts.items() if all(leaf.fixed for leaf in leaves_of(part))]
        left_out = ", ".join(repr(key) for key in parts if key not in kept)
        yield _Wrapping(
            f"gymnasium.wrappers.FilterObservation(env, {kept!r})",
            f"without {left_out}",
            lambda env: gymnasium.wrappers.FilterObservation(env, kept),
        )
    yield _Wrapping(
        "gymnasium.wrappers.FlattenObservation(env)",
        "everything as one vector of numbers",
        gymnasium.wrappers.FlattenObservation,
    )


def _parts(space: spaces.Dict | spaces.Tuple[Any]) -> dict[str | int, Any]:
    return dict(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def _of_minigrid() -> Iterator[_Wrapping]:
    wrappers: Any = importlib.import_module("minigrid.wrappers")
    yield _Wrapping("minigrid.wrappers.ImgObsWrapper(env)", "the grid without the mission", wrappers.ImgObsWrapper)
    yield _Wrapping("minigrid.wrappers.FlatObsWrapper(env)", "grid and mission as one vector", wrappers.FlatObsWrapper)


def _of_actions(space: Any) -> Iterator[_Wrapping]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        yield from _of_joint_actions(space)
    elif isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype.kind == "f":
        numbers = math.prod(space.shape)
        bins = next((bins for bins in _BINS if bins**numbers <= _MOST_ACTIONS), None)
        if bins is not None and np.isfinite(space.low).all() and np.isfinite(space.high).all():
            yield _Wrapping(
                f"gymnasium.wrappers.DiscretizeAction(env, {bins})",
                f"{bins**numbers} actions",
                lambda env: gymnasium.wrappers.DiscretizeAction(env, bins),
            )
    elif isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 and not space.start.any():
        sizes = space.nvec.tolist()
        if (count := math.prod(sizes)) <= _MOST_ACTIONS:
            code = f"lambda a: np.array(np.unravel_index(a, {sizes})), gymnasium.spaces.Discrete({count})"
            yield _Wrapping(
                f"gymnasium.wrappers.TransformAction(env, {code})",
                f"{count} actions",
                lambda env: gymnasium.wrappers.TransformAction(env, lambda a: a, spaces.Discrete(count)),
            )


def _of_joint_actions(space: spaces.Dict | spaces.Tuple[Any]) -> Iterator[_Wrapping]:
    is_dict = isinstance(space, spaces.Dict)
    parts = _parts(space)
    if not parts:
        return
    if all(isinstance(part, spaces.Discrete) for part in parts.values()):
        sizes, starts = [[int(getattr(part, name)) for part in parts.values()] for name in ("n", "start")]
        entries = [f"{key!r}: a[{place}]" if is_dict else f"a[{place}]" for place, key in enumerate(parts)]
        rebuilt = f"{{{', '.join(entries)}}}" if is_dict else f"({', '.join(entries)},)"
        start = f", start={starts}" if any(starts) else ""
        joint = f"gymnasium.spaces.MultiDiscrete({sizes}{start})"
        yield _Wrapping(
            f"gymnasium.wrappers.TransformAction(env, lambda a: {rebuilt}, {joint})",
            "its parts side by side",
            lambda env: gymnasium.wrappers.TransformAction(
                env, lambda a: a, spaces.MultiDiscrete(sizes, start=np.array(starts))
            ),
        )
    elif all(isinstance(leaf.space, spaces.Box) for leaf in leaves_of(space)):
        # The suggested lambda binds the space early: once `env` is the wrapped env, it has another action space.
        yield _Wrapping(
            "gymnasium.wrappers.TransformAction(env, lambda a, space=env.action_space: "
            "gymnasium.spaces.unflatten(space, a), gymnasium.spaces.flatten_space(env.action_space))",
            "its parts in one vector",
            lambda env: gymnasium.wrappers.TransformAction(env, lambda a: a, spaces.flatten_space(env.action_space)),
        )
