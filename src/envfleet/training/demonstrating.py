"""Demonstrations for a learner that supports them: from a file, from the environment, or played by a policy."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.algorithms.learner import Learner, LearnsFromDemonstrations, TakesDemonstrations
from envfleet.capabilities import Demonstrates, Demonstration
from envfleet.errors import SettingsError
from envfleet.fleet.make import make
from envfleet.fleet.spaces import leaves_of, pick, rebuild
from envfleet.rollout.collect import collect
from envfleet.rollout.demonstrations import as_rollout, load_demonstrations, save_demonstrations
from envfleet.rollout.trajectories import Trajectory
from envfleet.runs.durable import writing
from envfleet.seeding import derive_seed
from envfleet.training.assembly import Resolved
from envfleet.training.environment import named_environment
from envfleet.training.stage import protection

__all__ = ["demonstrate"]

Array = np.ndarray[Any, Any]

_STREAM = 16  # separates the seeds of the demonstrations from the other seeds of a run
_FROM_ENVIRONMENT = "environment"


def demonstrate(resolved: Resolved, learner: Learner, kept: Path, until: float = math.inf) -> str | None:
    """Show the learner the demonstrations of the settings, if any. Returns a message about them.

    Learning from them stops with OutOfTimeError at the time `until` (`time.monotonic`).
    Demonstrations by an environment are made once and kept in the folder `kept`, for runs with the same settings.
    """
    settings: Any = resolved.settings
    if not isinstance(settings, TakesDemonstrations) or settings.demonstrations is None:
        return None
    assert isinstance(learner, LearnsFromDemonstrations), "the settings promise it"
    given, where = settings.demonstrations, ""
    if given == _FROM_ENVIRONMENT:
        trajectories, where = _from_environment(resolved, settings, kept)
    elif isinstance(given, str) and Path(given).suffix == ".npz":
        trajectories = load_demonstrations(given, resolved.observation_space)
    else:
        trajectories = _by_policy(resolved, given, settings.demonstration_steps)
    trajectories = [trajectory for trajectory in trajectories if len(trajectory)]
    if not trajectories:
        raise SettingsError(f"the demonstrations {given!r} hold no step, expected at least one")
    _refuse_other_masks(trajectories, learner.policy.mask_size)
    _refuse_other_actions(trajectories, resolved.action_space)
    first = int(getattr(resolved.action_space, "start", 0))
    learner.show(as_rollout(trajectories, resolved.observation_space, first_action=first), until)
    return f"{sum(map(len, trajectories)):,} steps were demonstrated{where}"


def _refuse_other_masks(trajectories: list[Trajectory], actions: int) -> None:
    widths = {trajectory.masks.shape[1] for trajectory in trajectories if trajectory.masks is not None}
    if widths - {actions}:
        raise SettingsError(
            f"the demonstrations have masks of {', '.join(map(str, sorted(widths)))} actions, expected {actions}",
            hint="they were made in another environment",
        )


def _refuse_other_actions(trajectories: list[Trajectory], space: spaces.Space[Any]) -> None:
    hint = "they were made in another environment"
    for actions in (np.asarray(trajectory.actions) for trajectory in trajectories):
        if actions.shape[1:] != space.shape:
            raise SettingsError(
                f"the demonstrations have actions of the shape {actions.shape[1:]}, expected {space.shape}", hint=hint
            )
        if not isinstance(space, spaces.Discrete):
            continue
        first, last = int(space.start), int(space.start + space.n - 1)
        wrong = actions[~((actions >= first) & (actions <= last) & (actions % 1 == 0))]
        if len(wrong):
            raise SettingsError(
                f"the demonstrations have the action {wrong[0]}, expected whole numbers from {first} to {last}",
                hint=hint,
            )


def _by_policy(resolved: Resolved, given: Any, steps: int) -> list[Trajectory]:
    """Let the policy play in separate environments."""
    policy = named_environment(given) if isinstance(given, str) else given
    if isinstance(policy, str):
        raise SettingsError(
            f"demonstrations is {given!r}, expected environment, a .npz file or module:function",
            hint="a function takes a batch of observations and returns their actions",
        )
    seed = derive_seed(resolved.seed, _STREAM)
    settings = resolved.settings
    fleet = make(
        resolved.env,
        4,
        backend="processes" if settings.backend in ("auto", "ray") else settings.backend,
        workers=1,
        seed=seed,
        env_kwargs=settings.env_kwargs,
        quiet=True,
        **protection(settings),
    )
    try:
        return collect(fleet, policy, steps=steps, seed=seed).trajectories
    finally:
        fleet.close()


# ---- demonstrations by the environment


def _from_environment(resolved: Resolved, settings: TakesDemonstrations, kept: Path) -> tuple[list[Trajectory], str]:
    path = kept / f"{_digest(resolved)}.npz"
    if path.exists() and not settings.regenerate_demonstrations:
        return load_demonstrations(path, resolved.observation_space), f", from {path}"
    seed = derive_seed(resolved.seed, _STREAM)
    resolved.stage.fresh()
    offered = resolved.stage.apply(_name_if_silent)
    if offered is not None:
        raise SettingsError(
            f"demonstrations is 'environment', but {offered} offers none",
            hint="name a .npz file or module:function, or give it a method `demonstrations(seed)`",
        )
    trajectories: list[Trajectory] = resolved.stage.apply(
        functools.partial(_demonstrated, seed=seed, steps=settings.demonstration_steps)
    )
    if trajectories:
        aside = path.with_name(f".{os.getpid()}-{path.name}")
        with writing("the demonstrations", path, "then start again"):
            kept.mkdir(parents=True, exist_ok=True)
            save_demonstrations(aside, trajectories, resolved.observation_space)
            aside.replace(path)  # another run may read it at any time
    return trajectories, f" and kept in {path}"


def _name_if_silent(env: Any) -> str | None:
    """The environment's name if it offers no demonstrations, otherwise None."""
    return None if isinstance(env.unwrapped, Demonstrates) else type(env.unwrapped).__name__


