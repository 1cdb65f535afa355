"""Evaluation: whole episodes in a single environment, with seeds that no training environment uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from envfleet.capabilities import Agent
from envfleet.confidence import confidence_interval
from envfleet.errors import EnvContext, EnvError, SettingsError
from envfleet.fleet.episode_numbers import EpisodeNumbers, followed, means, successes
from envfleet.fleet.random_actions import RandomAgent
from envfleet.seeding import derive_seed
from envfleet.wording import counted

__all__ = ["Evaluation", "PlayStopped", "evaluate", "evaluation_seeds", "random_play"]

_STREAM = 0xE7A1  # separates the evaluation seeds from the other streams of a run
_TRAINING_SEEDS = 2**20  # training uses seed, seed + 1, ... up to this many environments


@dataclass(frozen=True)
class Evaluation:
    """The results of whole episodes."""

    mean_reward: float
    std_reward: float  # over episodes, as usual elsewhere
    episodes: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    confidence_interval: tuple[float, float] | None  # 95 % for the mean (Student's t); None for one episode
    seeds: tuple[int, ...]
    deterministic: bool
    successes: tuple[bool, ...] | None = None  # per episode; None if the environment does not report it
    infos: dict[str, float] = field(default_factory=dict)  # the mean of each key of log_info that has numbers
    lost: int = 0  # episodes ended by a fault of the environment; not counted
    cut: int = 0  # episodes cut at the step limit; counted as they are
    trials: tuple[tuple[float, ...], ...] = ()  # of each trial, the return of each of its episodes (meta-RL)
    tasks: tuple[str, ...] = ()  # of each trial, its task as text; empty if the environment does not report tasks
    each_task_once: bool = False  # the tasks were given, instead of drawn

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def evaluate(
    make_env: Callable[[], Any],
    act: Agent,
    *,
    episodes: int,
    seed: int,
    deterministic: bool,
    training_seed: int | None = None,
    max_episode_steps: int | None = None,
    on_frame: Callable[[Any], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    log_info: Sequence[str] = (),
    on_episode: Callable[[int, int], None] | None = None,
    fixed_tasks: Callable[[], Sequence[Any]] = tuple,
) -> Evaluation:
    """Play `episodes` in one environment of `make_env`, each with a different seed.

    `seed` selects the stream of those seeds. `training_seed` is the run's seed, if different. `deterministic` only
    records how `act` chooses. `on_frame` gets every rendered frame. An episode is cut after `max_episode_steps`. Raises
    `PlayStopped` as soon as `stopped` returns true. `log_info` are keys of infos, as in training; the result has their
    numbers. `on_episode` gets the number of episodes played so far, and of all. Ctrl-C gets a note with their returns.
    If `fixed_tasks` returns tasks, each is played once, in order, and there are at most as many episodes. It is called
    after `make_env`.
    """
    if episodes < 1:
        raise SettingsError(f"got {episodes} episodes, expected at least 1")
    keys = followed(log_info)
    numbers = EpisodeNumbers(keys, 1)
    env = make_env()
    tried: list[_Episode] = []
    try:
        tasks = fixed_tasks()
        episodes = min(episodes, len(tasks)) if tasks else episodes
        seeds = evaluation_seeds(seed, episodes, training_seed)
        for place, episode_seed in enumerate(seeds):
            options = {"task": tasks[place]} if tasks else None
            tried.append(_play(env, act, episode_seed, max_episode_steps, on_frame, stopped, numbers, options))
            if on_episode is not None:
                on_episode(len(tried), episodes)
    except KeyboardInterrupt as interrupt:
        _note(interrupt, [episode.total for episode in tried if not episode.lost], episodes, seed)
        raise
    finally:
        env.close()
    if all(episode.lost for episode in tried):
        raise EnvError(
            f"all {episodes} episodes were lost to faults of the environment",
            EnvContext(0, "an evaluation", seed),
            hint="the log above says how each of them ended",
        )
    return _summary(tried, seeds, keys, deterministic=deterministic, each_task_once=bool(tasks))


def _summary(
    tried: Sequence[_Episode], seeds: Sequence[int], keys: Sequence[str], *, deterministic: bool, each_task_once: bool
) -> Evaluation:
    """Summarise the episodes that were not lost; there must be one."""
    played = [(episode, seed) for episode, seed in zip(tried, seeds, strict=True) if not episode.lost]
    returns = tuple(episode.total for episode, _ in played)
    trials = [episode for episode, _ in played if episode.inner]
    numbers_by_key = {key: [episode.numbers[place] for episode, _ in played] for place, key in enumerate(keys)}
    succeeded = successes(numbers_by_key)
    return Evaluation(
        mean_reward=float(np.mean(returns)),
        std_reward=float(np.std(returns)),
        episodes=len(played),
        returns=returns,
        lengths=tuple(episode.length for episode, _ in played),
        confidence_interval=confidence_interval(returns),
        seeds=tuple(seed for _, seed in played),
        deterministic=deterministic,
        successes=None if succeeded is None else tuple(succeeded),
        infos=means(numbers_by_key),
        lost=len(tried) - len(played),
        cut=sum(episode.cut for episode, _ in played),
        trials=tuple(episode.inner for episode in trials),
        tasks=tuple(episode.task for episode in trials if episode.task is not None),
        each_task_once=each_task_once,
    )


def evaluation_seeds(seed: int, episodes: int, training_seed: int | None = None) -> list[int]:
    """Distinct seeds from 2**30 to 2**31 that training gives to no environment."""
    first = seed if training_seed is None else training_seed
    training = range(first, first + _TRAINING_SEEDS)
    seeds: dict[int, None] = {}
    number = 0
    while len(seeds) < episodes:
        # Below 2**31, because many simulators accept no more. From 2**30, far from the seeds that people type.
        candidate = 2**30 + (derive_seed(seed, _STREAM, number) >> 2)
        if candidate not in training:
            seeds[candidate] = None
        number += 1
    return list(seeds)


def _note(interrupt: KeyboardInterrupt, returns: Sequence[float], episodes: int, seed: int) -> None:
    """Add the result so far to an interrupt: the episodes may have taken hours."""
    if returns:
        mean, deviation = np.mean(returns), np.std(returns)
        interrupt.add_note(
            f"{len(returns):,} of {counted(episodes, 'episode')} with seed {seed} were played: return {mean:.6g} ± "
            f"{deviation:.6g}"
        )


class PlayStopped(Exception):
    """Raised when play is asked to stop before its end."""


class _Episode(NamedTuple):
    total: float
    length: int
    numbers: Sequence[float] = ()  # of its infos, by key
    cut: bool = False  # at the step limit
    lost: bool = False  # to a fault of the environment
    inner: tuple[float, ...] = ()  # the returns of the episodes of a trial
    task: str | None = None  # as text, to compare tasks


def _play(
    env: Any,
    act: Agent,
    seed: int,
    max_episode_steps: int | None,
    on_frame: Callable[[Any], None] | None,
    stopped: Callable[[], bool],
    numbers: EpisodeNumbers,
    options: dict[str, Any] | None = None,
) -> _Episode:
    observation, info = env.reset(seed=seed, options=options) if options else env.reset(seed=seed)
    task = str(np.asarray(info["task"]).tolist()) if "task" in info else None
    act.reset()
    numbers.begin(0)
    _show(env, on_frame)
    total, length, ended = 0.0, 0, False
    while not ended and length != max_episode_steps:
        if stopped():
            raise PlayStopped
        observation, reward, terminated, truncated, info = env.step(act(observation, info))
        if info.get("restarted"):
            return _Episode(total, length, lost=True)
        numbers.add(0, info)
        total, length, ended = total + float(reward), length + 1, bool(terminated or truncated)
        _show(env, on_frame)
    inner = tuple(map(float, info.get("episode_returns", ())))
    return _Episode(total, length, numbers.end(0, info), cut=not ended, inner=inner, task=task)


def random_play(
    make_env: Callable[[], Any],
    *,
    steps: int,
    seed: int,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[list[float], int]:
    """Play episodes of uniformly random actions, about `steps` in all. Returns their returns and the steps played.

    An episode is cut after `steps`.
    """
    env = make_env()
    returns: list[float] = []
    nothing = EpisodeNumbers((), 1)
    played = tried = 0
    seeds: list[int] = []
    try:
        act = RandomAgent(env.action_space, derive_seed(seed, _STREAM, _STREAM) >> 1)
        while played < steps:
            if tried == len(seeds):  # a longer list begins with the same seeds
                seeds = evaluation_seeds(seed, 2 * len(seeds) + 16)
            episode = _play(env, act, seeds[tried], steps, None, stopped, nothing)
            tried += 1
            played += max(1, episode.length)
            if not episode.lost:
                returns.append(episode.total)
    finally:
        env.close()
    return returns, played


def _show(env: Any, on_frame: Callable[[Any], None] | None) -> None:
    if on_frame is None:
        return
    frames = env.render()
    for frame in frames if isinstance(frames, list) else [frames]:
        if frame is not None:  # None if the environment renders to a window
            on_frame(frame)
