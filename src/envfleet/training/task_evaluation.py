"""Evaluates runs on held-out tasks, beside other runs, random play and what is known without learning."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.capabilities import KnownReturn, KnowsReturns
from envfleet.errors import SettingsError
from envfleet.fleet.random_actions import RandomAgent
from envfleet.runs.adaptation import Adaptation
from envfleet.runs.adaptation_plot import plot_adaptation
from envfleet.runs.evaluation import evaluate
from envfleet.runs.grouping import CHANGES_NO_RESULT, differing_settings
from envfleet.seeding import derive_seed
from envfleet.training.evaluating import RunEvaluation, adaptation_of, evaluate_run
from envfleet.training.held_out import HeldOutTasks, fixed_tasks, held_out_tasks
from envfleet.training.opened_run import OpenedRun
from envfleet.training.stage import Stage
from envfleet.wording import shown

__all__ = ["AgentOnTasks", "TaskEvaluation", "evaluate_tasks"]

_RANDOM = 0x9A4D  # key of the random actions
# Settings of trials in which runs may differ: what an agent sees, and which tasks it was trained on.
_OF_THE_AGENT = frozenset({"num_train_tasks", "oracle", "show_previous", "task_set"})


@dataclass(frozen=True)
class AgentOnTasks:
    """The returns of an agent on the tasks: of one run, several runs with other seeds, or random play."""

    name: str
    adaptation: Adaptation
    success_rate: float | None
    runs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "runs": list(self.runs),
            "success_rate": self.success_rate,
            **self.adaptation.to_json(),
        }


@dataclass(frozen=True)
class TaskEvaluation:
    """The evaluation of runs on held-out tasks. All agents play the same tasks."""

    first: RunEvaluation  # of the first run
    agents: tuple[AgentOnTasks, ...]  # the evaluated runs first, then those beside them, then random play
    known: tuple[KnownReturn, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON: the keys of the first run, but with the returns of all evaluated runs."""
        main, *beside = self.agents
        return {
            **self.first.to_json(),
            "success_rate": main.success_rate,
            **main.adaptation.to_json(),
            "runs": list(main.runs),
            "beside": [agent.to_json() for agent in beside],
            "known_returns": [
                {
                    "name": each.name,
                    "how": each.how,
                    "episode_returns": list(each.episode_returns),
                    "trial_return": each.trial_return,
                }
                for each in self.known
            ],
        }

    def plot(self, output: Path) -> None:
        """Write the adaptation plot."""
        agents = {agent.name: agent.adaptation for agent in self.agents}
        known = {each.name: each.episode_returns for each in self.known}
        plot_adaptation(agents, known, output, f"{self.first.env}, {self.first.played}")


def evaluate_tasks(
    runs: Sequence[str | Path],
    *,
    tasks: int,
    beside: Sequence[str | Path] = (),
    say: Callable[[str], None] = lambda _: None,
    **how: Any,
) -> TaskEvaluation:
    """Play trials of held-out tasks with the policies of `runs`, which differ in their seeds, and of those `beside`.

    `how` are the other arguments of `evaluate_run`; a video is of the first run. All agents play the same tasks.
    `say` gets notices.
    """
    found = [held_out_tasks(_opened(run, how)) for run in (*runs, *beside)]
    opened = found[0].opened
    for other in found[1:]:
        _refuse_other_tasks(found[0], other)
    for other in found[1 : len(runs)]:
        _refuse_other_settings(found[0], other)
    tasks = _available(found[0], tasks, say)
    how["seeds"] = tuple(how.get("seeds") or ()) or (opened.settings.seed or 0,)
    first = _with_trials(evaluate_run(runs[0], tasks=tasks, **how))
    others = {**how, "video": None, "render": False}
    alike = [_with_trials(evaluate_run(run, tasks=tasks, **others)) for run in runs[1:]]
    count = f", {len(runs)} runs" if len(runs) > 1 else ""
    agents = [_joined(f"{_name(opened)}{count}", [first, *alike])]
    for run, other in zip(beside, found[len(runs) :], strict=True):
        name = _unlike(_name(other.opened), [agent.name for agent in agents])
        agents.append(_joined(name, [_with_trials(evaluate_run(run, tasks=tasks, **others))]))
    return TaskEvaluation(first, (*agents, _random(found[0], tasks, how)), _known(opened))


def _available(found: HeldOutTasks, tasks: int, say: Callable[[str], None]) -> int:
    """The number of tasks to play: what was asked for, or all tasks of a fixed set if it has fewer."""
    if not found.trial.get("num_eval_tasks"):
        return tasks
    with _stage(found.opened) as stage:
        fixed = len(stage.apply(fixed_tasks))
    if not 0 < fixed < tasks:
        return tasks
    say(f"notice: {tasks:,} tasks were asked for, and the run has {fixed:,} held-out ones (num_eval_tasks): each once")
    return fixed


def _opened(run: str | Path, how: Mapping[str, Any]) -> OpenedRun:
    given = {name: how.get(name) for name in ("env", "policy", "env_kwargs")}
    return OpenedRun.open(run, checkpoint=how.get("checkpoint"), trust=bool(how.get("trust")), **given)


