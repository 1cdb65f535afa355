"""What a run says and keeps: folder, lock, metrics, console, trackers, evaluations."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from envfleet.algorithms.settings import TrainingSettings
from envfleet.errors import EnvfleetError
from envfleet.policies.policy import Policy
from envfleet.runs.console import Console, WorkerHealth
from envfleet.runs.evaluation import Evaluation, PlayStopped, evaluate, random_play
from envfleet.runs.folder import RunFolder
from envfleet.runs.live_view import clock
from envfleet.runs.lock import RunLock
from envfleet.runs.metrics import MetricsWriter, iterate_metrics
from envfleet.runs.trackers import TensorBoardWriter, WandbTracker
from envfleet.runs.trained_policy import Player, TrainedPolicy, describe_policy
from envfleet.settings import differences
from envfleet.training.assembly import Parts, Resolved
from envfleet.training.environment import name_of
from envfleet.training.progress import LATEST, RECENT, Progress
from envfleet.training.trust import cannot_be_imported, named_code

__all__ = ["Reporter", "left_out"]

# Settings that the console does not list among those that differ from the defaults.
_SAID_ELSEWHERE = {
    "env",
    "seed",
    "steps",
    "num_episodes",
    "duration",
    "n_envs",
    "learner_threads",
    "output_dir",
    "overwrite",
    "backend",
    "workers",
    "quiet",
    "verbose",
}
LONG_SECONDS = 2.0  # between lines about something that takes long
HEALTH_SECONDS = 4.0  # between looks at the workers: reading their memory takes milliseconds


class Reporter:
    """Writes down a run as it goes."""

    def __init__(self, resolved: Resolved, folder: RunFolder, lock: RunLock, *, resumed: bool) -> None:
        self._resolved, self.folder, self._lock = resolved, folder, lock
        settings = resolved.settings
        mode: Literal["auto", "quiet"] = "quiet" if settings.quiet else "auto"
        title = f"{settings.algorithm} on {name_of(resolved.env)}"
        self.console = Console(title, budget_steps=settings.steps, mode=mode, verbose=settings.verbose)
        self._metrics = MetricsWriter(folder.metrics)
        self._resumed = resumed
        self._tensorboard: TensorBoardWriter | None = None
        self._evaluated: dict[str, float] = {}  # what the last evaluation said
        self._tracker: WandbTracker | None = None
        self._health: Sequence[WorkerHealth] = ()
        self._looked = 0.0
        self._parts: Parts | None = None

    @classmethod
    def of_new_run(cls, resolved: Resolved, base: Path) -> Reporter:
        settings = resolved.settings
        recorded = {"algorithm": settings.algorithm, **settings.to_json()}
        folder = RunFolder.create(
            settings.output_dir,
            env=name_of(resolved.env),
            algorithm=settings.algorithm,
            seed=resolved.seed,
            overwrite=settings.overwrite,
            checkpoint_dir=settings.checkpoint_dir,
            base=base,
            settings=recorded,
        )
        lock = folder.lock()
        try:
            folder.write_config(recorded)
            return cls(resolved, folder, lock, resumed=False)
        except BaseException:
            lock.release()
            folder.remove_if_untrained()
            raise

    def begin(self, parts: Parts, steps: int) -> None:
        """Says what was chosen and why, once everything is built."""
        self._parts = parts
        # What `auto` chose here; a comparison divides by the number of workers.
        placement = {"backend": parts.fleet.backend, "workers": parts.fleet.workers, "acting": parts.placement.acting}
        self.folder.update_manifest(placement=placement)
        if self._resumed:
            self._metrics.cut_after(steps)
        self._tensorboard = TensorBoardWriter(self.folder.logs, iterate_metrics(self.folder.metrics))
        settings = self._resolved.settings
        if settings.track:
            name = self.folder.path.name
            config = settings.to_json()
            self._tracker = WandbTracker(
                self.folder.path, project="envfleet", name=name, config=config, resume=self._resumed
            )
        self.console.start(self._choices(parts))
        for notice in [*settings.notices(), *parts.learner.notices()]:
            self.console.say(f"notice: {notice}")

    def _choices(self, parts: Parts) -> list[tuple[str, str, str]]:
        settings, fleet = self._resolved.settings, parts.fleet
        changed = {name: value for name, value in differences(settings).items() if name not in _SAID_ELSEWHERE}
        place = _counted(fleet.workers, "worker")
        if fleet.backend == "sequential":
            place = "in this process"
        elif fleet.backend == "processes":
            place += f" started by {settings.start_method or 'spawn'}"
        threads = _counted(settings.threads, "thread")
        who = "each worker acts by itself" if parts.placement.acting == "worker" else "the learner acts for all"
        budgets = _budgets(settings)
        found = "an accelerator was found" if parts.learner.device.type != "cpu" else "no accelerator was found"
        device = f"device auto: {found}" if settings.device == "auto" else "device given"
        sized = "threads given" if "learner_threads" in settings.given else "threads by the size of minibatches"
        return [
            ("budget", ", ".join(budgets), "whichever comes first" if len(budgets) > 1 else ""),
            ("environments", str(fleet.num_envs), f"{_counted(parts.shape.groups, 'group')}, the unit of acting"),
            ("backend", fleet.backend, f"{place}; {parts.placement.reason}"),
            ("schedule", settings.schedule, who),
            ("learner", f"{parts.learner.device}, {threads}", f"{device}; {sized}: they shape the mathematics"),
            ("seed", str(self._resolved.seed), "given" if "seed" in settings.given else "drawn"),
            ("settings", f"preset: {self._resolved.preset.name}", _listed(changed)),
            ("folder", str(self.folder.shown), ""),
        ]

    def update(self, progress: Progress, metrics: Mapping[str, float]) -> dict[str, float]:
        """Writes the figures of an update; returns those of the fleet, which it adds."""
        now = time.monotonic()
        fleet: dict[str, float] = {}
        if now - self._looked >= HEALTH_SECONDS and self._parts is not None:
            self._looked = now
            fleet = self._look(self._parts)
        self._write(progress.steps, {**metrics, **fleet})
        if fleet and self._tensorboard is not None:
            self._tensorboard.flush()
        seen = {**metrics, **self._evaluated}
        self.console.update(progress.steps, seen, self._health, share=progress.spent_share)
        return fleet

    def _look(self, parts: Parts) -> dict[str, float]:
        workers = parts.fleet.statistics().workers
        self._health = workers
        figures = {"fleet/restarts": float(sum(worker.restarts for worker in workers))}
        for worker in workers:
            figures[f"fleet/worker_{worker.index}/busy_share"] = worker.busy_share
            figures[f"fleet/worker_{worker.index}/memory_mb"] = worker.memory_mb
        return figures

    def evaluate(self, policy: Policy, steps: int, stopped: Callable[[], bool]) -> Evaluation | None:
        """Plays some episodes on an environment of its own, with seeds that no training environment has.

        None where it was stopped or failed: that never costs the training.
        """
        resolved, settings = self._resolved, self._resolved.settings
        trained = TrainedPolicy(policy, resolved.observation_space, resolved.action_space)
        deterministic = not settings.eval_sampled
        try:
            evaluation = evaluate(
                resolved.stage.fresh,
                Player(trained, deterministic=deterministic),
                episodes=settings.eval_episodes,
                seed=resolved.seed,
                deterministic=deterministic,
                max_episode_steps=settings.eval_max_steps,
                stopped=stopped,
            )
        except PlayStopped:
            return None
        except EnvfleetError as error:
            self._failed(f"evaluation at step {steps:,}", error)
            return None
        figures = {
            "eval/mean_reward": evaluation.mean_reward,
            "eval/std_reward": evaluation.std_reward,
            "eval/mean_ep_length": float(sum(evaluation.lengths)) / len(evaluation.lengths),
        }
        played = _counted(evaluation.episodes, "episode")
        line = f"{evaluation.mean_reward:.1f} ± {evaluation.std_reward:.1f} over {played}"
        if evaluation.successes is not None:
            figures["eval/success_rate"] = sum(evaluation.successes) / evaluation.episodes
            line += f", {sum(evaluation.successes)} of them a success"
        self._evaluated = figures
        self._write(steps, figures)
        self.console.say(f"evaluation at step {steps:,}: {line}{left_out(evaluation, settings.eval_max_steps)}")
        return evaluation

    def saving(self) -> Callable[[int, int], None]:
        """What tells the user how far a save is, if it takes long."""
        last = time.monotonic()

        def progress(done: int, of: int) -> None:
            nonlocal last
            if time.monotonic() - last >= LONG_SECONDS:
                last = time.monotonic()
                self.console.say(f"saving: {done:,} of {of:,} groups of environments")

        return progress

    def _failed(self, what: str, error: EnvfleetError) -> None:
        """Something beside the training failed: the whole error is shown, and the training goes on without it."""
        self._resolved.stage.close()
        self.console.error(f"{what} failed, and training continues without it: {error}")

    def play_at_random(self, stopped: Callable[[], bool]) -> None:
        """Measures random play, so that the summary has something to compare with."""
        resolved, steps = self._resolved, self._resolved.settings.random_steps
        self.console.say(f"playing {steps:,} steps at random, to compare with")
        try:
            returns, _ = random_play(resolved.stage.fresh, steps=steps, seed=resolved.seed, stopped=stopped)
        except PlayStopped:
            return
        except EnvfleetError as error:
            self._failed("random play", error)
            return
        if returns:
            self._write(0, {"random/ep_rew_mean": fmean(returns), "random/episodes": float(len(returns))})

    def episodes(self, progress: Progress, ended: Sequence[tuple[float, int]]) -> None:
        """With --verbose a line for every episode, as it ends."""
        if not self._resolved.settings.verbose:
            return
        for number, (episode_return, length) in enumerate(ended, start=progress.episodes - len(ended) + 1):
            self.console.say(
                f"episode {number:,}  step {progress.steps:,}  return {episode_return:.2f}  length {length}  "
                f"last {LATEST} {progress.mean_of_latest:.2f}  {clock(progress.seconds)}"
            )

    def _write(self, steps: int, figures: Mapping[str, float]) -> None:
        row = self._metrics.write(steps, figures)
        for writer in (self._tensorboard, self._tracker):
            if writer is not None:
                writer.write(row)

    def description(self, parts: Parts) -> dict[str, Any]:
        """The policy as plain data, for its checkpoint."""
        fleet = parts.fleet
        policy = self._resolved.settings.describe_policy()
        return describe_policy(policy, fleet.single_observation_space, fleet.single_action_space)

    def end(self, progress: Progress) -> None:
        """The summary, and what to do next."""
        seconds = max(progress.seconds, 1e-9)
        environments = _counted(self._resolved.settings.n_envs, "environment")
        self.console.say(f"closed {environments}")
        summary = {
            "steps": f"{progress.steps:,} in {seconds:.1f} s ({progress.steps / seconds:,.0f} steps/s)",
            "episodes": f"{progress.episodes:,} in {environments} ({progress.episodes / seconds:.2f} episodes/s)",
            "return": (
                f"{progress.mean_return:.1f} (mean of the last {RECENT} episodes), "
                f"{progress.mean_of_latest:.1f} (of the last {LATEST})"
                if progress.episodes
                else "no episode has ended"
            ),
        }
        first = next(iterate_metrics(self.folder.metrics), {})  # of a resumed run too
        if "random/ep_rew_mean" in first:
            summary["random play"] = (
                f"{first['random/ep_rew_mean']:.1f} (mean of {_counted(int(first['random/episodes']), 'episode')})"
            )
        summary["run"] = str(self.folder.shown)
        logs = shlex.quote(str(self.folder.shown / self.folder.logs.name))
        self.console.finish(summary, [self._command("evaluate", "--episodes 100"), f"tensorboard --logdir {logs}"])

    def stopped(self, progress: Progress) -> None:
        """One line for a run that was asked to end; it is shown when quiet too."""
        self.console.close()
        command = self._command("resume")
        self.console.error(f"stopped at step {progress.steps:,}, everything is saved; go on with: {command}")

    def _command(self, name: Literal["evaluate", "resume"], *flags: str) -> str:
        """A command about this run that works as it is printed; a call if the run needs objects of a script."""
        path, code = str(self.folder.shown), named_code(self._resolved.settings)
        objects = [setting for setting, imported in code if cannot_be_imported(imported)]
        if objects and name == "evaluate" and not {"env", "policy"}.issuperset(objects):
            return f"envfleet.Run.load({path!r}, policy=...).policy.act(observation)  # from Python"
        if objects:
            given = [f"{each}=..." for each in dict.fromkeys(objects)]
            given += ["trust=True"] if len(objects) < len(code) else []
            function = "evaluate_run" if name == "evaluate" else name
            return f"envfleet.{function}({', '.join([repr(path), *given])})  # from Python"
        return " ".join(["envfleet", name, shlex.quote(path), *(["--trust"] if code else []), *flags])

    def close(self) -> None:
        self.console.close()
        self._metrics.close()
        for writer in (self._tensorboard, self._tracker):
            if writer is not None:
                writer.close()
        self._lock.release()


def left_out(evaluation: Evaluation, most_steps: int) -> str:
    """What a reader should know about episodes that were lost or cut, as the end of a line."""
    notes = []
    if evaluation.lost:
        notes.append(f"; {_counted(evaluation.lost, 'episode')} lost to faults of the environment")
    if evaluation.cut:
        notes.append(f"; {_counted(evaluation.cut, 'episode')} cut after {most_steps:,} steps (eval_max_steps)")
    return "".join(notes)


def _budgets(settings: TrainingSettings) -> list[str]:
    """What ends the training, each in words."""
    kinds = ((settings.steps, "steps"), (settings.num_episodes, "episodes"), (settings.duration, "hours"))
    return [f"{limit:,.12g} {unit}" for limit, unit in kinds if limit is not None]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _listed(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changed.items())
