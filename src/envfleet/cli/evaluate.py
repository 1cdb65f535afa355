"""`envfleet evaluate`: evaluate the policy of a run."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from envfleet.errors import SettingsError
from envfleet.paths import expanded
from envfleet.streams import stdout_to_stderr

if TYPE_CHECKING:
    from envfleet.capabilities import Comparison
    from envfleet.runs.adaptation import Adaptation
    from envfleet.training.evaluating import RunEvaluation

__all__ = ["Evaluate"]

_OF_VIDEOS = ("checkpoint", "deterministic", "seeds", "trust", "max_steps")  # arguments of `film_task`


@dataclass(frozen=True)
class Evaluate:
    """Evaluate the policy of a run: play episodes in a single environment, with seeds that training never uses.

    Prints the mean, spread and confidence interval of the returns. Some environments (envfleet/Wildfire-v0) also
    compare the policy with baselines and write a report to report/ in the run folder.

    examples:
      envfleet evaluate runs/cartpole --episodes 100
      envfleet evaluate runs/cartpole --checkpoint best --seed 1 2 3 --json
      envfleet evaluate runs/cartpole --video cartpole.mp4
      envfleet evaluate runs/breaks --search 64            # simulation picks among the 64 best actions
      envfleet evaluate runs/breaks --env-kwargs grid_size=100 fire_risk=high
      envfleet evaluate runs/bandit --tasks 200            # environments with tasks: held-out ones
      envfleet evaluate runs/s1 runs/s2 runs/s3 --tasks 200 --beside runs/markov runs/oracle
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")]
    """The run folder. With --tasks, several runs that differ in their seed are allowed, for an interval over seeds."""

    episodes: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Episodes per seed: by default 100, or 1 with --video or --render."""

    tasks: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """For environments with tasks: play a trial of each of this many held-out tasks, instead of --episodes. Of a fixed
    set (num_eval_tasks), each task is played once."""

    beside: Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN ...", help_behavior_hint="")] = ()
    """With --tasks: other runs to play the same tasks, e.g. one without memory, or an oracle."""

    checkpoint: Annotated[str | None, tyro.conf.arg(metavar="best|last|final|step-N", help_behavior_hint="")] = None
    """Checkpoint to evaluate; by default final, or last if the run has not finished."""

    sampled: bool = False
    """Sample actions, as in training. By default the run's eval_sampled decides."""

    best_actions: bool = False
    """Always take the best action. By default the run's eval_sampled decides."""

    search: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Let the policy propose this many actions at every step, and simulation choose among them. For environments that
    can simulate (envfleet/Wildfire-v0) and policies that rank actions (DQN)."""

    seed: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...", help_behavior_hint="")] = ()
    """One or several seeds for the episodes; by default the seed of the run."""

    env_kwargs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...", help_behavior_hint="")] = ()
    """Arguments of the environment that differ from training, e.g. grid_size=100."""

    max_steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Cut an episode after this many steps; by default the run's eval_max_steps."""

    json: bool = False
    """Print one JSON object and nothing else. What the environment prints goes to stderr."""

    video: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Write the episodes to a video file (.mp4 or .gif)."""

    render: bool = False
    """Show the episodes in a window."""

    no_comparison: bool = False
    """Skip the environment's comparison with baselines."""

    trust: bool = False
    """Allow importing the code that the run names (module:name), e.g. its environment."""

    def run(self) -> int:
        """Evaluate and print the result."""
        self._refuse_contradictions()
        from envfleet.importing import make_folder_importable
        from envfleet.runs.progress_lines import progress_lines
        from envfleet.seeding import checked_seed

        for seed in self.seed:
            checked_seed(seed)
        if self.trust:
            make_folder_importable()
        how: dict[str, Any] = {
            "checkpoint": self.checkpoint,
            "deterministic": self._deterministic,
            "seeds": self.seed,
            "trust": self.trust,
            "render": self.render,
            "video": None if self.video is None else expanded(self.video).absolute(),
            "max_steps": self.max_steps,
            "on_episode": progress_lines(_say, "evaluating", "episodes"),
        }
        figures: dict[str, Any] = {}
        try:
            with stdout_to_stderr() if self.json else contextlib.nullcontext():
                if self.tasks is None:
                    self._episodes(how, figures)
                else:
                    self._tasks(self.tasks, how, figures)
        finally:
            if self.json and figures:  # also if the comparison failed: the evaluation may have taken hours
                sys.stdout.write(f"{json.dumps(figures)}\n")
        if self.video is not None:
            self._print(f"video: {self.video}\n")
        return 0

    def _refuse_contradictions(self) -> None:
        if self.video is not None and self.render:
            raise SettingsError("--video and --render were both asked for, expected at most one")
        if self.sampled and self.best_actions:
            raise SettingsError("--sampled and --best-actions were both asked for, expected at most one")
        for flag, value in (("--max-steps", self.max_steps), ("--tasks", self.tasks), ("--search", self.search)):
            if value is not None and value < 1:
                raise SettingsError(f"{flag} is {value}, expected at least 1")
        if self.search is not None and (self.tasks is not None or self.sampled):
            other = "--sampled" if self.sampled else "--tasks"
            raise SettingsError(f"--search and {other} were both asked for, expected at most one")
        if self.env_kwargs and self.tasks is not None:
            raise SettingsError("--env-kwargs and --tasks were both asked for, expected at most one")
        if len(self.paths) != 1 and (self.tasks is None or not self.paths):
            hint = "--tasks evaluates several runs on the same tasks; envfleet compare compares any runs"
            raise SettingsError(f"received {len(self.paths)} runs, expected one", hint=hint)
        if self.beside and self.tasks is None:
            raise SettingsError("--beside was given without --tasks", hint="envfleet compare compares any runs")

    def _episodes(self, how: dict[str, Any], figures: dict[str, Any]) -> None:
        """Play episodes and compare. Print each result as soon as it is there, and add it to `figures`."""
        from envfleet.training.evaluating import evaluate_run

        path = expanded(self.paths[0]).absolute()  # an environment may change the working directory
        result = evaluate_run(self.paths[0], episodes=self._count, search=self.search, env_kwargs=self._changes, **how)
        figures.update(result.to_json())
        self._print(_report(result, self.search))
        if result.compares and not self.no_comparison and (comparison := self._compared(path)) is not None:
            figures["comparison"] = comparison.figures
            self._print(f"\n{comparison.text}")

    def _tasks(self, tasks: int, how: dict[str, Any], figures: dict[str, Any]) -> None:
        """Play trials of held-out tasks, and write the adaptation plot."""
        from envfleet.cli.task_report import table_of
        from envfleet.runs.video import VideoWriter
        from envfleet.training.evaluating import film_task
        from envfleet.training.task_evaluation import evaluate_tasks

        picture = expanded(self.paths[0]) / "report" / "adaptation.png"
        output, run = picture.absolute(), expanded(self.paths[0]).absolute()  # environments may change the folder
        video = how.pop("video")
        if video is not None:
            VideoWriter(video)  # reports a wrong name or a missing package before tasks are played
        result = evaluate_tasks(self.paths, tasks=tasks, beside=self.beside, say=_say, **how)
        figures.update(result.to_json())
        self._print("\n".join([_report(result.first), *table_of(result, _digits(result.first)), ""]))
        result.plot(output)
        self._print(f"plot: {picture}\n")
        if video is not None:  # last, because rendering may fail
            film_task(run, video, **{name: how[name] for name in _OF_VIDEOS})

    def _print(self, text: str) -> None:
        if not self.json:
            sys.stdout.write(text)
            sys.stdout.flush()

    @property
    def _count(self) -> int:
        """The episodes per seed: one is enough to look at."""
        return self.episodes if self.episodes is not None else 1 if self.render or self.video else 100

    @property
    def _deterministic(self) -> bool | None:
        return False if self.sampled else True if self.best_actions else None

    @property
    def _changes(self) -> dict[str, Any]:
        from envfleet.training.environment import keyword_arguments

        return keyword_arguments(self.env_kwargs)

    def _compared(self, path: Path) -> Comparison | None:
        from envfleet.training.comparing import compare_run

        return compare_run(
            path,
            episodes=self._count,
            checkpoint=self.checkpoint,
            deterministic=self._deterministic,
            seed=next(iter(self.seed), None),
            trust=self.trust,
            say=_say,
            search=self.search,
            env_kwargs=self._changes,
        )


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _report(result: RunEvaluation, search: int | None = None) -> str:
    how = "best actions" if result.deterministic else "sampled actions"
    how = how if search is None else f"a search among {search} actions per step"
    lines = [f"{result.env}: {result.checkpoint} of {result.run} (step {result.step:,}), {how}"]
    for each in filter(None, (result, result.held_out)):
        if each.played is not None:
            lines.append(f"{each.played}:")
        lines += _lines(each)
    return "\n".join(lines) + "\n"


