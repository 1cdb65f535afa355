"""Placement: the backend, the number of workers, and who acts. None of it changes what is learned."""

from __future__ import annotations

import functools
from dataclasses import replace

from envfleet.algorithms.settings import TrainingSettings
from envfleet.fleet.auto import Choice, choose, measure
from envfleet.fleet.make import BACKENDS, group_count
from envfleet.machine import usable_cores
from envfleet.training.stage import Stage

__all__ = ["place"]


def place(settings: TrainingSettings, seed: int, stage: Stage) -> Choice:
    """Where the environments run and who acts, measured where the settings leave it open; it changes no result."""
    cores = usable_cores()
    backend, acting = BACKENDS[settings.backend], settings.acting
    n_envs, groups = settings.n_envs, group_count(settings.n_envs, settings.group_size)
    if backend == "sequential" or n_envs == 1 or settings.workers == 1:
        only = "sequential" if backend == "auto" else backend
        reason = "asked for" if backend != "auto" else "there is work for one worker"
        return Choice(only, 1, reason, "worker" if acting == "auto" else acting)
    choice = None
    if acting == "auto" or backend == "auto":
        cost = stage.apply(functools.partial(measure, seed=seed))
        counted = None if acting == "central" else groups
        choice = choose(cost, n_envs, cores, workers=settings.workers, groups=counted)
    if choice is not None and backend in ("auto", choice.backend) and acting in ("auto", choice.acting):
        return _limited(choice, settings.workers, groups)
    # What was asked for, though something else is faster or nothing had to be measured.
    acting = "worker" if acting == "auto" else acting
    count = min(settings.workers or cores, groups if acting == "worker" else n_envs)
    backend = backend if backend != "auto" else "processes" if count > 1 else "sequential"
    return _limited(Choice(backend, count, "asked for", acting), settings.workers, groups)


def _limited(choice: Choice, workers: int | None, groups: int) -> Choice:
    """The choice, with a word on what keeps it from having as many workers as were asked for."""
    if workers is None or choice.workers >= workers or choice.backend == "sequential":
        return choice
    limit = f"there are {groups} groups to act for" if choice.acting == "worker" else "each has an environment"
    return replace(choice, reason=f"{choice.reason}; {choice.workers} workers, not {workers}: {limit}")
