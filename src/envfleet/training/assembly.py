"""Builds the parts of a training run from its settings: environment, fleet, collector, schedule, learner."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envfleet.algorithms.env_facts import EnvFacts
from envfleet.algorithms.learner import Learner
from envfleet.algorithms.settings import DEFAULT_STEPS, TrainingSettings
from envfleet.environments.meta.trial import trial_of
from envfleet.environments.presets import declared_presets
from envfleet.errors import EnvError, MissingExtraError, ResourceError, SettingsError
from envfleet.fleet.auto import Choice
from envfleet.fleet.episode_numbers import followed
from envfleet.fleet.fleet import Fleet
from envfleet.fleet.make import Hosting, build_fleet, group_count
from envfleet.fleet.makers import makers_of
from envfleet.fleet.pool import PoolEnv
from envfleet.fleet.spec import GroupSettings, OnError, Restarts, group_ranges
from envfleet.fleet.validation import Validation
from envfleet.machine import available_memory, simulator_versions
from envfleet.policies.protocol import ActingPolicy
from envfleet.rollout.arrays import RolloutShape
from envfleet.rollout.async_schedule import AsyncCollector, AsyncSchedule
from envfleet.rollout.batches import RolloutBatch
from envfleet.rollout.collectors import CentralCollector, Collector, WorkerCollector
from envfleet.rollout.order import Order, ReplayedRollouts
from envfleet.rollout.routine import ActingRoutine
from envfleet.rollout.schedules import SCHEDULES, Schedule
from envfleet.rollout.worker_rollouts import InlineRollouts, StreamedRollouts, WorkerRequests, WorkerRollouts
from envfleet.seeding import draw_seed
from envfleet.settings import declared_settings
from envfleet.settings.declaration import kinds_of
from envfleet.settings.presets import Preset
from envfleet.training.placement import cluster_of, place
from envfleet.training.presets import named_preset
from envfleet.training.process import TunedProcess
from envfleet.training.stage import Stage, time_limits
from envfleet.training.wrappers import environment_of, frames_stacked, history_of

__all__ = ["Parts", "Resolved", "assemble", "resolve"]


@dataclass(frozen=True)
class Resolved:
    """Fully resolved settings."""

    settings: TrainingSettings
    seed: int
    preset: Preset
    env: str | Callable[..., Any]
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    stage: Stage  # a single environment of the run, for evaluations, videos and the like
    simulators: dict[str, str]  # versions
    notices: tuple[str, ...] = ()  # about settings that were filled in, one line each
    has_trials: bool = False  # episodes are trials of tasks (meta-RL)


def resolve(settings: TrainingSettings, *, recorded: bool = False) -> Resolved:
    """Inspect the environment and fill in settings that the user did not give: the preset of its family, the seed.

    Settings `recorded` in a run already have the preset's arguments of the environment. A preset that has more of them
    today would change the observations of the run.
    """
    env = environment_of(settings.env, settings.wrappers)
    stage = Stage(env, settings)
    notices: tuple[str, ...] = ()
    try:
        seen = _first_look(stage)
        preset = settings.family_preset(seen)
        if settings.preset is not None:
            preset = named_preset(settings.preset, settings).over(preset)
        of_env = {
            name: value
            for name, value in preset.env.items()
            if name in seen.own_settings and name not in settings.env_kwargs and not recorded
        }
        if of_env:
            settings = settings.but(env_kwargs={**of_env, **settings.env_kwargs})
            stage.close()
            stage = Stage(env, settings)
            seen = _first_look(stage)
        filled = _with_budget(settings, preset).in_steps()
        if needed := filled.needed_wrappers(seen):
            notices = tuple(f"the wrapper {name} was added: {reason}" for name, reason in needed.items())
            filled = filled.but(wrappers=(*filled.wrappers, *needed))
            stage.close()
            env = environment_of(filled.env, filled.wrappers)
            stage = Stage(env, filled)
            seen = _first_look(stage)
        filled = filled.adapted(seen)
        if filled.seed is None:  # a drawn seed does not count as given by the user
            filled = filled.as_given(filled.given - {"seed"}).filled({"seed": draw_seed()})
        filled = filled.filled({"learner_threads": filled.threads})  # recorded because it affects numerical results
    except BaseException:
        stage.close()
        raise
    assert filled.seed is not None
    spaces_seen = (seen.observation_space, seen.action_space)
    return Resolved(filled, filled.seed, preset, env, *spaces_seen, stage, seen.simulators, notices, seen.has_trials)


def _first_look(stage: Stage) -> EnvFacts:
    """Return the facts of one environment. Errors from our own envs and wrappers are raised without a traceback."""
    try:
        seen: EnvFacts = stage.apply(_look)
    except EnvError as error:
        kind, _, message = error.message.partition(": ")
        for refusal in (SettingsError, MissingExtraError):
            if kind == refusal.__name__:
                raise refusal(message) from None
        raise
    return seen


def _look(env: Any) -> EnvFacts:
    unwrapped = env.unwrapped
    simulator = type(unwrapped.pool if isinstance(unwrapped, PoolEnv) else unwrapped)
    own = declared_settings(simulator)
    entry_point = str(getattr(env.spec, "entry_point", "") or simulator.__module__)
    return EnvFacts(
        *copy.deepcopy((env.observation_space, env.action_space)),
        entry_point=entry_point,
        own_settings=frozenset(() if own is None else kinds_of(own)),
        presets=declared_presets(entry_point, unwrapped),
        frames=frames_stacked(env),
        simulators=simulator_versions(simulator.__module__),
        has_trials=trial_of(env) is not None,
        history=history_of(env) or {},
        hides_history=history_of(env) == {},
    )


def _with_budget(settings: TrainingSettings, preset: Preset) -> TrainingSettings:
    """Fill in the preset's values. The preset's steps, or the default, are the budget only if the user gave none."""
    values = preset.values
    if settings.num_episodes is not None or settings.duration is not None:
        values = {name: value for name, value in values.items() if name != "steps"}
    elif settings.steps is None:
        values = {"steps": DEFAULT_STEPS, **values}
        settings = settings.as_given(settings.given - {"steps"})  # `--steps none` is no budget
    return settings.filled(values)


@dataclass
class Parts:
    """The parts of a training run."""

    fleet: Fleet
    collector: Collector | AsyncCollector
    schedule: Schedule | AsyncSchedule
    learner: Learner
    policy: ActingPolicy
    shape: RolloutShape
    placement: Choice
    process: TunedProcess

    def close(self) -> None:
        """End workers and threads, and restore the process settings."""
        try:
            self.collector.close()
            self.fleet.close()
        finally:
            self.learner.close()
            self.process.release()


def assemble(resolved: Resolved) -> Parts:
    """Build the parts. Workers come first: they import their libraries while this process imports its own."""
    settings, seed = resolved.settings, resolved.seed
    log_info = followed(settings.log_info)
    placement = place(settings, seed, resolved.stage)
    order = None if settings.replay_order is None else Order.read(Path(settings.replay_order))
    lag, buffers, weight_sets = SCHEDULES[settings.schedule], 1 + SCHEDULES[settings.schedule], 1
    if settings.schedule == "async":
        buffers = 1 + settings.rollouts_waiting
        weight_sets = placement.workers if order is None else len(order.groups)
    routine = ActingRoutine(
        settings.actor_maker(lag),
        settings.rollout_length,
        settings.piece_length,
        buffers,
        log_info,
        weight_sets,
    )
    in_worker = placement.acting == "worker"
    fleet = build_fleet(
        makers_of(resolved.env, settings.n_envs, settings.env_kwargs),
        GroupSettings(
            seed,
            AutoresetMode.SAME_STEP,
            OnError(settings.on_error),
            Restarts(settings.restarts),
            settings.recycle_every,
            validation=Validation(settings.validate, settings.quiet),
            log_info=log_info,
        ),
        Hosting(
            placement.backend,
            placement.workers,
            settings.group_size if in_worker else None,
            settings.start_method,
            pin_cores=settings.pin_cores,
            cluster=cluster_of(settings),
        ),
        timeouts=time_limits(settings),
        routine=routine if in_worker else None,
        quiet=settings.quiet,
    )
    process = None
    try:
        process = TunedProcess()
        return _with_fleet(resolved, fleet, routine, placement, process, order)
    except BaseException:
        fleet.close()
        if process is not None:
            process.release()
        raise


def _with_fleet(
    resolved: Resolved,
    fleet: Fleet,
    routine: ActingRoutine,
    placement: Choice,
    process: TunedProcess,
    order: Order | None,
) -> Parts:
    settings, seed = resolved.settings, resolved.seed
    groups = group_ranges(fleet.num_envs, group_count(fleet.num_envs, settings.group_size))
    actor = routine.make_actor(fleet.single_observation_space, fleet.single_action_space)
    shape = routine.shape(actor, fleet.single_observation_space, fleet.num_envs, len(groups))
    _refuse_too_large(shape if settings.schedule != "async" else replace(shape, buffers=shape.buffers + 1))
    _, infos = fleet.reset()
    collector: WorkerCollector | CentralCollector | AsyncCollector
    schedule: Schedule | AsyncSchedule
    if settings.schedule == "async":
        units = None if order is None else order.groups
        workers = _worker_rollouts(WorkerRequests(fleet, routine, seed, units), order)
        batch = RolloutBatch(shape, groups)
        collector = AsyncCollector(workers, batch)
    elif placement.acting == "worker":
        collector = WorkerCollector(fleet, routine, seed)
    else:
        collector = CentralCollector(fleet, routine, seed, groups)
        collector.see_infos(infos)
    learner = settings.build_learner(
        fleet.single_observation_space,
        fleet.single_action_space,
        n_envs=fleet.num_envs,
        seed=seed,
        device=_device(settings.device),
    )
    if isinstance(collector, AsyncCollector):
        limit = None if settings.off_policy else settings.max_lag
        schedule = AsyncSchedule(workers, batch, learner.weights, max_lag=limit)
    else:
        schedule = Schedule(collector, learner.weights, lag=SCHEDULES[settings.schedule])
    return Parts(fleet, collector, schedule, learner, learner.policy, shape, placement, process)


def _worker_rollouts(requests: WorkerRequests, order: Order | None) -> WorkerRollouts:
    if order is not None:
        order.refuse_other(len(requests.fleet.groups))
        return ReplayedRollouts(requests, order)
    return InlineRollouts(requests) if requests.fleet.backend == "sequential" else StreamedRollouts(requests)


def _refuse_too_large(shape: RolloutShape) -> None:
    needed, free = shape.learned_bytes, available_memory()
    if needed > 0.9 * free:
        raise ResourceError(
            f"a rollout of {shape.steps} steps of {shape.n_envs} environments needs {needed / 2**30:.1f} GiB, but only "
            f"{free / 2**30:.1f} GiB of memory are available",
            hint="use fewer rollout_steps or n_envs, or smaller observations",
        )


def _device(name: str) -> Any:
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if there[kind]))
    if not there[name]:
        raise SettingsError(f"device is {name!r}, which this machine does not have", hint="use --device auto or cpu")
    return torch.device(name)
