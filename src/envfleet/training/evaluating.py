"""Evaluates a trained run: plays its policy in its environment."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.algorithms.settings import TrainingSettings
from envfleet.capabilities import Agent, Compares, HeldOut, HoldsOut
from envfleet.confidence import confidence_interval
from envfleet.errors import SettingsError
from envfleet.policies.learner_threads import torch_threads
from envfleet.runs.adaptation import Adaptation
from envfleet.runs.evaluation import Evaluation, evaluate
from envfleet.runs.folder import RunFolder
from envfleet.runs.trained_policy import TrainedAgent
from envfleet.runs.video import VideoWriter
from envfleet.search import SearchingAgent, Simulates
from envfleet.training.filming import rendering, shown_env
from envfleet.training.held_out import fixed_tasks, held_out_tasks
from envfleet.training.opened_run import OpenedRun
from envfleet.training.stage import Stage

__all__ = ["RunEvaluation", "adaptation_of", "evaluate_run", "film_task", "no_simulation"]


@dataclass(frozen=True)
class RunEvaluation:
    """The evaluation of a checkpoint."""

    run: str
    env: str
    checkpoint: str
    step: int
    mean_reward: float
    std_reward: float  # over episodes
    confidence_interval: tuple[float, float] | None  # 95 % for the mean; None for one episode
    episodes: int
    mean_length: float
    deterministic: bool
    seeds: tuple[int, ...]  # each selects a different stream of episodes
    mean_reward_per_seed: tuple[float, ...]
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    success_rate: float | None  # None if the environment has neither info["is_success"] nor info["success"]
    infos: dict[str, float]  # the mean of each key of the run's log_info that has numbers
    lost: int  # episodes ended by faults of the environment; not counted
    cut: int  # episodes cut at the step limit; counted as they are
    played: str | None = None  # e.g. the training levels; None if the environment has no others
    held_out: RunEvaluation | None = None  # the same on all levels, if training used only some
    adaptation: Adaptation | None = None  # of trials, if an episode of the environment is a trial (meta-RL)
    compares: bool = False  # the environment offers a comparison (`compare_run`); not asked if something is shown

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        del plain["adaptation"], plain["compares"]
        plain |= {} if self.adaptation is None else self.adaptation.to_json()
        return plain if self.held_out is None else {**plain, "held_out": self.held_out.to_json()}


def evaluate_run(
    path: str | Path,
    *,
    episodes: int = 100,
    tasks: int | None = None,
    checkpoint: str | None = None,
    deterministic: bool | None = None,
    seeds: Sequence[int] = (),
    trust: bool = False,
    env: Any = None,
    policy: Any = None,
    render: bool = False,
    video: str | Path | None = None,
    max_steps: int | None = None,
    search: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    on_episode: Callable[[int, int], None] | None = None,
) -> RunEvaluation:
    """Play `episodes` for each of `seeds` (default: the run's seed) in a single environment.

    `checkpoint` is final, best, last or step-N (default: final if it exists, otherwise last). `deterministic` chooses
    between the best actions and sampled ones; by default it is the same as in the run's own evaluations. If the run was
    trained with your own `env` or `policy`, pass those as objects, or set `trust=True` to import the code that the run
    names. `render` shows the episodes in a window; `video` writes them to a file. An episode is cut after `max_steps`,
    by default the run's eval_max_steps. Faults of the environment are handled as in training. If the run was trained on
    only a part of the environment (some levels of a game), it is also evaluated on all of it: see `held_out`.

    With `search`, the policy proposes that many actions at every step, and the environment's simulation chooses among
    them (see `envfleet.search`). `env_kwargs` replace arguments of the environment, to play the policy elsewhere than
    it was trained; its weights must fit the observations there. `on_episode` is called after each episode with the
    number of episodes played so far, and of all.

    `tasks` is for environments with tasks: play a trial of each of that many held-out tasks, instead of `episodes`;
    the video is of the first one. If the environment has a fixed set of them (num_eval_tasks), each is played once, in
    order, and there are at most as many. Trials must not be cut, so `max_steps` has to be at least their length.
    """
    opened = OpenedRun.open(path, checkpoint=checkpoint, trust=trust, env=env, policy=policy, env_kwargs=env_kwargs)
    play = _Play(
        opened,
        episodes=episodes if tasks is None else tasks,
        deterministic=opened.takes_best(deterministic),
        seeds=tuple(seeds) or (opened.settings.seed or 0,),
        max_steps=max_steps or opened.settings.eval_max_steps,
        search=search,
        on_episode=on_episode,
    )
    if tasks is not None:
        return _on_held_out_tasks(play, render, video)
    result, held_out = play.shown(render, video)
    if held_out is None:
        return result
    also, _ = play.shown(env_kwargs=held_out.env_kwargs)
    return replace(result, played=held_out.trained, held_out=replace(also, played=held_out.all))


def _on_held_out_tasks(play: _Play, render: bool, video: str | Path | None) -> RunEvaluation:
    """Play tasks that training does not use. If there are none, play the tasks of training and say so."""
    found = held_out_tasks(play.opened)
    play = replace(play, opened=found.opened)
    result, _ = play.shown(render)
    found.refuse_cut(result.run, result.cut, result.episodes, play.max_steps)
    if video is not None:
        replace(play, episodes=1, seeds=play.seeds[:1]).shown(video=video)
    return replace(result, played=found.name)


def film_task(
    path: str | Path,
    video: str | Path,
    *,
    checkpoint: str | None = None,
    deterministic: bool | None = None,
    seeds: Sequence[int] = (),
    trust: bool = False,
    max_steps: int | None = None,
) -> None:
    """Write a video of the first held-out task that `evaluate_run` plays with these arguments."""
    opened = held_out_tasks(OpenedRun.open(path, checkpoint=checkpoint, trust=trust)).opened
    play = _Play(
        opened,
        episodes=1,
        deterministic=opened.takes_best(deterministic),
        seeds=tuple(seeds[:1]) or (opened.settings.seed or 0,),
        max_steps=max_steps or opened.settings.eval_max_steps,
    )
    play.shown(video=video)


def _held_out(env: Any) -> HeldOut | None:
    unwrapped = env.unwrapped
    return unwrapped.generalisation() if isinstance(unwrapped, HoldsOut) else None


@dataclass(frozen=True)
class _Play:
    """Plays episodes of a run's policy on a stage."""

    opened: OpenedRun
    episodes: int
    deterministic: bool
    seeds: tuple[int, ...]
    max_steps: int
    search: int | None = None  # candidates per step
    on_episode: Callable[[int, int], None] | None = None

    def shown(
        self, render: bool = False, video: str | Path | None = None, env_kwargs: Mapping[str, Any] | None = None
    ) -> tuple[RunEvaluation, HeldOut | None]:
        """Play on a separate stage, optionally in a window or a video. Also return the held-out part, if any."""
        mode = "human" if render else None if video is None else "rgb_array"
        given = {**(env_kwargs or {}), **({} if mode is None else {"render_mode": mode})}
        with (
            contextlib.nullcontext() if mode is None else rendering(),
            contextlib.closing(Stage(self.opened.env, self.opened.settings, **given)) as stage,
            torch_threads(1),  # acting for one observation is too little work to share
            contextlib.nullcontext() if video is None else VideoWriter(video) as film,
        ):
            result = self(stage, mode, film)
            if mode is not None:
                return result, None
            return replace(result, compares=stage.apply(_compares)), stage.apply(_held_out)

    def __call__(self, stage: Stage, mode: str | None = None, film: VideoWriter | None = None) -> RunEvaluation:
        results, opened = [], self.opened
        for place, seed in enumerate(self.seeds):
            opened.policy.reset(seed=seed)
            results.append(
                evaluate(
                    lambda: shown_env(stage, mode, film, "--render" if mode == "human" else "--video"),
                    self._agent(stage),
                    episodes=self.episodes,
                    seed=seed,
                    training_seed=opened.settings.seed or 0,
                    deterministic=self.deterministic,
                    max_episode_steps=self.max_steps,
                    on_frame=film,
                    log_info=opened.settings.log_info,
                    on_episode=functools.partial(self._played, place),
                    fixed_tasks=functools.partial(stage.apply, fixed_tasks),
                )
            )
        return _together(opened.folder, opened.settings, opened.checkpoint, opened.step, self.seeds, results)

    def _played(self, seeds: int, done: int, of: int) -> None:
        """Report an episode, after all episodes of some `seeds`."""
        if self.on_episode is not None:
            self.on_episode(seeds * of + done, len(self.seeds) * of)

    def _agent(self, stage: Stage) -> Agent:
        agent = TrainedAgent(self.opened.policy, deterministic=self.deterministic)
        if self.search is None:
            return agent
        if not stage.apply(_simulates):
            raise no_simulation(self.opened.settings.env)
        return SearchingAgent(agent, lambda actions: stage.apply(functools.partial(_gains, actions)), self.search)


def _compares(env: Any) -> bool:
    return isinstance(env.unwrapped, Compares)


def _simulates(env: Any) -> bool:
    return isinstance(env.unwrapped, Simulates)


def _gains(actions: Sequence[int], env: Any) -> Any:
    return env.unwrapped.simulated_gains(actions)


def no_simulation(env: Any) -> SettingsError:
    """The error if a search was asked for and the environment cannot simulate."""
    return SettingsError(
        f"a search was asked for, and {env} cannot simulate actions",
        hint="leave out --search, or give the environment a method simulated_gains (envfleet.search.Simulates)",
    )


def _together(
    folder: RunFolder,
    settings: TrainingSettings,
    checkpoint: str,
    step: int,
    seeds: tuple[int, ...],
    results: Sequence[Evaluation],
) -> RunEvaluation:
    returns = tuple(value for result in results for value in result.returns)
    lengths = tuple(value for result in results for value in result.lengths)
    successes = [value for result in results for value in result.successes or ()]
    adaptation = adaptation_of(results)
    interval = confidence_interval(returns)
    if adaptation is not None and any(result.each_task_once for result in results):
        interval = adaptation.trial_interval  # several seeds play the same tasks, which are not more tasks
    return RunEvaluation(
        run=str(folder.shown),
        env=str(folder.read_manifest().get("env", settings.env)),
        checkpoint=checkpoint,
        step=step,
        mean_reward=float(np.mean(returns)),
        std_reward=float(np.std(returns)),
        confidence_interval=interval,
        episodes=len(returns),
        mean_length=float(np.mean(lengths)),
        deterministic=results[0].deterministic,
        seeds=seeds,
        mean_reward_per_seed=tuple(result.mean_reward for result in results),
        returns=returns,
        lengths=lengths,
        success_rate=float(np.mean(successes)) if successes else None,
        infos=_joined(results),
        lost=sum(result.lost for result in results),
        cut=sum(result.cut for result in results),
        adaptation=adaptation,
    )


def adaptation_of(results: Sequence[Evaluation]) -> Adaptation | None:
    """How the agent adapted in the trials of several seeds; None if there are no trials."""
    trials = [trial for result in results for trial in result.trials]
    tasks = [task for result in results for task in result.tasks]
    return Adaptation.of(trials, tasks, join=any(result.each_task_once for result in results))


def _joined(results: Sequence[Evaluation]) -> dict[str, float]:
    """Mean of each info number over all episodes."""
    names = dict.fromkeys(name for result in results for name in result.infos)
    with_name = {name: [result for result in results if name in result.infos] for name in names}
    return {
        name: sum(result.infos[name] * result.episodes for result in those) / sum(result.episodes for result in those)
        for name, those in with_name.items()
    }