def _demonstrated(env: Any, seed: int, steps: int) -> Generator[Trajectory, None, None]:
    """Yield the environment's own demonstrations as episodes, about `steps` steps in all."""
    shown = 0
    for number, demonstration in enumerate(env.unwrapped.demonstrations(seed)):
        trajectory = _played(env, demonstration, derive_seed(seed, number))
        yield trajectory
        shown += len(trajectory)
        if shown >= steps:
            return


def _digest(resolved: Resolved) -> str:
    """A file name from everything that the demonstrations depend on."""
    recorded = resolved.settings.to_json()
    shaped_by = {name: recorded[name] for name in ("env", "env_kwargs", "wrappers", "demonstration_steps")}
    text = json.dumps({**shaped_by, "seed": resolved.seed, "with": "masks"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _played(env: Any, demonstration: Demonstration, seed: int) -> Trajectory:
    """Play the demonstration. The episode ends when the environment ends it, or with the last action."""
    observation, info = env.reset(seed=seed, options=dict(demonstration.options))
    observations, masks, actions, rewards = [observation], [info.get("action_mask")], [], []
    terminated = truncated = False
    for action in demonstration.actions:
        observation, reward, terminated, truncated, info = env.step(action)
        observations.append(observation)
        masks.append(info.get("action_mask"))
        actions.append(action)
        rewards.append(float(reward))
        if terminated or truncated:
            break
    space = env.observation_space
    stacked = {leaf.path: np.stack([pick(each, leaf.path) for each in observations]) for leaf in leaves_of(space)}
    return Trajectory(
        env_index=0,
        observations=rebuild(space, stacked),
        actions=np.array(actions),
        rewards=np.array(rewards),
        terminated=bool(terminated),
        truncated=not terminated,
        complete=bool(terminated or truncated),
        restarted=False,
        masks=_stacked_masks(masks),
    )


def _stacked_masks(given: list[Any]) -> Array | None:
    """Masks as [observation, action], or None if there are none. An observation without a mask allows everything."""
    found = [None if mask is None else np.asarray(mask, np.bool_).reshape(-1) for mask in given]
    free = next((np.ones_like(mask) for mask in found if mask is not None), None)
    return None if free is None else np.stack([free if mask is None else mask for mask in found])
