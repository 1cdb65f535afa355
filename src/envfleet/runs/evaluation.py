"""Evaluation: whole episodes in a single environment, with seeds that no training environment uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from envfleet.errors import SettingsError
from envfleet.seeding import derive_seed

__all__ = ["Actor", "Evaluation", "evaluate", "evaluation_seeds"]

_STREAM = 0xE7A1  # names the seeds of evaluation among the streams of a run
_TRAINING_SEEDS = 2**20  # training uses seed, seed + 1, ... up to this many environments


class Actor(Protocol):
    """What chooses actions; `reset` comes before every episode and clears its memory."""

    def reset(self) -> None: ...
    def __call__(self, observation: Any, info: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Evaluation:
    """The outcome of whole episodes."""

    mean_reward: float
    std_reward: float  # of the episodes themselves, as others print it
    episodes: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    confidence_interval: tuple[float, float] | None  # 95 % for the mean (Student's t); None for one episode
    seeds: tuple[int, ...]
    deterministic: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def evaluate(
    make_env: Callable[[], Any],
    act: Actor,
    *,
    episodes: int,
    seed: int,
    deterministic: bool,
    training_seed: int | None = None,
    max_episode_steps: int | None = None,
    on_frame: Callable[[Any], None] | None = None,
) -> Evaluation:
    """Plays `episodes` in one environment of `make_env`, each reset with a seed of its own.

    `seed` names the stream of those seeds; `training_seed` is that of the run, where it is another.
    `deterministic` says how `act` chooses and is kept in the result. `on_frame` gets every picture that the
    environment renders. An episode of more than `max_episode_steps` ends there.
    """
    if episodes < 1:
        raise SettingsError(f"got {episodes} episodes, expected at least 1")
    seeds = evaluation_seeds(seed, episodes, training_seed)
    env = make_env()
    try:
        played = [_play(env, act, episode_seed, max_episode_steps, on_frame) for episode_seed in seeds]
    finally:
        env.close()
    returns, lengths = zip(*played, strict=True)
    mean, spread = float(np.mean(returns)), float(np.std(returns))
    interval = confidence_interval(returns)
    return Evaluation(mean, spread, episodes, returns, lengths, interval, tuple(seeds), deterministic)


def evaluation_seeds(seed: int, episodes: int, training_seed: int | None = None) -> list[int]:
    """Seeds from 2**30 to 2**31, all different, none of them one that training gives an environment."""
    first = seed if training_seed is None else training_seed
    training = range(first, first + _TRAINING_SEEDS)
    seeds: dict[int, None] = {}
    number = 0
    while len(seeds) < episodes:
        # Below 2**31, because many simulators take no more; from 2**30, far from the seeds that people type.
        candidate = 2**30 + (derive_seed(seed, _STREAM, number) >> 2)
        if candidate not in training:
            seeds[candidate] = None
        number += 1
    return list(seeds)


def _play(
    env: Any, act: Actor, seed: int, max_episode_steps: int | None, on_frame: Callable[[Any], None] | None
) -> tuple[float, int]:
    """Return and length of one episode."""
    observation, info = env.reset(seed=seed)
    act.reset()
    _show(env, on_frame)
    total, length, ended = 0.0, 0, False
    while not ended and length != max_episode_steps:
        observation, reward, terminated, truncated, info = env.step(act(observation, info))
        total, length, ended = total + float(reward), length + 1, bool(terminated or truncated)
        _show(env, on_frame)
    return total, length


def _show(env: Any, on_frame: Callable[[Any], None] | None) -> None:
    if on_frame is None:
        return
    frames = env.render()
    for frame in frames if isinstance(frames, list) else [frames]:
        if frame is not None:  # the environment shows itself in a window
            on_frame(frame)


# ---- statistics ----

# Student's t for 97.5 %, for 1, 2, ... 30 degrees of freedom.
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
_Z = 1.959964  # of the normal distribution


def confidence_interval(values: tuple[float, ...]) -> tuple[float, float] | None:
    """Where the mean lies with a confidence of 95 %, if the values are spread normally."""
    freedom = len(values) - 1
    if freedom < 1:
        return None
    # Beyond the table, the first terms of the expansion of t around the normal quantile.
    expansion = _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
    t = _T[freedom - 1] if freedom <= len(_T) else expansion
    mean = float(np.mean(values))
    margin = t * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean - margin, mean + margin
