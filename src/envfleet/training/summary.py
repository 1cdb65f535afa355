"""The console's summary of a run: its choices at the start, its results and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from envfleet.algorithms.settings import TrainingSettings
from envfleet.fleet.os_compat import default_start_method
from envfleet.runs.live_view import decimals
from envfleet.settings import differences
from envfleet.settings.spelling import as_flag
from envfleet.training.assembly import Parts, Resolved
from envfleet.training.progress import LATEST, RECENT, Progress
from envfleet.training.trust import EVALUATED_WITH, cannot_be_imported, named_code
from envfleet.wording import counted

__all__ = ["choices_of", "next_command", "results_of"]

# Settings that the console shows elsewhere, not in the list of changed settings.
_SAID_ELSEWHERE = {
    "env",
    "seed",
    "steps",
    "num_episodes",
    "duration",
    "stop_score",
    "patience",
    "n_envs",
    "learner_threads",
    "output_dir",
    "overwrite",
    "backend",
    "workers",
    "quiet",
    "verbose",
}


def choices_of(resolved: Resolved, parts: Parts, folder: Path) -> list[tuple[str, str, str]]:
    """The choices of a run and their reasons: rows of subject, choice and reason."""
    settings, fleet = resolved.settings, parts.fleet
    changed = {name: value for name, value in differences(settings).items() if name not in _SAID_ELSEWHERE}
    place = counted(fleet.workers, "worker")
    if fleet.backend == "sequential":
        place = "in this process"
    elif fleet.backend == "processes":
        place += f" started by {settings.start_method or default_start_method()}"
    elif fleet.backend == "ray":
        place += f" on {counted(len(fleet.hosts), 'node')}"
    threads = counted(settings.threads, "thread")
    who = "each worker acts by itself" if parts.placement.acting == "worker" else "the learner acts for all"
    if settings.schedule == "async" and fleet.backend == "sequential" and settings.replay_order is None:
        who = "there is one worker, in this process: it collects and learns in turn, like sync"
    budgets = _budgets(settings)
    found = "an accelerator was found" if parts.learner.device.type != "cpu" else "no accelerator was found"
    device = f"device auto: {found}" if settings.device == "auto" else "device given"
    sized = "threads given" if "learner_threads" in settings.given else "threads by the size of minibatches"
    return [
        ("budget", ", ".join(budgets), "whichever comes first" if len(budgets) > 1 else ""),
        ("environments", str(fleet.num_envs), f"in {counted(parts.shape.groups, 'group')}; a group acts as one batch"),
        ("backend", fleet.backend, f"{place}; {parts.placement.reason}"),
        ("schedule", settings.schedule, who),
        ("learner", f"{parts.learner.device}, {threads}", f"{device}; {sized} (they affect rounding)"),
        ("seed", str(resolved.seed), "given" if "seed" in settings.given else "drawn"),
        (
            "settings",
            f"preset: {resolved.preset.name}",
            ", ".join(f"{name}={value}" for name, value in changed.items()),
        ),
        ("folder", str(folder), ""),
    ]


def _budgets(settings: TrainingSettings) -> list[str]:
    """Everything that ends the training, in words."""
    kinds = ((settings.steps, "steps"), (settings.num_episodes, "episodes"), (settings.duration, "hours"))
    limits = [f"{limit:,.12g} {unit}" for limit, unit in kinds if limit is not None]
    if settings.stop_score is not None:
        limits.append(f"a return of {settings.stop_score:,.12g}")
    if settings.patience is not None:
        limits.append(f"{counted(settings.patience, 'evaluation')} without a better one")
    return limits


def results_of(
    progress: Progress, n_envs: int, first: Mapping[str, Any], *, goal: str | None, discarded: int
) -> dict[str, str]:
    """The results of a run by subject; `first` are its first metrics, and the rest is as in `Reporter.end`."""
    seconds, trained = max(progress.seconds, 1e-9), max(progress.seconds_trained, 1e-9)
    digits = decimals(progress.mean_return, progress.mean_of_latest)
    environments = counted(n_envs, "environment")
    recent, latest = counted(min(progress.episodes, RECENT), "episode"), min(progress.episodes, LATEST)
    results = {
        "steps": (
            f"{progress.steps:,} in {seconds:.1f} s ({progress.steps / trained:,.0f} steps/s while collecting and "
            "learning)"
        ),
        "episodes": f"{progress.episodes:,} in {environments} ({progress.episodes / seconds:.2f} episodes/s)",
        "return": (
            f"{progress.mean_return:.{digits}f} (mean of the last {recent}), "
            f"{progress.mean_of_latest:.{digits}f} (of the last {latest})"
            if progress.episodes
            else "no episode has ended"
        ),
    }
    if progress.lost:
        results["lost"] = f"{counted(progress.lost, 'step')} to faults of environments or workers"
    if goal is not None:
        results["ended"] = goal
    if discarded:
        results["discarded"] = f"{discarded:,} steps that were under way when the time was over"
    if "random/ep_rew_mean" in first:
        results["random play"] = (
            f"{first['random/ep_rew_mean']:.{decimals(first['random/ep_rew_mean'])}f} "
            f"(mean of {counted(int(first['random/episodes']), 'episode')})"
        )
    return results


def next_command(name: Literal["evaluate", "resume"], folder: Path, settings: TrainingSettings, *flags: str) -> str:
    """A command that works as printed, or a Python call if the run needs objects from a script."""
    path, code = str(folder), named_code(settings)
    if name == "evaluate":  # the policy acts without its algorithm
        code = [(setting, imported) for setting, imported in code if setting != "algorithm"]
    objects = [setting for setting, imported in code if cannot_be_imported(imported)]
    if objects and name == "evaluate" and not EVALUATED_WITH.issuperset(objects):
        return f"envfleet.Run.load({path!r}, policy=...).policy.act(observation)  # from Python"
    if objects:
        given = [f"{each}=..." for each in dict.fromkeys(objects)]
        given += ["trust=True"] if len(objects) < len(code) else []
        function = "evaluate_run" if name == "evaluate" else name
        return f"envfleet.{function}({', '.join([repr(path), *given])})  # from Python"
    if name == "resume":  # a run does not record these
        for setting in ("address", "runtime_env"):
            value = getattr(settings, setting)
            flags += () if value is None else (as_flag(setting), shlex.quote(str(value)))
    return " ".join(["envfleet", name, shlex.quote(path), *(["--trust"] if code else []), *flags])
