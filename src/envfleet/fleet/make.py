"""`make` checks the user's arguments; `build_fleet` builds a fleet from values."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from envfleet.errors import CannotBeSentError, ResourceError, SettingsError
from envfleet.fleet.arrays import COLUMN_BYTES_PER_ENV, FleetShape
from envfleet.fleet.cluster import ClusterSettings
from envfleet.fleet.fleet import Fleet
from envfleet.fleet.group import Capability, unsupported
from envfleet.fleet.hosting import BACKENDS, Hosting, backend_of, group_count, named, positive
from envfleet.fleet.makers import Makers, makers_of
from envfleet.fleet.observation_modes import ObservationMode, checked_mode
from envfleet.fleet.pool import PoolMaker
from envfleet.fleet.routine import WorkerRoutine
from envfleet.fleet.spec import (
    EnvMaker,
    GroupSettings,
    GroupSpec,
    OnError,
    Restarts,
    Timeouts,
    WorkerSpec,
    group_ranges,
    split_evenly,
)
from envfleet.fleet.supervisor import Supervisor
from envfleet.fleet.validation import Validation
from envfleet.fleet.worker import Hello
from envfleet.machine import available_memory
from envfleet.seeding import draw_seed

__all__ = ["Hosting", "build_fleet", "group_count", "make", "one_env"]

VALIDATIONS = {name: name for name in ("strict", "warn", "off")}


def make(
    env: str | EnvMaker | PoolMaker | Sequence[EnvMaker],
    n_envs: int | None = None,
    *,
    # environments
    env_kwargs: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    tasks: Sequence[Any] | Callable[[Any], Any] | None = None,
    seed: int | None = None,
    # where they run
    backend: str = "auto",
    workers: int | None = None,
    group_size: int | None = None,
    start_method: str | None = None,
    trusted: bool = False,
    address: str | ClusterSettings | None = None,
    # faults
    timeout: Timeouts | float | None = Timeouts(),
    restarts: Restarts | int = Restarts(),
    on_error: str = "raise",
    recycle_every: int | None = None,
    # what a step returns
    autoreset: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    observation_mode: ObservationMode = "same",
    validate: str | bool = "warn",
    copy: bool = True,
    quiet: bool = False,
) -> Fleet:
    """Make a fleet of `n_envs` environments on all cores.

    Args:
        env: a Gymnasium id, a function that builds an environment, a list of such functions, or a `PoolMaker`.
        n_envs: number of environments; not needed with a list of functions or of `env_kwargs`.

    Environments:
        env_kwargs: arguments for every environment, or a list with one dictionary per environment.
        wrappers: functions that take an environment and return it wrapped; applied in this order, in the worker.
        tasks: one task per environment, or a function of a NumPy generator that draws the next task.
        seed: environment i gets seed + i. If not given, a seed is drawn and recorded as `fleet.seed`.

    Where they run (this never changes a result):
        backend: "sequential", "threads", "processes", "ray" (a cluster), or "auto", which times a step and chooses.
        workers: number of workers (default: the usable cores; "auto" uses more if steps are slow or mostly wait).
        group_size: environments that one worker steps together, the unit of send() and recv() (default: at least one
            group per worker).
        start_method: "spawn", "fork" or "forkserver" for processes; by default forkserver on Linux, spawn elsewhere.
        trusted: let the caller's own process act as the last worker: faster, without isolation.
        address: of a Ray cluster, or "auto" on one of its nodes, or `ClusterSettings`; without it, "ray" starts a
            cluster on this machine.

    Faults:
        timeout: seconds a step may take before it counts as hung (60), or `Timeouts`, or None for no limit.
        restarts: how often a worker or environment may be restarted (10 within 5 minutes), or `Restarts`.
        on_error: "raise" an environment's exception, or "restart" the environment and truncate the episode.
        recycle_every: rebuild an environment after this many episodes, for simulators that degrade over time.

    What a step returns:
        autoreset: "next_step" (Gymnasium's default), "same_step" or "disabled".
        observation_mode: "same" if all environments have the same observation space, "different" if only shapes and
            dtypes are the same, or a space for all of them, as in Gymnasium's vector environments.
        validate: "warn" checks observations and rewards, and accepts deviations that can be stored without a wrong
            value (float64 for float32, a list, a rounding error at a bound), with one warning for each kind; "strict"
            makes those errors too; "off" does not check bounds and NaN. True and False mean "warn" and "off".
        copy: return copies; False returns views that stay valid until the step after the next.
        quiet: print neither the choice of "auto" nor the warnings of `validate`.
    """
    if isinstance(validate, bool):
        validate = "warn" if validate else "off"
    makers = makers_of(env, n_envs, env_kwargs, wrappers)
    cluster = address if isinstance(address, ClusterSettings) else ClusterSettings(address)
    sampler, first_tasks = (tasks, None) if callable(tasks) else (None, tasks)
    settings = GroupSettings(
        draw_seed() if seed is None else int(seed),
        _autoreset_mode(autoreset),
        OnError(named("on_error", on_error, {"raise": "raise", "restart": "restart"})),
        Restarts(restarts) if isinstance(restarts, int) else restarts,
        positive("recycle_every", recycle_every),
        Validation(named("validate", validate, VALIDATIONS), quiet),
        sampler,
        own_spaces=checked_mode(observation_mode) != "same",
    )
    fleet = build_fleet(
        makers,
        settings,
        Hosting(named("backend", backend, BACKENDS), workers, group_size, start_method, trusted, cluster=cluster),
        timeouts=timeout if isinstance(timeout, Timeouts) else Timeouts(timeout, timeout and max(timeout, 600.0)),
        observation_mode=observation_mode,
        first_task=None if first_tasks is None or len(first_tasks) == 0 else first_tasks[0],
        copy=copy,
        quiet=quiet,
    )
    try:
        if first_tasks is not None:
            fleet.set_tasks(first_tasks)
    except BaseException:
        fleet.close()
        raise
    return fleet


def build_fleet(
    makers: Makers,
    settings: GroupSettings,
    hosting: Hosting,
    *,
    timeouts: Timeouts = Timeouts(),
    routine: WorkerRoutine | None = None,
    observation_mode: ObservationMode = "same",
    first_task: Any = None,
    copy: bool = True,
    quiet: bool = False,
) -> Fleet:
    """Build a fleet; with a `routine`, its workers can run that without the caller (`Fleet.run_async`).

    `first_task` is the task of the environment that `auto` times.
    """
    group_size = hosting.group_size
    acting_groups = None if routine is None else group_count(makers.n_envs, group_size)
    name, count, reason = hosting.settle(makers, settings, timeouts, acting_groups, first_task)
    if reason and not quiet:
        counted = f"{makers.n_envs} environment{'' if makers.n_envs == 1 else 's'}"
        sys.stderr.write(f"envfleet: {counted} on {name}: {reason}\n")
    # In a sequential fleet only the caller steps, so one group has the least overhead.
    alone = name == "sequential" and group_size is None
    groups = _groups(makers, acting_groups or (1 if alone else group_count(makers.n_envs, group_size, count)))
    if hosting.pin_cores and hosting.trusted:
        raise SettingsError("pin_cores and trusted were both asked for: the caller's own process would be bound too")
    cores = _cores_to_pin(name, count) if hosting.pin_cores else [None] * count
    # On a cluster each worker gets neighbouring groups, so that the rows of a host are one slice of each array.
    dealt = split_evenly(groups, count) if name == "ray" else [groups[w::count] for w in range(count)]
    worker_specs = [
        WorkerSpec(w, f"envfleet-{w}", tuple(dealt[w]), settings, routine, cores[w], fingerprint=name == "ray")
        for w in range(count)
    ]
    supervisor = Supervisor(backend_of(name, count, hosting), worker_specs, timeouts, settings.restarts)
    try:
        hellos = supervisor.start()
        _refuse_unsupported(hellos[0], settings)
        _refuse_too_large(hellos[0], makers.n_envs, count, len(groups))
        return Fleet(supervisor, worker_specs, hellos, backend=name, copy=copy, observation_mode=observation_mode)
    except BaseException:
        supervisor.stop(0.5)
        raise


def _cores_to_pin(backend: str, workers: int) -> Sequence[int | None]:
    """The core of each worker, in turn."""
    if backend != "processes":
        return [None] * workers  # pinning the caller itself would outlast the fleet
    if not hasattr(os, "sched_getaffinity"):
        raise SettingsError(
            "pin_cores was asked for, and this system cannot bind processes to cores", hint="leave it out"
        )
    cores = sorted(os.sched_getaffinity(0))
    return [cores[worker % len(cores)] for worker in range(workers)]


def one_env(env: str | EnvMaker, *, start_method: str | None = None, **settings: Any) -> Fleet:
    """Make a fleet of one environment in a separate process, or in this one if it cannot be sent to another."""
    try:
        return make(env, 1, backend="processes", start_method=start_method, **settings)
    except CannotBeSentError:
        return make(env, 1, backend="sequential", **settings)


# --- the user's arguments


def _groups(makers: Makers, count: int) -> list[GroupSpec]:
    ranges = group_ranges(makers.n_envs, count)
    common = (makers.together, makers.preloads)
    return [GroupSpec(g, rows.start, rows.stop, makers.group(rows), *common) for g, rows in enumerate(ranges)]


def _autoreset_mode(value: str | AutoresetMode) -> AutoresetMode:
    if isinstance(value, AutoresetMode):
        return value
    names = {mode.name.lower(): mode.value for mode in AutoresetMode} | {m.value: m.value for m in AutoresetMode}
    return AutoresetMode(named("autoreset", value, names))


# --- limits


def _refuse_unsupported(hello: Hello, settings: GroupSettings) -> None:
    wanted = {Capability.TASKS: settings.task_sampler, Capability.RECYCLING: settings.recycle_every}
    for capability, setting in wanted.items():
        if setting is not None and capability not in hello.groups[0].capabilities:
            raise unsupported(capability)


def _refuse_too_large(hello: Hello, n_envs: int, workers: int, groups: int) -> None:
    first = hello.groups[0]
    shape = FleetShape(n_envs, workers, groups, first.observation_spaces[0], first.action_spaces[0])
    needed = shape.layout().size - n_envs * COLUMN_BYTES_PER_ENV  # reserved for infos, hardly ever used up
    free = available_memory()
    if needed > 0.9 * free:
        raise ResourceError(
            f"the arrays of {n_envs} environments need {needed / 2**30:.1f} GiB, but only {free / 2**30:.1f} GiB "
            "of memory are available",
            hint="use fewer environments or smaller observations (uint8 instead of float32, lower resolution)",
        )
