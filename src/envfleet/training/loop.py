"""The training loop: collect, learn, report, evaluate, save, until the budget is spent."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from envfleet.algorithms.settings import TrainingSettings
from envfleet.algorithms.stopping_rules import EVALUATIONS
from envfleet.errors import EnvfleetError, OutOfTimeError, SettingsError
from envfleet.rollout.async_schedule import AsyncSchedule
from envfleet.runs.checkpoints import Checkpoints
from envfleet.runs.run import Run
from envfleet.training.assembly import Parts, Resolved, assemble, resolve
from envfleet.training.callbacks import Callback, Moment
from envfleet.training.demonstrating import demonstrate
from envfleet.training.exactness import Exactness
from envfleet.training.filming import refuse_unfilmable
from envfleet.training.init_from import start_from
from envfleet.training.interruption import Interruption
from envfleet.training.progress import LATEST, Progress, TimeShares
from envfleet.training.reporting import Reporter
from envfleet.training.snapshot import take_parts

__all__ = ["Training", "start"]

CHECKPOINTS = 10  # per budget, by default


def start(settings: TrainingSettings, *, callbacks: Sequence[Callback] = (), folder: Path | None = None) -> Run:
    """Start a new run. Relative paths in the settings start from `folder`, by default the current one."""
    here = folder or Path.cwd()  # read it before building an environment, which may change it
    if not isinstance(settings, TrainingSettings):
        raise SettingsError(f"received {type(settings).__name__}, expected the settings of an algorithm, e.g. PPO(...)")
    if not settings.algorithm:
        raise SettingsError(
            f"the algorithm of {type(settings).__name__} has no name",
            hint='give the class one: algorithm: ClassVar[str] = "mine"',
        )
    resolved = resolve(settings.with_absolute_inputs(here))
    with closing(resolved.stage):
        refuse_unfilmable(resolved)
        reporter = Reporter.of_new_run(resolved, here)
        try:
            with closing(reporter), closing(assemble(resolved)) as parts:
                if resolved.settings.init_from is not None:
                    start_from(resolved.settings.init_from, parts, reporter.description(parts))
                return Training(resolved, parts, reporter, callbacks).run()
        except BaseException:
            reporter.folder.remove_if_untrained()
            raise


class Training:
    """A training run: updates, evaluations, videos and checkpoints, until it ends."""

    def __init__(
        self,
        resolved: Resolved,
        parts: Parts,
        reporter: Reporter,
        callbacks: Sequence[Callback],
        exactness: Exactness | None = None,
    ) -> None:
        self._resolved, self._settings, self._parts, self._reporter = resolved, resolved.settings, parts, reporter
        self._callbacks = callbacks
        self._exactness = exactness or Exactness(resolved, reporter.console.say)
        parts.fleet.relocation.why_inexact = self._exactness.why_not_movable
        self._checkpoints = Checkpoints(reporter.folder.checkpoints, self._settings.keep_checkpoints)
        self.progress = Progress(self._settings)
        self._best, self._best_steps = -math.inf, 0
        self._moment = Moment(0, 0, math.nan, {}, _call=self._call_envs)
        self._metrics: dict[str, float] = {}  # metrics of the last update, without those set by callbacks
        self._since_best = 0  # evaluations
        self._saved_at, self._saved_steps = time.monotonic(), 0
        self._saved: dict[str, Any] | None = None  # progress at the last checkpoint
        self._last_rounds: deque[float] = deque(maxlen=5)  # seconds of recent updates, evaluations and saves included
        self._whole = True  # every collected rollout has been learned from
        self._time_over = False  # a timed run hit its limit during a rollout or an update
        self._discarded = 0  # steps lost because of that
        self._evaluated_steps = self._filmed_steps = 0
        self._stopped: Callable[[], bool] = lambda: False  # a stop was requested

    def run(self) -> Run:
        """Train until the budget is spent, the score is reached, or a callback or a signal stops it."""
        reporter = self._reporter
        reporter.begin(self._parts, self.progress.steps)
        self._record_order()
        if not self._settings.quiet:
            self._parts.collector.while_waiting = lambda: reporter.console.collecting(self._so_far)
        with Interruption(quiet=self._settings.quiet) as interruption:
            self._stopped = lambda: interruption.asked or self.progress.time_left <= 0.0
            self._exactness.in_a_hurry = self._stopped
            self._prepare()
            self._parts.schedule.until = self.progress.until
            shares = TimeShares(self._parts.fleet.workers)
            try:
                while not (self.finished or self._moment.stop or interruption.asked):
                    began = time.monotonic()
                    self._update(shares)
                    self._evaluate_if_due()
                    self._film_if_due()
                    self._save_if_due()
                    self._last_rounds.append(time.monotonic() - began)
                if self.progress.spent and not self.progress.steps:  # by random play and demonstrations
                    raise OutOfTimeError
                self._save()
            except OutOfTimeError:
                self._discard()
            except EnvfleetError:
                if self._saved is not None:
                    self._reporter.failed(self._saved_steps)
                raise
            return self._end(interruption)

    def _record_order(self) -> None:
        schedule = self._parts.schedule
        if self._settings.record_order and isinstance(schedule, AsyncSchedule):
            schedule.record_to(self._reporter.folder.order)

    def _update(self, shares: TimeShares) -> None:
        """Collect one rollout, learn from it and report."""
        schedule, reporter = self._parts.schedule, self._reporter
        begun = self.progress.share  # so the first update uses the full rates, and the last one still learns
        rollout = schedule.next()
        self._whole = False
        ended = self.progress.add(rollout)
        seconds = rollout.seconds.copy()  # the next rollout may overwrite it
        self._tell_rollout(rollout, ended)
        began, processor = time.perf_counter(), time.process_time()
        learned = self._parts.learner.learn(rollout, begun, self.progress.share, self.progress.until)
        learning = time.perf_counter() - began
        self._whole = True
        reporter.sampler.add_learner(time.process_time() - processor)
        waited, schedule.waited = schedule.waited, 0.0
        added = self._added()
        self._metrics = {
            "rollout/ep_rew_mean": self.progress.mean_return,
            f"rollout/ep_rew_mean_{LATEST}": self.progress.mean_of_latest,
            "rollout/ep_len_mean": self.progress.mean_length,
            "rollout/episodes": float(self.progress.episodes),
            **({"fleet/lost_steps": float(self.progress.lost)} if self.progress.lost else {}),
            **self.progress.of_infos,
            "time/seconds": self.progress.seconds,
            **shares.shares(seconds, waited, learning, rollout.rewards.size),
            **learned,
            **schedule.metrics(),
            **reporter.look(last=self.progress.spent or self._may_be_the_last()),
        }
        self._moment.metrics = {**self._metrics, **added}
        for callback in self._callbacks:
            callback.on_update(self._moment)
        reporter.update(self.progress, {**self._metrics, **self._added()})
        self._moment.metrics = dict(self._metrics)

    def _discard(self) -> None:
        """End a timed run that ran out of time with its last complete update.

        During a rollout, that update can still be saved, but not the running episodes: a resumed run starts fresh ones.
        During an update, the last checkpoint before it counts.
        """
        collecting = self._parts.collector.steps_so_far if self._whole else 0
        if self._whole and 0 < self.progress.steps != self._saved_steps:
            self._write_checkpoint(given_up=True)
        if self._saved is None:
            raise SettingsError(
                f"the {self._settings.duration:g} hours were over before the first update, so nothing was learned",
                hint="give it more time (--duration), or collect less for an update (--rollout-steps, --n-envs)",
            )
        self._time_over = True
        self._discarded = self.progress.steps - self._saved["steps"] + collecting
        self.progress.count_as(self._saved)
        self._reporter.forget_after(self.progress.steps)

    @property
    def finished(self) -> bool:
        """Whether the budget is spent or a goal is reached."""
        return self.progress.spent or self.goal is not None

    @property
    def goal(self) -> str | None:
        """The condition other than the budget that ends the training, if any. Evaluations decide it."""
        score, patience = self._settings.stop_score, self._settings.patience
        if score is not None and self._best >= score:
            at = f"the evaluation at step {self._best_steps:,}"
            return f"{at} had a return of {self._best:.6g} (stop_score {score:g})"
        if patience is not None and self._since_best >= patience:
            poor = "1 evaluation was" if self._since_best == 1 else f"{self._since_best} evaluations in a row were"
            return f"{poor} no better than {self._best:.6g} at step {self._best_steps:,} (patience {patience})"
        return None

    def _prepare(self) -> None:
        """Run random play and demonstrations. A resumed run makes up for skipped evaluations and videos instead."""
        if self.progress.steps:
            if not self.finished:
                self._evaluate_if_due()
                self._film_if_due()
            return
        if self._settings.duration is not None and self._parts.schedule.saves_simulators:
            self._exactness.reason()  # tested now: at the first save it could use up the time of a short run
        if self._settings.random_steps:
            self._reporter.play_at_random(self._stopped)
        self.progress.begin()
        kept = self._reporter.folder.path.parent / "demonstrations"
        if self._stopped():
            return
        with suppress(OutOfTimeError):  # the time is over, so `run` ends before the first rollout
            if shown := demonstrate(self._resolved, self._parts.learner, kept, self.progress.until):
                self._reporter.console.say(shown)

    def _tell_rollout(self, rollout: Any, ended: list[tuple[float, int]]) -> None:
        moment, progress = self._moment, self.progress
        moment.steps, moment.episodes, moment.mean_return = progress.steps, progress.episodes, progress.mean_return
        self._reporter.episodes(progress, ended)
        for callback in self._callbacks:
            callback.on_rollout(moment, rollout)
            for episode_return, length in ended:
                callback.on_episode(moment, episode_return, length)

    def _added(self) -> dict[str, float]:
        """Return the numbers that callbacks have set in `moment.metrics` since the last line of metrics."""
        own = self._metrics
        added = {n: value for n, value in self._moment.metrics.items() if n not in own or value is not own[n]}
        return self._reporter.numbers_in(added)

    def _so_far(self) -> tuple[int, float]:
        """Steps including the current rollout, and their share of the budget."""
        steps = self.progress.steps + self._parts.collector.steps_so_far
        return steps, self.progress.spent_share_at(steps)

    def _call_envs(self, name: str, *args: Any) -> tuple[Any, ...]:
        self._parts.schedule.settle()
        return self._parts.fleet.call(name, *args)

    def _evaluate_if_due(self) -> None:
        every, steps = self._steps_between(self._settings.eval_every, parts=EVALUATIONS), self.progress.steps
        if not every or self._evaluated_steps == steps or self._stopped():
            return  # a resumed run catches up
        if steps - self._evaluated_steps < every and not self.progress.spent:
            return
        with self.progress.aside():
            evaluation = self._reporter.evaluate(self._parts.policy, steps, self._stopped)
        if evaluation is None and self._stopped():
            return
        self._evaluated_steps = steps
        if evaluation is None:
            return
        self._since_best += 1
        if evaluation.mean_reward > self._best:
            self._best, self._best_steps, self._since_best = evaluation.mean_reward, steps, 0
            self._save()
            self._checkpoints.mark("best", steps)
        for callback in self._callbacks:
            callback.on_evaluation(self._moment, evaluation)

    def _film_if_due(self) -> None:
        every, steps = self._settings.video_every, self.progress.steps
        due = steps - self._filmed_steps >= every or (self.finished and self._filmed_steps != steps)
        if not (every and due):
            return
        with self.progress.aside():
            if self._reporter.film(self._parts.policy, steps, self._stopped):
                self._filmed_steps = steps

    def _save_if_due(self) -> None:
        every = self._steps_between(self._settings.checkpoint_every, parts=CHECKPOINTS)
        minutes = (time.monotonic() - self._saved_at) / 60.0
        due = self.progress.steps - self._saved_steps >= every or minutes >= self._settings.checkpoint_minutes
        if due or self._may_be_the_last():
            self._save()

    def _may_be_the_last(self) -> bool:
        """Whether a timed run may run out of time during the next update, when it cannot save."""
        return self.progress.time_left < 3.0 * max(self._last_rounds, default=math.inf)

    def _steps_between(self, given: int | None, *, parts: int) -> int:
        """Steps between two events: the setting, or a fraction of the budget. Estimated for episodes and hours."""
        if given is not None:
            return given
        if self._settings.steps is not None:
            return max(1, self._settings.steps // parts)
        share = self.progress.spent_share
        return max(1, round(self.progress.steps / share / parts)) if share > 0 else self.progress.steps + 1

    def _save(self) -> None:
        """Save a full checkpoint, after the current rollout has ended."""
        if self._saved_steps == self.progress.steps:
            return
        if self._parts.schedule.saves_simulators:
            self._parts.schedule.settle()
        with self.progress.aside():
            self._write_checkpoint()

    def _write_checkpoint(self, *, given_up: bool = False) -> None:
        """Write a checkpoint. Leaves out the simulators if the current rollout was `given_up`."""
        state: dict[str, Any] = {
            "policy": self._reporter.description(self._parts),
            "parts": take_parts(self._parts, self._exactness, self._reporter.saving(), given_up=given_up),
            "progress": self.progress.state(),
            "best": self._best,
            "best_steps": self._best_steps,
            "since_best": self._since_best,
            "evaluated_steps": self._evaluated_steps,
            "filmed_steps": self._filmed_steps,
        }
        pieces = self._parts.learner.pieces()
        self._checkpoints.save(self.progress.steps, self._parts.policy.state_dict(), state, pieces)
        if self._saved is None:  # so that a resume knows if checkpoints are missing
            self._reporter.folder.update_manifest(saved=True)
        self._reporter.folder.forget_replaced()
        self._saved = state["progress"]
        self._saved_at, self._saved_steps = time.monotonic(), self.progress.steps

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the counters from a checkpoint."""
        self.progress.restore(state["progress"])
        self._best, self._best_steps = state["best"], state["best_steps"]
        self._evaluated_steps = state["evaluated_steps"]
        # Older versions did not record these.
        self._since_best, self._filmed_steps = state.get("since_best", 0), state.get("filmed_steps", 0)
        self._saved_steps, self._saved = self.progress.steps, state["progress"]
        if self._best_steps == self.progress.steps:  # the process may have died between saving and marking
            self._checkpoints.mark("best", self._best_steps)

    def _end(self, interruption: Interruption) -> Run:
        asked = interruption.asked  # a first signal after this has no effect: the run ends anyway
        if (self.finished or self._time_over) and not asked:
            self._checkpoints.mark("final", self.progress.steps)
        for callback in self._callbacks:
            callback.on_end(self._moment)
        if added := self._added():  # set after the last update
            self._reporter.write(self.progress.steps, added)
        self._parts.close()
        if asked:
            self._reporter.stopped(self.progress, saved=self._saved is not None)
            interruption.leave()
        self._reporter.end(self.progress, self.goal, self._discarded)
        return Run(self._reporter.folder)
