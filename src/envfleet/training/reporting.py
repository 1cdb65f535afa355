"""Output of a run: folder, lock, metrics, console, trackers, evaluations."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from envfleet.errors import EnvfleetError
from envfleet.fleet.episode_numbers import number_of
from envfleet.fleet.numerics import measure_numerics
from envfleet.policies.protocol import ActingPolicy
from envfleet.runs.console import Console, WorkerHealth
from envfleet.runs.evaluation import Evaluation, PlayStopped, evaluate, random_play
from envfleet.runs.folder import RunFolder
from envfleet.runs.live_view import clock, number, spread
from envfleet.runs.lock import RunLock
from envfleet.runs.metrics import MetricsWriter, iterate_metrics
from envfleet.runs.progress_lines import progress_lines
from envfleet.runs.trackers import TensorBoardWriter, WandbTracker
from envfleet.runs.trained_policy import TrainedAgent, TrainedPolicy, describe_policy
from envfleet.settings.values import shown
from envfleet.training.assembly import Parts, Resolved
from envfleet.training.environment import name_of
from envfleet.training.filming import film_episode
from envfleet.training.progress import LATEST, RECENT, Progress
from envfleet.training.sampling import Sampler
from envfleet.training.summary import choices_of, next_command, results_of
from envfleet.wording import counted

__all__ = ["Reporter", "left_out"]

HEALTH_SECONDS = 4.0  # between health checks of the workers: reading their memory takes milliseconds


class Reporter:
    """Records and reports a run."""

    def __init__(self, resolved: Resolved, folder: RunFolder, lock: RunLock, *, resumed: bool) -> None:
        self._resolved, self.folder, self._lock = resolved, folder, lock
        settings = resolved.settings
        mode: Literal["auto", "quiet"] = "quiet" if settings.quiet else "auto"
        title = f"{settings.algorithm} on {name_of(resolved.env)}"
        self.console = Console(title, budget_steps=settings.steps, mode=mode, verbose=settings.verbose)
        self._metrics = MetricsWriter(folder.metrics)
        self._resumed = resumed
        self._tensorboard: TensorBoardWriter | None = None
        self._noticed: set[str] = set()  # subjects of notices already shown; each comes once
        self._tracker: WandbTracker | None = None
        self._health: Sequence[WorkerHealth] = ()
        self._looked = 0.0
        self._parts: Parts | None = None
        self.sampler = Sampler()
        self._pids: list[int] = []  # of the workers

    @classmethod
    def of_new_run(cls, resolved: Resolved, base: Path) -> Reporter:
        settings = resolved.settings
        recorded = settings.recorded()
        folder = RunFolder.create(
            settings.output_dir,
            env=name_of(resolved.env),
            algorithm=settings.algorithm,
            seed=resolved.seed,
            overwrite=settings.overwrite,
            checkpoint_dir=settings.checkpoint_dir,
            base=base,
            settings=recorded,
            libraries=resolved.simulators,
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
        """Open the logs, and print the choices of the run with their reasons. Call it once everything is built."""
        self._parts = parts
        # Record the choices of `auto`: a comparison divides by the number of workers.
        placement = {"backend": parts.fleet.backend, "workers": parts.fleet.workers, "acting": parts.placement.acting}
        threads = {"learner": self._resolved.settings.threads, "acting": 1, "worker": 1}
        self.folder.update_manifest(placement=placement, threads=threads, **self._numerics(parts))
        if self._resumed:
            self._metrics.cut_after(steps)
        self._tensorboard = TensorBoardWriter(self.folder.logs, iterate_metrics(self.folder.metrics))
        settings = self._resolved.settings
        if settings.track:
            name = self.folder.path.name
            self._tracker = WandbTracker(
                self.folder.path, project="envfleet", name=name, config=settings.recorded(), resume=self._resumed
            )
        self.console.start(choices_of(self._resolved, parts, self.folder.shown))
        for notice in [*self._resolved.notices, *settings.notices(), *parts.learner.notices()]:
            self.console.say(f"notice: {notice}")

    @staticmethod
    def _numerics(parts: Parts) -> dict[str, Any]:
        """Numeric fingerprints of the nodes of a cluster, without names and addresses."""
        hosts = [facts.numerics.to_json() for _, facts in parts.fleet.hosts]
        return {"numerics": {"here": measure_numerics().to_json(), "hosts": hosts}} if hosts else {}

    def update(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Write the metrics of an update."""
        self.write(progress.steps, metrics)
        self.console.update(progress.steps, metrics, self._health, share=progress.spent_share)
        if metrics.get("lag/dropped_steps"):
            self._notice_once(
                "max_lag",
                "schedule async: some rollouts are dropped, because their weights were more than "
                f"{self._resolved.settings.max_lag} updates old (max_lag); lag/dropped_steps counts their steps",
            )
        if metrics.get("replay/episode_too_long"):
            self._notice_once(
                "replay_size",
                "nothing is learned now: no whole episode is stored, because episodes are longer than an environment's "
                "part of the replay. Set a larger replay_size (it is shared by n_envs), or a shorter sampled_seq_len",
            )
        for key in progress.without_numbers:
            self._notice_once(
                f"log_info {key}",
                f"log_info: none of the last {counted(min(progress.episodes, RECENT), 'episode')} had a "
                f"number in info[{key!r}]; it is logged once one has",
            )

    def numbers_in(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Metrics of callbacks, without values that are not numbers."""
        numbers = {}
        for name, value in metrics.items():
            number = number_of(value)
            if number == number or isinstance(value, float):
                numbers[str(name)] = number
            else:
                self._notice_once(
                    f"metrics {name}",
                    f"a callback set moment.metrics[{name!r}] to {shown(value)}, expected a number; it is not logged",
                )
        return numbers

    def _notice_once(self, about: str, line: str) -> None:
        if about not in self._noticed:
            self._noticed.add(about)
            self.console.say(f"notice: {line}")

    def look(self, *, last: bool = False) -> dict[str, float]:
        """Return the workers' health and machine load every few seconds, otherwise nothing.

        The load also in what may be the `last` update, because a short run would otherwise know only its beginning.
        """
        if self._parts is None:
            return {}
        metrics: dict[str, float] = {}
        now = time.monotonic()
        if now - self._looked >= HEALTH_SECONDS:
            self._looked = now
            metrics = self._health_of(self._parts)
            if self._tensorboard is not None:
                self._tensorboard.flush()
        return metrics | (self.sampler.sample(self._pids) if self.sampler.due(last=last) else {})

    def _health_of(self, parts: Parts) -> dict[str, float]:
        workers = parts.fleet.statistics().workers
        self._health, self._pids = workers, [worker.pid for worker in workers]
        metrics = {"fleet/restarts": float(sum(worker.restarts for worker in workers))}
        for worker in workers:
            metrics[f"fleet/worker_{worker.index}/busy_share"] = worker.busy_share
            metrics[f"fleet/worker_{worker.index}/memory_mb"] = worker.memory_mb
        return metrics

    def evaluate(self, policy: ActingPolicy, steps: int, stopped: Callable[[], bool]) -> Evaluation | None:
        """Play some episodes in a separate environment, with seeds that no training environment uses.

        Returns None if it was stopped or failed. A failure never ends the training.
        """
        resolved, settings = self._resolved, self._resolved.settings
        trained = TrainedPolicy(policy, resolved.observation_space, resolved.action_space)
        deterministic = not settings.eval_sampled
        try:
            evaluation = evaluate(
                resolved.stage.fresh,
                TrainedAgent(trained, deterministic=deterministic),
                episodes=settings.eval_episodes,
                seed=resolved.seed,
                deterministic=deterministic,
                max_episode_steps=settings.eval_max_steps,
                stopped=stopped,
                log_info=settings.log_info,
                on_episode=progress_lines(self.console.say, "evaluating", "episodes"),
            )
        except PlayStopped:
            return None
        except EnvfleetError as error:
            self._failed(f"evaluation at step {steps:,}", error)
            return None
        metrics = {
            "eval/mean_reward": evaluation.mean_reward,
            "eval/std_reward": evaluation.std_reward,
            "eval/mean_ep_length": float(sum(evaluation.lengths)) / len(evaluation.lengths),
        }
        played = counted(evaluation.episodes, "episode")
        line = f"{spread(evaluation.mean_reward, evaluation.std_reward)} over {played}"
        if evaluation.successes is not None:
            metrics["eval/success_rate"] = sum(evaluation.successes) / evaluation.episodes
            line += f", {sum(evaluation.successes)} of them a success"
        for name, mean in evaluation.infos.items():
            metrics[f"eval/info/{name}"] = mean
            line += f", {name} {number(mean)}"
        self.write(steps, metrics)
        self.console.say(f"evaluation at step {steps:,}: {line}{left_out(evaluation, settings.eval_max_steps)}")
        self.console.evaluated(metrics)
        return evaluation

    def film(self, policy: ActingPolicy, steps: int, stopped: Callable[[], bool]) -> bool:
        """Write a video of an episode. Returns False if it was stopped. A failure never ends the training."""
        path = self.folder.videos / f"step-{steps}.mp4"
        try:
            film_episode(self._resolved, policy, path, stopped)
        except PlayStopped:
            return False
        except Exception as error:  # noqa: BLE001  # imageio and FFmpeg raise errors of many types
            self._failed(f"the video at step {steps:,}", error)
        else:
            self.console.say(f"video at step {steps:,}: {self.folder.shown / path.parent.name / path.name}")
        return True

    def saving(self) -> Callable[[int, int], None]:
        """Return a callback that reports the progress of a slow save."""
        return progress_lines(self.console.say, "saving", "groups of environments")

    def _failed(self, what: str, error: Exception) -> None:
        """Show the whole error of a failed side task. The training continues."""
        self._resolved.stage.close()
        said = str(error) if isinstance(error, EnvfleetError) else f"{type(error).__name__}: {error}"
        self.console.error(f"{what} failed, and training continues without it: {said}")

    def play_at_random(self, stopped: Callable[[], bool]) -> None:
        """Measure random play, as a baseline in the summary."""
        resolved, steps = self._resolved, self._resolved.settings.random_steps
        self.console.say(f"playing {steps:,} steps at random, as a baseline")
        try:
            returns, _ = random_play(resolved.stage.fresh, steps=steps, seed=resolved.seed, stopped=stopped)
        except PlayStopped:
            return
        except EnvfleetError as error:
            self._failed("random play", error)
            return
        if returns:
            self.write(0, {"random/ep_rew_mean": fmean(returns), "random/episodes": float(len(returns))})

    def episodes(self, progress: Progress, ended: Sequence[tuple[float, int]]) -> None:
        """With --verbose, print a line for every finished episode."""
        if not self._resolved.settings.verbose:
            return
        for count, (episode_return, length) in enumerate(ended, start=progress.episodes - len(ended) + 1):
            self.console.say(
                f"episode {count:,}  step {progress.steps:,}  return {episode_return:.2f}  length {length}  "
                f"last {LATEST} {progress.mean_of_latest:.2f}  {clock(progress.seconds)}"
            )

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Write a line of metrics."""
        row = self._metrics.write(steps, metrics)
        for writer in (self._tensorboard, self._tracker):
            if writer is not None:
                writer.write(row)

    def description(self, parts: Parts) -> dict[str, Any]:
        """The policy as plain data, for its checkpoint."""
        fleet = parts.fleet
        policy = self._resolved.settings.policy_settings()
        return describe_policy(policy, fleet.single_observation_space, fleet.single_action_space)

    def forget_after(self, steps: int) -> None:
        """Remove the metrics of discarded updates."""
        self._metrics.cut_after(steps)

    def end(self, progress: Progress, goal: str | None = None, discarded: int = 0) -> None:
        """Print the summary and the next commands.

        `goal` is the condition that ended the run before its budget was spent. `discarded` steps were lost when the
        time ran out.
        """
        self.console.say(f"closed {counted(self._resolved.settings.n_envs, 'environment')}")
        first = next(iterate_metrics(self.folder.metrics), {})  # also for a resumed run
        summary = results_of(progress, self._resolved.settings.n_envs, first, goal=goal, discarded=discarded)
        summary["run"] = str(self.folder.shown)
        logs = shlex.quote(str(self.folder.shown / self.folder.logs.name))
        much = "--tasks 200" if self._resolved.has_trials else "--episodes 100"
        self.console.finish(summary, [self._command("evaluate", much), f"tensorboard --logdir {logs}"])

    def stopped(self, progress: Progress, *, saved: bool) -> None:
        """Print one line for a run that was asked to stop, even when quiet."""
        self.console.close()
        if not saved:
            self.console.error("stopped before the first update; nothing is saved")
            return
        command = self._command("resume")
        self.console.error(f"stopped at step {progress.steps:,}, everything is saved; resume with: {command}")

    def failed(self, steps: int) -> None:
        """Print one line for a run that an error ends after its checkpoint at `steps`, even when quiet."""
        self.console.close()
        command = self._command("resume")
        self.console.error(f"the last checkpoint is at step {steps:,}; resume with: {command}")

    def _command(self, name: Literal["evaluate", "resume"], *flags: str) -> str:
        return next_command(name, self.folder.shown, self._resolved.settings, *flags)

    def close(self) -> None:
        self.console.close()
        self._metrics.close()
        for writer in (self._tensorboard, self._tracker):
            if writer is not None:
                writer.close()
        self._lock.release()


def left_out(evaluation: Evaluation, most_steps: int) -> str:
    """A note on lost or cut episodes, for the end of a line."""
    notes = []
    if evaluation.lost:
        notes.append(f"; {counted(evaluation.lost, 'episode')} lost to faults of the environment")
    if evaluation.cut:
        notes.append(f"; {counted(evaluation.cut, 'episode')} cut after {most_steps:,} steps (eval_max_steps)")
    return "".join(notes)
