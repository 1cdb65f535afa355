"""Where a fleet runs: the backend, the number of workers, and how their processes are started."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from envfleet.errors import EnvError, ResourceError, SettingsError, WorkerError, one_line_of
from envfleet.fleet import auto
from envfleet.fleet.backends.base import Backend
from envfleet.fleet.cluster import ClusterSettings
from envfleet.fleet.makers import Makers
from envfleet.fleet.os_compat import default_start_method
from envfleet.fleet.spec import GroupSettings, OnError, Timeouts, default_group_count, stepping_group_count
from envfleet.machine import open_file_limit, open_files, usable_cores
from envfleet.wording import counted, there_are

__all__ = ["BACKENDS", "Hosting", "backend_of", "cluster_cpus", "group_count", "named", "positive", "timed_step"]

BACKENDS = {
    "auto": "auto",
    "sequential": "sequential",
    "sync": "sequential",
    "serial": "sequential",
    "threads": "threads",
    "threading": "threads",
    "processes": "processes",
    "multiprocessing": "processes",
    "async": "processes",
    "subproc": "processes",
    "ray": "ray",
}
START_METHODS = ("spawn", "fork", "forkserver")
FILES_PER_WORKER = 8  # a channel, a doorbell, a pidfd, a stack file, and a few more during the start


@dataclass(frozen=True)
class Hosting:
    """Settings for where the environments run. With `pin_cores`, each worker process is bound to one core, in turn."""

    backend: str = "auto"
    workers: int | None = None
    group_size: int | None = None
    start_method: str | None = None
    trusted: bool = False
    pin_cores: bool = False
    cluster: ClusterSettings = field(default_factory=ClusterSettings)

    def settle(
        self,
        makers: Makers,
        settings: GroupSettings,
        timeouts: Timeouts,
        acting_groups: int | None,
        first_task: Any = None,
    ) -> tuple[str, int, str]:
        """Return the backend, the number of workers, and the reason to print, if any; `auto` measures a step first."""
        group_size = self.group_size
        if self.start_method is not None:
            named("start_method", self.start_method, {name: name for name in START_METHODS})
        n_envs, given = makers.n_envs, positive("workers", self.workers)
        cores = usable_cores() if self.backend != "ray" or given else cluster_cpus(self.cluster)
        most = n_envs if group_size is None and acting_groups is None else group_count(n_envs, group_size)
        backend, count, reason = self.backend, min(given or cores, most), ""
        if backend == "auto" and acting_groups is not None:
            backend = "sequential" if count == 1 else "processes"
            reason = (
                f"{count} workers on {cores} usable cores step and act by themselves" if count > 1 else "one worker"
            )
        elif backend == "auto" and most == 1:
            backend, reason = "sequential", "one worker, so other processes could not help"
        elif backend == "auto":
            cost = timed_step(
                lambda: self._measured(makers, settings, timeouts, first_task),
                on_error=settings.on_error,
                restarts=settings.restarts.limit,
            )
            if isinstance(cost, str):
                choice = auto.Choice("processes", count, cost)
            else:
                choice = auto.choose(cost, n_envs, cores, workers=given, most=most)
            backend, count, reason = choice.backend, choice.workers, choice.reason
        if given is not None and given > count and backend != "sequential":
            what = there_are(n_envs, "environment") if most == n_envs else f"{there_are(most, 'group')} of environments"
            reason = "; ".join([*filter(None, [reason]), f"{counted(count, 'worker')}, not {given}: {what}"])
        if self.trusted and backend != "processes" and self.backend != "auto":
            raise SettingsError(f"trusted=True needs backend='processes', but backend is {backend!r}")
        return backend, 1 if backend == "sequential" else count, reason

    def _measured(self, makers: Makers, settings: GroupSettings, timeouts: Timeouts, first_task: Any) -> auto.StepCost:
        """Measure the cost of a step, in a separate process because the environment may crash or hang."""
        from envfleet.fleet.make import one_env

        seed, draw_task = settings.seed, settings.task_sampler or (lambda _: first_task)
        measure = functools.partial(auto.measure, seed=seed, n_envs=makers.n_envs, draw_task=draw_task)
        with one_env(makers.single, start_method=self.start_method, seed=seed, timeout=timeouts, quiet=True) as fleet:
            (cost,) = fleet.apply_within_step(measure)
        assert isinstance(cost, auto.StepCost)
        return cost


def timed_step(measure: Callable[[], auto.StepCost], *, on_error: OnError, restarts: int) -> auto.StepCost | str:
    """Return the cost of a step, or why it could not be timed.

    If an environment crashes or hangs here, the fleet restarts its worker, as at any later step. One that raises is
    restarted if `on_error` says so.
    """
    try:
        return measure()
    except (EnvError, WorkerError) as error:
        if not restarts or (isinstance(error, EnvError) and on_error is OnError.RAISE):
            raise
        return f"a step could not be timed: {one_line_of(error)}"


def cluster_cpus(settings: ClusterSettings) -> int:
    """The free CPUs of the cluster, at least 1."""
    from envfleet.fleet.backends.ray_cluster import connect, live_nodes

    connect(settings)
    return max(1, sum(node.free for node in live_nodes()))


def backend_of(name: str, workers: int, hosting: Hosting) -> Backend:
    """Build the backend of this name; raise ResourceError if too few files can be opened for its workers."""
    if name == "ray":
        from envfleet.fleet.backends.ray_hosts import RayHosts
        from envfleet.fleet.backends.remote import RemoteBackend

        return RemoteBackend(name, RayHosts(workers, hosting.cluster))
    if name == "sequential":
        from envfleet.fleet.backends.sequential import SequentialBackend

        return SequentialBackend()
    _refuse_too_few_files(workers)
    if name == "threads":
        from envfleet.fleet.backends.threads import ThreadsBackend

        return ThreadsBackend()
    method = hosting.start_method or default_start_method()
    if hosting.trusted:
        from envfleet.fleet.backends.caller_run import CallerRunBackend

        return CallerRunBackend(method, workers)
    from envfleet.fleet.backends.processes import ProcessesBackend

    return ProcessesBackend(method)


def _refuse_too_few_files(workers: int) -> None:
    free = open_file_limit() - open_files()
    if workers * FILES_PER_WORKER + 8 > free:
        raise ResourceError(
            f"{workers} workers need {workers * FILES_PER_WORKER + 8} open files, but only {free} are left of "
            f"the limit of {open_file_limit()}",
            hint="raise the limit (`ulimit -n 4096`), use fewer workers, or close other files",
        )


def group_count(n_envs: int, group_size: int | None, workers: int | None = None) -> int:
    """Number of groups, from the requested `group_size` or by default.

    If the policy acts per group, the group size affects the results. Pass no `workers` then: the default depends on
    `n_envs` alone. If groups are only stepped, there are at least as many groups as workers.
    """
    size = positive("group_size", group_size)
    if size is not None:
        return -(-n_envs // size)
    return default_group_count(n_envs) if workers is None else stepping_group_count(n_envs, workers)


def named(setting: str, value: str, names: dict[str, str]) -> str:
    """Return the entry of `names` for a value; raise SettingsError with the nearest name if there is none."""
    if value in names:
        return names[value]
    near = difflib.get_close_matches(str(value), list(names), n=1)
    raise SettingsError(
        f"{setting} is {value!r}, expected one of {', '.join(dict.fromkeys(names.values()))}",
        hint=f"did you mean {near[0]!r}?" if near else None,
    )


def positive(setting: str, value: int | None) -> int | None:
    """Return the value; raise SettingsError unless it is None or a whole number of at least 1."""
    if value is not None and (not isinstance(value, int) or value < 1):
        raise SettingsError(f"{setting} is {value!r}, expected a whole number of at least 1")
    return value
