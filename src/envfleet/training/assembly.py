"""From settings to the parts of a training: environment, fleet, collector, schedule, learner."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from envfleet.algorithms.settings import DEFAULT_STEPS, TrainingSettings
from envfleet.conformance.report import own_traceback
from envfleet.errors import EnvContext, EnvError, EnvfleetError, ResourceError, SettingsError
from envfleet.fleet.fleet import Fleet
from envfleet.fleet.make import make
from envfleet.fleet.plan import Timeouts
from envfleet.machine import available_memory, keep_freed_memory
from envfleet.rollout.arrays import RolloutShape
from envfleet.rollout.collectors import CentralCollector, Collector, WorkerCollector
from envfleet.rollout.program import ActingProgram
from envfleet.rollout.schedules import SCHEDULES, Schedule
from envfleet.seeding import draw_seed
from envfleet.settings import declared_settings
from envfleet.settings.declaration import kinds_of
from envfleet.training.environment import build_one, environment_of, frames_stacked
from envfleet.training.presets import Preset, named_preset, preset_for

__all__ = ["Parts", "Resolved", "assemble", "resolve"]


@dataclass(frozen=True)
class Resolved:
    """Settings in which nothing is open any more."""

    settings: TrainingSettings
    seed: int
    preset: Preset
    env: str | Callable[..., Any]
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def build_env(self, **kwargs: Any) -> Any:
        """One environment, as the fleet has many."""
        return build_one(self.env, {**self.settings.env_kwargs, **kwargs})


def resolve(settings: TrainingSettings) -> Resolved:
    """Looks at the environment and fills in what the user left open: the preset of its family, a seed."""
    env = environment_of(settings.env, settings.wrappers)
    seen = _looked_at(env, settings.env_kwargs)
    preset = preset_for(settings, seen.entry_point, seen.observation_space, seen.action_space)
    if settings.preset is not None:
        preset = named_preset(settings.preset, type(settings)).over(preset)
    of_env = {name: value for name, value in preset.env.items() if name in seen.own and name not in settings.env_kwargs}
    if of_env:
        settings = settings.but(env_kwargs={**of_env, **settings.env_kwargs})
        seen = _looked_at(env, settings.env_kwargs)
    filled = _with_budget(settings, preset).in_steps()
    if "frame_stack" in kinds_of(type(filled)):
        filled = filled.filled({"frame_stack": seen.frames})
    if filled.seed is None:  # drawn, and so not given
        filled = filled.as_given(filled.given - {"seed"}).filled({"seed": draw_seed()})
    filled = filled.filled({"learner_threads": filled.threads})  # for the record: they shape the mathematics
    assert filled.seed is not None
    return Resolved(filled, filled.seed, preset, env, seen.observation_space, seen.action_space)


@dataclass(frozen=True)
class _Seen:
    """What a look at one environment tells."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    entry_point: str
    own: frozenset[str]  # the settings that it declares for itself
    frames: int  # of which an observation is a stack


def _looked_at(env: str | Callable[..., Any], kwargs: dict[str, Any]) -> _Seen:
    try:
        sample = build_one(env, kwargs)
        observation_space, action_space = copy.deepcopy((sample.observation_space, sample.action_space))
        entry_point = str(getattr(sample.spec, "entry_point", "") or type(sample.unwrapped).__module__)
        own = declared_settings(type(sample.unwrapped))
        frames = frames_stacked(sample)
        sample.close()
    except EnvfleetError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever the user's environment raises while it is built
        raise EnvError(
            f"{type(error).__name__}: {error}", EnvContext(0, "make"), original=own_traceback(error)
        ) from None
    names = frozenset(() if own is None else kinds_of(own))
    return _Seen(observation_space, action_space, entry_point, names, frames)


def _with_budget(settings: TrainingSettings, preset: Preset) -> TrainingSettings:
    """The settings with the preset's values; its steps, or ours, are the budget only where the user gave none."""
    values = preset.values
    if settings.num_episodes is not None or settings.duration is not None:
        values = {name: value for name, value in values.items() if name != "steps"}
    elif settings.steps is None:
        values = {"steps": DEFAULT_STEPS, **values}
    return settings.filled(values)


@dataclass
class Parts:
    """Everything a training runs on."""

    fleet: Fleet
    collector: Collector
    schedule: Schedule
    learner: Any
    policy: Any
    shape: RolloutShape

    def close(self) -> None:
        self.collector.close()
        self.fleet.close()


def assemble(resolved: Resolved, *, quiet: bool = False) -> Parts:
    """Builds the parts, workers first: they import what they need while this process does the same."""
    settings, seed = resolved.settings, resolved.seed
    lag = SCHEDULES[settings.schedule]
    program = ActingProgram(settings.actor_maker(lag), settings.rollout_length, settings.piece_length, 1 + lag)
    fleet = make(
        resolved.env,
        settings.n_envs,
        backend=settings.backend,
        workers=settings.workers,
        group_size=settings.group_size,
        seed=seed,
        start_method=settings.start_method,
        timeout=Timeouts(settings.timeout, max(settings.timeout, 600.0)),
        on_error=settings.on_error,
        restarts=settings.restarts,
        env_kwargs=settings.env_kwargs,
        autoreset="same_step",
        program=program if settings.acting == "worker" else None,
        quiet=quiet,
    )
    try:
        return _with_fleet(resolved, fleet, program, lag)
    except BaseException:
        fleet.close()
        raise


def _with_fleet(resolved: Resolved, fleet: Fleet, program: ActingProgram, lag: int) -> Parts:
    import torch

    settings, seed = resolved.settings, resolved.seed
    torch.set_num_threads(1)  # each thread of the learner computes with one, as do workers and whoever acts
    keep_freed_memory()
    actor = program.make_actor(fleet.single_observation_space, fleet.single_action_space)
    shape = program.shape(actor, fleet.single_observation_space, fleet.num_envs, len(fleet.groups))
    _refuse_too_large(shape)
    _, infos = fleet.reset()
    collector: WorkerCollector | CentralCollector
    if settings.acting == "worker":
        collector = WorkerCollector(fleet, program, seed)
    else:
        collector = CentralCollector(fleet, program, seed)
        collector.see_infos(infos)
    learner = settings.build_learner(
        fleet.single_observation_space,
        fleet.single_action_space,
        n_envs=fleet.num_envs,
        seed=seed,
        device=_device(settings.device),
    )
    return Parts(fleet, collector, Schedule(collector, learner.weights, lag=lag), learner, learner.policy, shape)


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
