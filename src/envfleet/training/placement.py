"""Placement: the backend, the number of workers, and who acts. None of it changes what is learned."""

from __future__ import annotations

import functools
from dataclasses import replace

from envfleet.algorithms.settings import TrainingSettings
from envfleet.fleet.auto import Choice, choose, measure
from envfleet.fleet.cluster import ClusterSettings
from envfleet.fleet.hosting import BACKENDS, cluster_cpus, group_count, timed_step
from envfleet.fleet.spec import OnError
from envfleet.machine import usable_cores
from envfleet.training.stage import Stage
from envfleet.wording import counted, there_are

__all__ = ["cluster_of", "place"]


def place(settings: TrainingSettings, seed: int, stage: Stage) -> Choice:
    """Choose backend, workers and where the policy acts. Measures a step if the settings do not decide."""
    cores = usable_cores()
    backend, acting = BACKENDS[settings.backend], settings.acting
    if settings.schedule == "async" and acting == "auto":
        acting = "worker"  # a caller that acts for all workers would let each wait for the others
    n_envs, groups = settings.n_envs, group_count(settings.n_envs, settings.group_size)
    if backend == "ray":
        return _on_cluster(settings, groups)
    if backend == "sequential" or n_envs == 1 or settings.workers == 1:
        only = "sequential" if backend == "auto" else backend
        reason = "asked for" if backend != "auto" else "there is work for one worker"
        return Choice(only, 1, reason, "worker" if acting == "auto" else acting)
    if acting != "auto" and backend != "auto":
        most = groups if acting == "worker" else n_envs
        return _limited(Choice(backend, min(settings.workers or cores, most), "asked for", acting), settings, groups)
    cost = timed_step(
        lambda: stage.apply_within_step(functools.partial(measure, seed=seed, n_envs=n_envs)),
        on_error=OnError(settings.on_error),
        restarts=settings.restarts,
    )
    if isinstance(cost, str):  # in processes of their own, such environments are restarted
        wanted = min(settings.workers or cores, n_envs)
        if acting == "auto":  # they may be slow: use as many workers as possible
            acting = "worker" if groups >= wanted else "central"
        count = min(wanted, groups) if acting == "worker" else wanted
        return _limited(Choice("processes" if backend == "auto" else backend, count, cost, acting), settings, groups)
    acting_groups = None if acting == "central" else groups
    choice = choose(cost, n_envs, cores, workers=settings.workers, groups=acting_groups)
    if acting == "central":
        choice = replace(choice, acting=acting)
    if backend not in ("auto", choice.backend):
        choice = replace(choice, backend=backend, reason=f"asked for; {cost}")
    if acting == "worker" and choice.acting == "central":
        count = min(settings.workers or cores, groups)
        reason = f"{cost}; acting was asked for"
        choice = Choice("processes" if backend == "auto" and count > 1 else choice.backend, count, reason, acting)
    return _limited(choice, settings, groups)


def _on_cluster(settings: TrainingSettings, groups: int) -> Choice:
    """One worker per free CPU of the cluster, and the policy in the workers: each message costs about a millisecond."""
    acting = "worker" if settings.acting == "auto" else settings.acting
    most = groups if acting == "worker" else settings.n_envs
    asked = settings.workers or cluster_cpus(cluster_of(settings))
    return _limited(Choice("ray", min(asked, most), "asked for", acting), settings, groups)


def cluster_of(settings: TrainingSettings) -> ClusterSettings:
    return ClusterSettings(settings.address, settings.runtime_env, settings.numerics, settings.overcommit)


def _limited(choice: Choice, settings: TrainingSettings, groups: int) -> Choice:
    """Add the reason if there are fewer workers than the user asked for, and what would give more."""
    workers, n_envs = settings.workers, settings.n_envs
    # With `sequential` more workers would not be faster. With async the user may want them nevertheless.
    unwanted = choice.backend == "sequential" and settings.schedule != "async"
    if workers is None or choice.workers >= workers or unwanted:
        return choice
    limit = there_are(n_envs, "environment")
    if choice.acting == "worker" and groups < n_envs:
        even = -(-n_envs // workers)
        size = even if group_count(n_envs, even) >= workers else max(1, n_envs // workers)
        limit = f"{there_are(groups, 'group')} to act for (--group-size {size} gives {group_count(n_envs, size)})"
    return replace(choice, reason=f"{choice.reason}; {counted(choice.workers, 'worker')}, not {workers}: {limit}")