def _refuse_other_tasks(first: HeldOutTasks, other: HeldOutTasks) -> None:
    """Raise SettingsError if the runs have other tasks, or trials of another length."""
    on_tasks = []
    for recorded in map(_recorded, (first, other)):
        arguments = {name: value for name, value in recorded["env_kwargs"].items() if name not in _OF_THE_AGENT}
        on_tasks.append({"env": recorded.get("env"), "env_kwargs": arguments})
    found = differing_settings(on_tasks)
    _refuse(found, first.opened, other.opened, "all runs play the same tasks, in the same environment")


def _refuse_other_settings(first: HeldOutTasks, other: HeldOutTasks) -> None:
    """Raise SettingsError if the runs differ in more than their seed, so that their mean would say nothing."""
    found = differing_settings([_recorded(first), _recorded(other)])
    found = {name: values for name, values in found.items() if name not in CHANGES_NO_RESULT}
    hint = "runs that are averaged may differ only in their seed; to compare with other runs, use --beside"
    _refuse(found, first.opened, other.opened, hint)


def _recorded(found: HeldOutTasks) -> dict[str, Any]:
    """The recorded settings, with those of trials that were not given."""
    recorded = found.opened.folder.read_config()
    return {**recorded, "env_kwargs": {**(recorded.get("env_kwargs") or {}), **found.trial}}


def _refuse(differences: Mapping[str, Sequence[Any]], first: OpenedRun, other: OpenedRun, hint: str) -> None:
    if differences:
        said = [
            f"{name.removeprefix('env_kwargs.')} {_shown(found)}, expected {_shown(expected)}"
            for name, (expected, found) in differences.items()
        ]
        raise SettingsError(f"{other.folder.shown} differs from {first.folder.shown}: {'; '.join(said[:3])}", hint=hint)


def _shown(value: Any) -> str:
    return "unset" if value is None else shown(value)


def _with_trials(result: RunEvaluation) -> RunEvaluation:
    if result.adaptation is None:
        raise SettingsError(f"{result.env} has no trials, expected info['episode_returns'] at the end of an episode")
    return result


def _joined(name: str, results: Sequence[RunEvaluation]) -> AgentOnTasks:
    adaptations = [result.adaptation for result in results if result.adaptation is not None]
    rates = [result.success_rate for result in results if result.success_rate is not None]
    runs = tuple(result.run for result in results)
    return AgentOnTasks(name, Adaptation.of_runs(adaptations), float(np.mean(rates)) if rates else None, runs)


def _name(opened: OpenedRun) -> str:
    """The name of a run's agent: algorithm, memory, oracle."""
    recorded = opened.folder.read_config()
    algorithm = str(recorded.get("algorithm", "")).rpartition(":")[2]
    memory = recorded.get("memory", "none")
    oracle = bool((recorded.get("env_kwargs") or {}).get("oracle"))
    kinds = [f"memory {memory}" if memory != "none" else "no memory", *(["oracle"] if oracle else [])]
    return f"{algorithm} ({', '.join(kinds)})"


def _unlike(name: str, names: Sequence[str]) -> str:
    """The name, with a number if it is taken."""
    number = 2
    chosen = name
    while chosen in names:
        chosen, number = f"{name} {number}", number + 1
    return chosen


def _stage(opened: OpenedRun) -> contextlib.closing[Stage]:
    return contextlib.closing(Stage(opened.env, opened.settings))


def _random(found: HeldOutTasks, tasks: int, how: Mapping[str, Any]) -> AgentOnTasks:
    """Uniformly random actions, on the same tasks."""
    opened, results = found.opened, []
    max_steps = how.get("max_steps") or opened.settings.eval_max_steps
    with _stage(opened) as stage:
        for seed in how["seeds"]:
            results.append(
                evaluate(
                    stage.fresh,
                    RandomAgent(opened.policy.action_space, derive_seed(seed, _RANDOM) >> 1),
                    episodes=tasks,
                    seed=seed,
                    training_seed=opened.settings.seed or 0,
                    deterministic=False,
                    max_episode_steps=max_steps,
                    fixed_tasks=functools.partial(stage.apply, fixed_tasks),
                )
            )
    cut, played = sum(result.cut for result in results), sum(result.episodes for result in results)
    found.refuse_cut("random play", cut, played, max_steps)
    successes = [each for result in results for each in result.successes or ()]
    adaptation = adaptation_of(results)
    assert adaptation is not None  # the first run had trials too
    return AgentOnTasks("random", adaptation, float(np.mean(successes)) if successes else None)


def _known(opened: OpenedRun) -> tuple[KnownReturn, ...]:
    with _stage(opened) as stage:
        return tuple(stage.apply(_known_returns))


def _known_returns(env: Any) -> Sequence[KnownReturn]:
    unwrapped = env.unwrapped
    return unwrapped.known_returns() if isinstance(unwrapped, KnowsReturns) else ()
