"""Demonstrations for a learner that takes them: from a file, or played by a policy in environments of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envfleet.errors import SettingsError
from envfleet.fleet.make import make
from envfleet.rollout.collect import collect
from envfleet.rollout.demonstrations import as_rollout, load_demonstrations
from envfleet.seeding import derive_seed
from envfleet.training.assembly import Resolved
from envfleet.training.environment import named_environment

__all__ = ["demonstrate"]

_STREAM = 16  # names the seeds of demonstrating environments among those of a run


def demonstrate(resolved: Resolved, learner: Any) -> int:
    """Shows the learner what the settings name, where they name something; how many steps that were."""
    given = getattr(resolved.settings, "demonstrations", None)
    if given is None:
        return 0
    if isinstance(given, str) and Path(given).suffix == ".npz":
        trajectories = load_demonstrations(given, resolved.observation_space)
    else:
        policy = named_environment(given) if isinstance(given, str) else given
        if isinstance(policy, str):
            raise SettingsError(
                f"demonstrations is {given!r}, expected a .npz file or module:function",
                hint="a function takes a batch of observations and returns their actions",
            )
        seed = derive_seed(resolved.seed, _STREAM)
        fleet = make(resolved.env, 4, backend="sequential", seed=seed, env_kwargs=resolved.settings.env_kwargs)
        try:
            steps = getattr(resolved.settings, "demonstration_steps", 1)
            trajectories = collect(fleet, policy, steps=steps, seed=seed).trajectories
        finally:
            fleet.close()
    trajectories = [trajectory for trajectory in trajectories if len(trajectory)]
    if not trajectories:
        raise SettingsError(f"the demonstrations {given!r} hold no step, expected at least one")
    first = int(getattr(resolved.action_space, "start", 0))
    learner.show(as_rollout(trajectories, resolved.observation_space, first_action=first))
    return sum(map(len, trajectories))