def _digits(result: RunEvaluation) -> int:
    from envfleet.runs.live_view import decimals

    return max(2, decimals(result.mean_reward, result.std_reward))


def _lines(result: RunEvaluation) -> list[str]:
    from envfleet.wording import counted

    digits = _digits(result)
    if result.adaptation is not None:
        return _trial_lines(result, result.adaptation, digits)
    spread = f"{result.mean_reward:.{digits}f} ± {result.std_reward:.{digits}f}"
    lines = [f"  return  {spread} over {counted(result.episodes, 'episode')}"]
    if result.confidence_interval is not None:
        low, high = result.confidence_interval
        lines.append(f"  95 %    the mean lies between {low:.{digits}f} and {high:.{digits}f}")
    lines.append(f"  range   {min(result.returns):.{digits}f} to {max(result.returns):.{digits}f}")
    lines.append(f"  length  {result.mean_length:.1f} steps")
    return lines + _further_lines(result, digits)


def _trial_lines(result: RunEvaluation, adaptation: Adaptation, digits: int) -> list[str]:
    """A line per episode of a trial, and one for the whole trial."""
    from envfleet.wording import counted

    width = len(str(len(adaptation.episode_returns)))
    names = [f"episode {number:>{width}}" for number in range(1, len(adaptation.episode_returns) + 1)]
    means = [*adaptation.episode_returns, adaptation.trial_return]
    intervals = [*adaptation.episode_intervals, adaptation.trial_interval]
    again = "" if adaptation.tasks == result.episodes else f" of {counted(adaptation.tasks, 'task')}"
    lines = [f"  return of {counted(result.episodes, 'trial')}{again}, {result.mean_length:.1f} steps each"]
    for name, mean, interval in zip([*names, "trial"], means, intervals, strict=True):
        between = "" if interval is None else f"  95 %: {interval[0]:.{digits}f} to {interval[1]:.{digits}f}"
        lines.append(f"  {name:<{8 + width}}  {mean:.{digits}f}{between}")
    return lines + _further_lines(result, digits)


def _further_lines(result: RunEvaluation, digits: int) -> list[str]:
    from envfleet.runs.live_view import number
    from envfleet.wording import counted

    lines = []
    if result.lost:
        lines.append(f"  lost    {counted(result.lost, 'episode')}, to faults of the environment; not counted")
    if result.cut:
        lines.append(f"  cut     {counted(result.cut, 'episode')}, at the step limit (--max-steps)")
    if result.success_rate is not None:
        what = "episodes" if result.adaptation is None else "last episodes"
        lines.append(f"  success {100 * result.success_rate:.0f} % of the {what}")
    if result.infos:
        lines.append("  info    " + ", ".join(f"{name} {number(mean)}" for name, mean in result.infos.items()))
    if len(result.seeds) > 1:
        each = zip(result.seeds, result.mean_reward_per_seed, strict=True)
        lines.append("  seeds   " + ", ".join(f"{seed}: {mean:.{digits}f}" for seed, mean in each))
    return lines
