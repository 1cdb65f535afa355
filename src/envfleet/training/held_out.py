"""Held-out tasks: the tasks of a run's environment that training does not use."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import Any

from envfleet.capabilities import HasTasks, HoldsOut
from envfleet.environments.meta.trial import hold_out_tasks, trial_of
from envfleet.errors import SettingsError
from envfleet.fleet.wrapping import WrappedEnv
from envfleet.training.opened_run import OpenedRun
from envfleet.training.stage import Stage

__all__ = ["HeldOutTasks", "fixed_tasks", "held_out_tasks"]


@dataclass(frozen=True)
class HeldOutTasks:
    """A run whose environment draws held-out tasks, or those of training if there are no others."""

    opened: OpenedRun
    name: str  # of the tasks, for reports
    trial: dict[str, Any]  # the settings of its trials; empty if not known
    trial_steps: int | None  # of a trial, at most; None if not known

    def refuse_cut(self, who: str, cut: int, trials: int, max_steps: int) -> None:
        """Raise SettingsError if trials were cut: their returns are not known, and the others are no fair sample."""
        if not cut:
            return
        longest = self.trial_steps
        raise SettingsError(
            f"{cut:,} of {trials:,} trials of {who} were cut after {max_steps:,} steps, expected whole trials",
            hint="use a larger --max-steps"
            if longest is None
            else f"use --max-steps {longest}: a trial has up to {longest:,} steps",
        )


@dataclass(frozen=True)
class _Found:
    """What an environment says about its tasks."""

    name: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)  # arguments with which it draws held-out tasks
    by_trial: bool = False  # whether its trial has to be told to draw them
    trial: dict[str, Any] = field(default_factory=dict)
    trial_steps: int | None = None


def held_out_tasks(opened: OpenedRun) -> HeldOutTasks:
    """Return the run with held-out tasks; raise SettingsError if its environment has no tasks."""
    with contextlib.closing(Stage(opened.env, opened.settings)) as stage:
        found: _Found | None = stage.apply(_found)
    if found is None:
        raise SettingsError(
            f"tasks were asked for, and {opened.settings.env} has none",
            hint="use --episodes; docs/meta-rl.md shows environments with tasks",
        )
    settings = opened.settings.but(env_kwargs={**opened.settings.env_kwargs, **found.env_kwargs})
    # A wrapper, because a fault may build the environment again.
    env = WrappedEnv(opened.env, (hold_out_tasks,)) if found.by_trial else opened.env
    return HeldOutTasks(replace(opened, settings=settings, env=env), found.name, found.trial, found.trial_steps)


def fixed_tasks(env: Any) -> list[Any]:
    """The fixed set of held-out tasks that an environment draws from (num_eval_tasks); empty if there is none."""
    trial = trial_of(env)
    return [] if trial is None else trial.held_out()


def _found(env: Any) -> _Found | None:
    """Look at the tasks of an environment; None if it has none."""
    unwrapped, trial = env.unwrapped, trial_of(env)
    if not isinstance(unwrapped, HasTasks):
        return None
    found = _Found("tasks of training: this environment has no others, so none is held out")
    if isinstance(unwrapped, HoldsOut):
        part = unwrapped.generalisation()
        if part is not None:
            found = _Found(part.all, part.env_kwargs)
    elif trial is None:
        found = _Found("tasks drawn with other seeds than those of training")
    elif trial.hold_out():
        found = _Found("held-out tasks", by_trial=True)
    if trial is None:
        return found
    settings, horizon = trial.settings, getattr(unwrapped, "horizon", None)
    steps = horizon * settings.episodes_per_task if isinstance(horizon, int) else None
    return replace(found, trial=settings.to_json(), trial_steps=steps)
